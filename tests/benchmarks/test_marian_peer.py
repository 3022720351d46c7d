"""The parts of `tests.benchmarks.marian_peer`, with a program that answers what Marian's recordings have."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from keras_attn import Translation
from recipes.pages import results
from tests import fixtures
from tests.benchmarks import marian_peer, marian_program
from tests.benchmarks.marian_program import Hypothesis, Marian, best_hypotheses, merged

pytestmark = pytest.mark.once

ARCHIVE = Path(fixtures.__file__).with_name("marian.zip")
# It "trains" by writing checkpoints until it is asked to end, and answers from a recording.
PROGRAM = f"""#!{sys.executable}
import json, shutil, signal, sys, time
from pathlib import Path

command, values = sys.argv[1], dict(zip(sys.argv[1:], sys.argv[2:]))
model = Path(values["-m"])
work = model.parent
print("as asked", *sys.argv[2:], file=sys.stderr)
if command == "train":
    if "--fail" in sys.argv:
        sys.exit("no such option")
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    updates = 0
    checkpoint = Path(f"{{model}}.progress.yml")
    if checkpoint.exists():
        updates = int(checkpoint.read_text().split("batches: ")[1].split()[0])
    while not asked and not (updates >= 3 and "--end" in sys.argv):
        time.sleep(0.05)
        updates += 1
        shutil.copyfile(work / "trained.npz", model)
        lines = "epochs: 2", f"batches: {{updates}}", "batches-epoch: 7", f"labels-total: {{100 * updates}}"
        checkpoint.write_text("\\n".join(lines))
elif command == "score":
    print(*json.loads((work / "recorded.json").read_text())["scores"], sep="\\n")
