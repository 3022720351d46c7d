"""The parts of `tests.benchmarks.pronunciation_peers`, with programs that answer from a table."""

import json
import shutil
import sys

import pytest

from recipes.pages import studies
from recipes.publish import PRESETS
from tests.benchmarks import pronunciation_peers as peers
from tests.benchmarks import pronunciation_systems as systems

pytestmark = pytest.mark.once

# "phonetisaurus" and "yoyodyne" look words up in their training text; other words have one phone.
LOOK_UP = f"""#!{sys.executable}
import json, sys
from pathlib import Path

values = dict(zip(sys.argv, sys.argv[1:]))
"""
PHONETISAURUS = """
if sys.argv[1] == "train":
    Path(values["--model"]).write_text(Path(sys.argv[-1]).read_text())
else:
    known = dict(line.split("\\t") for line in Path(values["--model"]).read_text().splitlines())
    for word in sys.argv[4:]:
        print(word, known.get(word, "B"))
"""
YOYODYNE = """
settings = json.loads(Path(values["--config"]).read_text())
if sys.argv[1] == "fit":
    Path(settings["data"]["model_dir"]).mkdir()
    for name in ("first", "best"):
        Path(settings["data"]["model_dir"], f"{name}.ckpt").touch()
else:
    assert settings["data"].keys().isdisjoint(["train", "val"]) and settings["data"]["target_col"] == 0
    train = Path(settings["data"]["predict"]).with_name("train.tsv")
    known = dict(line.split("\\t") for line in train.read_text().splitlines())
    words = Path(settings["data"]["predict"]).read_text().splitlines()
    Path(settings["prediction"]["path"]).write_text("".join(known.get(word, "B") + "\\n" for word in words))
"""
LINES = {  # the second word of the test has two right answers
    "train": ("a b\na c\n", "AH B\nAH K\n"),
    "val": ("a b\n", "AH B\n"),
    "test": ("a c\nb b\nb b\nc c\n", "AH K\nB B\nB\nK\n"),
}


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    for split, sides in LINES.items():
        for name, text in zip(("letters", "phones"), sides, strict=True):
            (folder / f"{split}.{name}").write_text(text)
    return folder


@pytest.fixture
def work(tmp_path):
    for system, program in (("phonetisaurus", PHONETISAURUS), ("yoyodyne", YOYODYNE)):
        programs = tmp_path / "work" / "environments" / system / "bin"
        programs.mkdir(parents=True)
        (programs / system).write_text(LOOK_UP + program)
        (programs / system).chmod(0o755)
        (programs.parent / "complete").touch()
    return tmp_path / "work"


