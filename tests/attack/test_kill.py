"""Kill −9 at random moments of what writes files; the same command then finishes, and loses and leaves nothing."""

import csv
import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import pytest

from keras_attn import files
from tests.attack import killing

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MOMENTS = 10


class Commands:
    """A process that runs and kills commands; see `killing`."""

    def __init__(self):
        line = [sys.executable, "-W", "ignore", "-m", "tests.attack.killing"]
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    def __enter__(self) -> "Commands":
        return self

    def __exit__(self, *_) -> None:
        self._process.communicate()

    def run(self, action: str, folder: Path, **moment) -> dict:
        print(json.dumps({"action": action, "folder": str(folder)} | moment), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


@pytest.fixture(scope="module")
def processes():
    """Two for all actions, because they take seconds to import everything."""
    with Commands() as first, Commands() as second:
        yield first, second


def moments(whole: dict) -> list[dict]:
    """Random moments of a command: half of them at its accesses to files, half of them in its time."""
    draw = random.Random(0)
    events = draw.sample(range(1, whole["events"] + 1), min(MOMENTS // 2, whole["events"]))
    return [{"event": n} for n in events] + [
        {"seconds": draw.uniform(0, whole["seconds"])} for _ in range(MOMENTS - len(events))
    ]


def log(folder: Path) -> str:
    return folder.with_name(f"{folder.name}.log").read_text()[-2000:]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def every_moment(action: str, processes, tmp_path: Path, check) -> None:
    """Kills a command at some moments in these processes, runs it again after each, and checks the folder.

    `check(folder, killed, again)` has the folder, whether the command was killed, and the second one's status.
    """

    def work(commands, numbered) -> bool:
        number, moment = numbered
        folder = tmp_path / f"killed-{number}"
        first = commands.run(action, folder, **moment)
        before = sorted(path.name for path in folder.rglob("*"))
        again = commands.run(action, folder)["status"]
        try:
            check(folder, first["status"] == -9, again)
        except AssertionError as error:
            raise AssertionError(f"{action} killed at {moment}, with {before} left: {error}\n{log(folder)}") from error
        return first["status"] == -9

    def all_of(commands: Commands, some: list) -> int:
        return sum(work(commands, one) for one in some)

    whole = processes[0].run(action, tmp_path / "whole")
    assert whole["status"] == 0, log(tmp_path / "whole")
    check(tmp_path / "whole", False, None)
    numbered = list(enumerate(moments(whole)))
    with ThreadPoolExecutor(len(processes)) as pool:
        killed = sum(pool.map(all_of, processes, [numbered[n :: len(processes)] for n in range(len(processes))]))
    assert killed >= 0.5 * MOMENTS, "most were killed before they had finished"


PRESET = ["model.keras", "source_tokenizer", "target_tokenizer", "translator.json"]


@pytest.mark.once
@pytest.mark.parametrize("action", ["save", "save_beside"])
def test_save(action, processes, tmp_path):
    def check(folder, killed, again):
        assert again in (None, 0, 2), again
        assert names(folder) == ["preset"]
        notes = ["notes.txt"] if action == "save_beside" else []
        # The card comes last, when the preset is complete.
        assert [name for name in names(folder / "preset") if name != "README.md"] == sorted([*PRESET, *notes])
        recorded = json.loads((folder / "preset" / "translator.json").read_text())["files"]
        found = files.digests(folder / "preset")
        assert {name: found[name] for name in recorded} == recorded

    every_moment(action, processes, tmp_path, check)


@pytest.mark.once
def test_encode(processes, tmp_path):
    def check(folder, killed, again):
        assert again in (None, 0), again
        assert names(folder) == ["cache"]
        (store,) = (folder / "cache").iterdir()
        found = files.digests(store)
        recorded = json.loads((store / "files.json").read_text())
        assert {name: found.pop(name) for name in recorded} == recorded
        assert found.keys() == {"files.json"}

    every_moment("encode", processes, tmp_path, check)


@pytest.mark.once
def test_download(processes, tmp_path):
    def check(folder, killed, again):
        assert again in (None, 0), again
        assert names(folder / "home" / "keras_attn") == [killing.CORPUS]
        assert len(names(folder / "home" / "keras_attn" / killing.CORPUS)) == 9

    every_moment("download", processes, tmp_path, check)


RUN = [*PRESET, "README.md", "report.json", "history.csv", "translations.txt", "alignment.png"]


@pytest.mark.once
def test_train(processes, tmp_path):
    def check(folder, killed, again):
        run = folder / "run"
        assert again in (None, 0, 2), again
        if again == 2:
            assert "is finished: there is nothing to resume" in log(folder)
        assert names(run) == sorted(RUN)
        report = json.loads((run / "report.json").read_text())
        assert report["epochs"] == len(report["history"]["loss"]) == 3
        with (run / "history.csv").open() as table:
            assert [row["epoch"] for row in csv.DictReader(table)] == ["0", "1", "2"]

    every_moment("train", processes, tmp_path, check)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow writes the graph")
def test_export(processes, tmp_path):
    def check(folder, killed, again):
        assert again in (None, 0), again
        models = folder / "models"
        assert names(models) in (["1"], ["1", "2"])  # the first may have been complete
        for version in models.glob("[12]"):
            assert {"saved_model.pb", "variables", "assets.extra", "batching_params.pbtxt"} <= set(names(version))

    every_moment("export", processes, tmp_path, check)