else:
    recorded = json.loads((work / "recorded.json").read_text())["greedy" if values["-b"] == "1" else "beam"]
    for number, n_best in enumerate(recorded):
        for text, score in n_best:
            print(f"{{number}} ||| {{text}} ||| F0= {{score}} ||| {{score}}")
    print("Total time: 0.50000s wall", file=sys.stderr)
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A folder with the program and what it answers."""
    monkeypatch.setattr(marian_program, "POLL", 0.05)
    folder = tmp_path / "work"
    program = folder / "venv" / "bin" / "pymarian"
    program.parent.mkdir(parents=True)
    program.write_text(PROGRAM)
    program.chmod(0o755)
    with zipfile.ZipFile(ARCHIVE) as archive:
        recorded = json.loads(archive.read("recorded.json"))
        (folder / "trained.npz").write_bytes(archive.read("pieces.npz"))
        for name in ("source.spm", "target.spm"):
            (folder / name).write_bytes(archive.read(name))
    (folder / "recorded.json").write_text(json.dumps(recorded["models"]["pieces"]))
    for split in ("train", "val", "test"):
        for language, side in (("de", "sources"), ("en", "targets")):
            text = "".join(f"{line}\n" for line in recorded[side])
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder


def train(work, minutes, options="--type s2s"):
    texts = [work.parent / "train.de", work.parent / "train.en"]
    return Marian(work, sys.executable, 1).train(options, 48, minutes, texts, texts)


def test_the_best_hypothesis_of_each_sentence():
    lines = ["0 ||| a ||| b ||| F0= -1 ||| -0.5", "0 ||| c ||| F0= -2 ||| -0.7", "1 |||  ||| F0= -3 ||| -3"]
    assert best_hypotheses(lines, 2) == [Hypothesis("a ||| b", -0.5), Hypothesis("", -3.0)]


def test_a_later_option_replaces_an_earlier_one():
    assert merged("--skip -w 9 --a-b 1 -2 --c x", "", "--a-b 3 -w 8 --d 'y z'") == "--skip -w 8 --a-b 3 --c x --d 'y z'"


def test_translations_are_counted_by_how_they_differ():
    scores = {"a": -1.00002, "b": -1, "c": -1, "d": -1, "e": -1}
    found = [Translation(text, (text, "</s>"), score=score, source_tokens=("</s>",)) for text, score in scores.items()]
    found[4] = dataclasses.replace(found[4], tokens=("e", "e", "</s>"))
    marians = (("a", -1), ("x", -1.00005), ("y", -1.1), ("z", -0.9), ("e e e", -0.5))
    counts = marian_peer.compare("12345", found, [Hypothesis(*one) for one in marians])
    assert [counts[kind] for kind in marian_peer.KINDS] == [1, 1, 1, 1, 1]
    assert counts["largest_difference"] == pytest.approx(2e-5)
    shown = [(other["kind"], other["source"], other["marian"], other["here"]) for other in counts["others"]]
    expected = [
        ("worse", "4", "z", "d"),
        ("ties", "2", "x", "b"),
        ("better", "3", "y", "c"),
        ("cut", "5", "e e e", "e"),
    ]
    assert shown == expected


def test_training_ends_in_time_and_continues(work):
    first = train(work, 0.04)
    assert (first["epochs"], first["updates"] > 2, 2 < first["train_seconds"] < 9) == (2, True, True)
    assert first["target_tokens_per_second"] > 0
    assert train(work, 0.04) == first  # it has had its time
    assert "--no-restore-corpus" not in (work / "train.log").read_text()
    longer = train(work, 0.03 + first["train_seconds"] / 60)
    assert "--no-restore-corpus" in (work / "train.log").read_text()
    assert longer["updates"] > first["updates"] + 2
    assert longer["train_seconds"] > first["train_seconds"] + 0.4
    with pytest.raises(ValueError, match=r"Expected the options of the model in .*: --type s2s"):
        train(work, 9, "--type amun")


def test_training_that_ends_by_itself_is_not_continued(work):
    figures = train(work, 9, "--end")
    assert figures["updates"] == 3
    assert train(work, 9, "--end") == figures


def test_a_failed_training_is_quoted(work):
    with pytest.raises(RuntimeError, match=r"train -m .*--fail.* failed:\n(.*\n)*no such option"):
        train(work, 9, "--fail")
    assert json.loads((work / "training.json").read_text())["seconds"] == 0


def test_the_best_model_of_the_validation_is_asked(work):
    marian = Marian(work, sys.executable, 1)
    assert marian.model.name == "model.npz"
    (work / "model.npz.best-bleu.npz").touch()
    assert marian.model.name == "model.npz.best-bleu.npz"


def command(work, *options):
    corpus = ["--corpus", str(work.parent), "--source", "de", "--target", "en"]
    sizes = ["--vocabulary-size", "48", "--lines", "8", "--normalize", "0", "--threads", "1", "--minutes", "0.04"]
    return [str(work), *corpus, *sizes, *options]


def test_a_report_and_its_place_on_the_page(work, tmp_path, monkeypatch):
    assert marian_peer.main(command(work, "--preset", "plain", "--marian", "--skip --dim-rnn 9")) == 0
    report = json.loads((work / "report.json").read_text())
    assert report["largest_difference"] < 1e-4
    beam = report["searches"]["beam"]
    assert sum(beam[kind] for kind in marian_peer.KINDS) == 8 == report["test_sentences"]
    assert beam["equal"] >= 6
    assert beam["worse"] == report["searches"]["greedy"]["worse"] == 0
    assert beam["largest_difference"] < 1e-4
    assert beam["sentences_per_second"]["marian"] == 16.0
    assert report["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    expected = f"{marian_program.PRESETS['plain'].replace('--dim-rnn 320', '--dim-rnn 9')} --skip --seed 1"
    assert report["options"] == expected
    assert "--vocabulary-size 48 --lines 8 --normalize 0" in report["command"]
    assert str(tmp_path) not in json.dumps(report)
    asked = (work / "train.log").read_text()
    assert "--cpu-threads 1 --dim-vocabs 48 48" in asked
    assert f"{expected} --overwrite" in asked

    monkeypatch.setattr(results, "FOLDER", tmp_path / "recipes")
    (tmp_path / "recipes").mkdir()
    assert results.main([str(work)]) == 0
    page = (tmp_path / "recipes" / "README.md").read_text()
    name = f"marian-{tmp_path.name}-de-en"
    assert f"| [{name}](reports/{name}.json) | 0.0 M | {report['bleu']['score']:.2f} |" in page
    assert f"| beam 5 | {beam['equal']} | {beam['ties']} | {beam['better']} | {beam['cut']} | 0 |" in page
    assert "Marian 1.12.42" in page


@pytest.mark.slow
def test_marian_ends_with_the_command(work):
    """Also if the command is terminated; a second command in the folder is refused meanwhile."""
    call = [sys.executable, "-m", "tests.benchmarks.marian_peer", *command(work, "--minutes", "9")]
    process = subprocess.Popen(call, cwd=Path(__file__).parents[2])
    checkpoint, last = work / "model.npz.progress.yml", time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < last:
        time.sleep(0.05)
    assert marian_peer.main(command(work)) == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    updates = checkpoint.read_text()
    time.sleep(0.3)
    assert checkpoint.read_text() == updates
    state = json.loads((work / "training.json").read_text())
    assert state["seconds"] > 0
    assert not state["ended"]