def test_peers_are_trained_scored_and_kept(work, corpus, monkeypatch, capfd):
    line = [str(work), "--corpus", str(corpus), "--systems", "phonetisaurus", "yoyodyne", "--minutes", "2"]
    assert peers.main(line) == 0
    report = json.loads((work / "report-small" / "report.json").read_text())
    assert [one["name"] for one in report["systems"]] == ["phonetisaurus", "yoyodyne"]
    assert report["test_words"] == 3
    for one in report["systems"]:
        assert one["wer"]["score"] == 33.33, "of three words c c is wrong, and b b has the second of its answers"
        assert one["words_per_second"] > 0
        assert one["train_seconds"] >= 0
        assert "seconds" not in one
    command = "python -m tests.benchmarks.pronunciation_peers WORK --corpus small"
    assert report["command"] == f"{command} --systems phonetisaurus yoyodyne --minutes 2"
    settings = json.loads((work / "yoyodyne" / "train.yaml").read_text())
    assert settings["trainer"]["max_time"] == "00:00:02:00"
    monkeypatch.setattr(peers, "SYSTEMS", dict.fromkeys(peers.SYSTEMS))
    old = {"wer": {"score": 20.0}, "per": {"score": 5.0}, "beam_size": 5, "corpus": "small"}
    old |= {"parameters": 7, "train_seconds": 60.0, "command": "python -m x"}
    (work / "old.json").write_text(json.dumps(old))
    assert peers.main([*line, "--reports", str(work / "old.json")]) == 0, "nothing is measured again"
    *same, added = json.loads((work / "report-small" / "report.json").read_text())["systems"]
    assert same == report["systems"]
    assert (added["name"], added["wer"], "words_per_second" in added) == ("old", old["wer"], False)
    assert peers.main([*line[:-1], "3"]) == 2, "what is kept had another limit"
    sentence = (
        "Expected yoyodyne with {'minutes': 2.0}, as small-yoyodyne.json has it in WORK. Received: {'minutes': 3.0}"
    )
    assert sentence in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--systems", "g2p-en"], "g2p-en with cmudict, whose phones it gives. Received: small"),
        (["--runs", "{tmp}/nowhere"], "nowhere"),
        (["--runs", "{tmp}/other"], "runs of recipes.train on small. Received: other, of multi30k"),
        (["--runs", "{tmp}/cut"], "runs of recipes.train on small. Received: cut, of small"),
        (
            ["--reports", "{tmp}/other/report.json"],
            "runs of recipes.train on small. Received: report.json, of multi30k",
        ),
        (["--reports", "{tmp}/nowhere.json"], "nowhere.json"),
        (["--runs", "{tmp}/run", "{tmp}/again/run"], "of different names. Received: phonetisaurus, run, run"),
    ],
)
def test_refuses_with_a_sentence_before_any_work(work, corpus, tmp_path, monkeypatch, capfd, arguments, sentence):
    about = {
        "corpus": "small",
        "wer": {},
        "per": {},
        "beam_size": 5,
        "parameters": 3,
        "train_seconds": 1.0,
        "command": "python -m the.run",
    }
    for name, report in {
        "run": about,
        "again/run": about,
        "other": about | {"corpus": "multi30k"},
        "cut": {"corpus": "small"},
    }.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "report.json").write_text(json.dumps(report))
        (tmp_path / name / "translator.json").write_text("{}")
    monkeypatch.setattr(peers, "SYSTEMS", dict.fromkeys(peers.SYSTEMS))  # whose call would be an error
    line = [str(work), "--corpus", str(corpus), "--systems", "phonetisaurus"]
    assert peers.main([*line, *(one.format(tmp=tmp_path) for one in arguments)]) == 2
    assert sentence in capfd.readouterr().err
    assert not list(work.glob("*.json"))


def test_a_training_that_fails_is_a_sentence(work, corpus, capfd):
    program = work / "environments" / "yoyodyne" / "bin" / "yoyodyne"
    program.write_text("#!/bin/sh\nexit 3\n")
    assert peers.main([str(work), "--corpus", str(corpus), "--systems", "yoyodyne"]) == 1
    assert "Expected yoyodyne to succeed. It ended with 3." in capfd.readouterr().err


def test_the_page_has_each_system_the_best_first():
    def row(name, wer, **more):
        signature = "items:3|answers:4|nearest"
        rates = {key: {"score": score, "signature": signature} for key, score in (("wer", wer), ("per", wer / 4))}
        return {"name": name, "about": "letters", "words_per_second": 1234.5, **rates, **more}

    report = {"study": "pronunciation_peers", "corpus": "cmudict", "source": "letters", "target": "phones"}
    report |= {"command": "the command", "test_words": 12605}
    report["systems"] = [row("g2p-en", 30.0), row("run", 20.0, command="python -m x", train_seconds=90.0)]
    page = studies.section("x", report)
    assert (
        "| `python -m x` | letters | 20.00 | 5.00 | 1,234 | 1.5 |\n| g2p-en | letters | 30.00 | 7.50 | 1,234 |  |"
        in page
    )


def test_a_program_that_fails_is_a_sentence(work, corpus, capfd):
    program = work / "environments" / "phonetisaurus" / "bin" / "phonetisaurus"
    program.write_text("#!/bin/sh\necho no memory >&2; exit 1\n")
    assert peers.main([str(work), "--corpus", str(corpus), "--systems", "phonetisaurus"]) == 1
    assert "Expected phonetisaurus to answer. It ended: no memory" in capfd.readouterr().err


def test_a_run_of_this_project_answers_in_a_process_of_its_own(tmp_path):
    run = tmp_path / "run"
    shutil.copytree(PRESETS / "g2p_fre", run)
    report = json.loads((run / "report.json").read_text())
    (run / "report.json").write_text(json.dumps(report | {"train_seconds": 1.5}))
    found = systems.of_run(tmp_path, ["r é u s s i t e", "o i s e a u"], run)
    assert found["phones"] == ["ʁ e y s i t", "w a z o"]
    assert found["seconds"] > 0
    assert (found["train_seconds"], found["about"]) == (1.5, "beam of 5")
