"""Kills and failures at any moment of what writes files; the same command then loses and leaves nothing."""

import csv
import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import keras
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from keras_attn import files
from keras_attn.saving import preset
from tests import hostile
from tests.nightly import killing
from tests.training.small_run import FINISHED

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]


def check_preset(folder: Path, whole: Path, status: int) -> None:
    assert status in (0, 2)
    # The card comes last, when the preset is complete.
    assert {*os.listdir(folder / "preset"), "README.md"} == {*preset.NAMES, preset.CARD}
    recorded = json.loads((folder / "preset" / "translator.json").read_text())["files"]
    assert recorded.items() <= files.digests(folder / "preset").items()


def check_cache(folder: Path, whole: Path, status: int) -> None:
    assert status == 0
    assert files.digests(folder / "cache") == files.digests(whole / "cache")


def check_run(folder: Path, whole: Path, status: int) -> None:
    assert status in (0, 2)  # it is finished: there is nothing to resume
    assert set(os.listdir(folder / "run")) == FINISHED
    losses = [json.loads((one / "run" / "report.json").read_text())["history"]["loss"] for one in (folder, whole)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    with (folder / "run" / "history.csv").open() as table:
        assert [row["epoch"] for row in csv.DictReader(table)] == ["0", "1", "2"]


def check_export(folder: Path, whole: Path, status: int) -> None:
    assert status == 0
    versions = sorted(os.listdir(folder / "models"))
    assert versions == [str(n + 1) for n in range(len(versions))]
    for version in versions:
        assert {*os.listdir(folder / "models" / version)} == {*os.listdir(whole / "models" / "1")}


CHECKS = {"save": check_preset, "encode": check_cache, "train": check_run, "export": check_export}
PLACES = {"save": "preset", "encode": "cache", "train": "run", "export": "models"}


class Disturbed(RuleBasedStateMachine):
    """A command in one folder that is killed and fails again and again; at last it is not disturbed."""

    action: str
    root: Path
    process: subprocess.Popen
    events: int

    def __init__(self):
        super().__init__()
        self.folder = self.root / uuid.uuid4().hex

    @classmethod
    def command(cls, folder: Path, **moment) -> dict:
        order = {"action": cls.action, "folder": str(folder)} | moment
        print(json.dumps(order), file=cls.process.stdin, flush=True)
        return json.loads(cls.process.stdout.readline())

    @rule(share=st.floats(0, 1, exclude_max=True), error=st.sampled_from([None, *killing.ERRORS]))
    def disturb(self, share, error):
        found = self.command(self.folder, event=1 + int(share * self.events), error=error)
        if error and found["status"] not in (0, 2):  # a command's own sentence, or the error
            assert found["status"] == 1 or found["raised"] in ("OSError", "MemoryError"), self.log(self.folder)

    @rule()
    def leave(self):
        """What a killed process leaves."""
        if (place := self.folder / PLACES[self.action]).is_dir():
            (place / f".tmp-{'a' * 32}").mkdir(exist_ok=True)
            (place / files.LOCK).touch()

    def teardown(self):
        status = self.command(self.folder)["status"]
        try:
            CHECKS[self.action](self.folder, self.root / "whole", status)
            assert not list(self.folder.rglob(".tmp-*"))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{status}, {self.log(self.folder)}") from error
        shutil.rmtree(self.folder)

    @staticmethod
    def log(folder: Path) -> str:
        return folder.with_name(f"{folder.name}.log").read_text()[-3000:]


@pytest.fixture(scope="module")
def process():
    """One for all commands, because it takes seconds to import everything."""
    line = [sys.executable, "-W", "ignore", "-m", "tests.nightly.killing"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as found:
        yield found
        found.stdin.close()


@pytest.mark.parametrize("action", CHECKS)
def test_a_command_that_was_killed_or_failed_is_repeated(action, process, tmp_path):
    if action == "export" and keras.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow writes the graph")
    machine = type("Machine", (Disturbed,), {"action": action, "root": tmp_path, "process": process})
    whole = machine.command(tmp_path / "whole")
    assert whole["status"] == 0, machine.log(tmp_path / "whole")
    CHECKS[action](tmp_path / "whole", tmp_path / "whole", 0)
    machine.events = whole["events"]
    run_state_machine_as_test(machine, settings=settings(max_examples=16, stateful_step_count=5, **hostile.HYPOTHESIS))
