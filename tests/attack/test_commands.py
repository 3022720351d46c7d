"""The commands under attack: interruption at any moment, damaged files, settings that lead nowhere.

Every case ends with a documented status and one sentence, without a traceback.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn.cli import evaluate, export, score, train, translate
from keras_attn.cli.main import COMMANDS
from keras_attn.translation import Translator
from tests.models import test_golden
from tests.translation.test_scoring import word_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.once, pytest.mark.usefixtures("processes_on_jax")]

ROOT = Path(__file__).parents[2]
TINY = ["units=5", "embedding_size=5", "readout_size=5", "attention_units=3", "decoder_units=5", "level=word"]


# As a terminal does, and without a fork of this process, which may have JAX's threads: Ctrl+C is not ignored. The
# program says when it reads its command line; before that, Python itself is at work.
LAUNCH = """
import argparse, os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
parse, ready = argparse.ArgumentParser.parse_args, int(sys.argv[1])
def parse_args(*received):
    argparse.ArgumentParser.parse_args = parse
    os.write(ready, b".")
    return parse(*received)
argparse.ArgumentParser.parse_args = parse_args
del sys.argv[:2]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def start(*line, **options):
    """Starts `python -m ...`, up to the reading of its command line."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    read, ready = os.pipe()
    command = [sys.executable, "-c", LAUNCH, str(ready), *map(str, line)]
    with open(read, "rb") as begins:
        process = subprocess.Popen(command, env=environment, pass_fds=(ready,), **pipes, **options)
        os.close(ready)
        begins.read(1)
    return process


def ended(process, timeout=240, text=""):
    try:
        out, error = process.communicate(text, timeout=timeout)
    finally:
        process.kill()
    assert "Traceback" not in error, error
    return process.returncode, out, error


def called(main, arguments, capfd):
    """The status of a command in this process, and its sentence."""
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as exit:  # argparse's own
        status = exit.code
    error = capfd.readouterr().err
    assert "Traceback" not in error
    return status, error


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets") / "golden"
    tokenizers = word_tokenizer("s", test_golden.SOURCE), word_tokenizer("t", test_golden.TARGET)
    Translator(test_golden.model_with(test_golden.load()[2]), *tokenizers).save_to_preset(folder)
    return folder


@pytest.fixture
def run(preset, tmp_path):
    """A preset of the test's own, with a whole report."""
    shutil.copytree(preset, tmp_path / "run")
    report = {"recipe": "rnnsearch", "corpus": None, "source": "de", "target": "fr"}
    report["config"] = {"length_penalty": 0.5, "tokenize": "13a", "metric": "bleu"}
    (tmp_path / "run" / "report.json").write_text(json.dumps(report))
    (tmp_path / "text").write_text("s1 s2\ns3\n")
    return tmp_path / "run"


def write_corpus(folder, **lines):
    """60 pairs a split, and the given lines in the place of a side of a split."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    for split, language in itertools.product(("train", "val", "test"), ("de", "fr")):
        text = "".join(" ".join(map(str, rng.integers(0, 6, 5))) + "\n" for _ in range(60))
        (folder / f"{split}.{language}").write_text(lines.get(f"{split}_{language}", text))
    return folder


def training(folder, out, *more):
    options = ["rnnsearch", "--corpus", folder, "--source", "de", "--target", "fr", "--out", out]
    return [*options, "--no-export", "--epochs", "1", "--set", *TINY, "batch_size=16", *more]


# Interruption.

# Seconds after the command line is read; at the third, the backend is being imported.
MOMENTS = [0, 0.5, 1.6, 4.0] if keras.backend.backend() == "torch" else [1.6]
LINES = {
    "translate": ("keras_attn", "translate", "{preset}"),
    "train": ("recipes.train", "rnnsearch", "--out", "{tmp}/run"),
}


@pytest.mark.not_once
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("command", LINES)
def test_ctrl_c_at_any_moment(command, moment, preset, tmp_path):
    program, *arguments = (part.format(preset=preset, tmp=tmp_path) for part in LINES[command])
    process = start(program, *arguments)
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    status, out, error = ended(process)
    assert status in (130, -signal.SIGINT), error  # to a shell both are 130; Python ends by the signal if C code saw it
    assert error.splitlines()[-1].endswith(": interrupted")
    assert not out


# Settings that lead nowhere.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--minutes", "nan"], "--minutes above 0. Received: nan"),
        (["--minutes", "inf"], "--minutes above 0. Received: inf"),
        (["--beam", "0"], "expected a whole number from 1 to 1,000. Received: '0'"),
        (["--beam", "nan"], "expected a whole number from 1 to 1,000. Received: 'nan'"),
        (["--set", "learning_rate=nan"], "learning_rate to be a finite number"),
        (["--set", "label_smoothing=inf"], "label_smoothing to be a finite number"),
        (["--set", "epochs=1e9"], "epochs to be a value of type int"),
        (["--set", "batch_size=0"], "`batch_size` of at least 1"),
        (["--seed", "1.5"], "invalid int value: '1.5'"),
    ],
)
def test_settings_are_refused_before_any_work(arguments, sentence, tmp_path, monkeypatch):
    process = start("recipes.train", "rnnsearch", "--out", tmp_path / "run", *arguments, cwd=tmp_path)
    status, _, error = ended(process)
    assert status == 2
    assert sentence in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rate", ["3e38"])
def test_training_that_diverges_fails(rate, tmp_path):
    """tests/recipes has a run that diverges later, and goes on from its last checkpoint."""
    corpus = write_corpus(tmp_path / "digits")
    status, _, error = ended(start("recipes.train", *training(corpus, tmp_path / "run", f"learning_rate={rate}")))
    assert status == 1
    assert "Training diverged: the loss is nan in epoch 1, batch " in error.splitlines()[-1]
    assert "Nothing was saved." in error
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {"run.json", ".lock"}


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize(("side", "blank"), [("de", "\n" * 60), ("fr", " \t\u3000\n" * 60)])
def test_a_blank_split_is_named(split, side, blank, tmp_path, capfd):
    corpus = write_corpus(tmp_path / "digits", **{f"{split}_{side}": blank})
    status, error = called(train.main, training(corpus, tmp_path / "run"), capfd)
    assert status == 2
    assert split in error.replace("training", "")
    assert not (tmp_path / "run").exists()


def test_a_batch_for_a_billion_takes_little_memory(tmp_path):
    """60 pairs in one batch: 10**9 rows would take hundreds of gigabytes."""
    line = training(write_corpus(tmp_path / "digits"), tmp_path / "run", "batch_size=1000000000")
    status, _, error = ended(start("recipes.train", *line))
    assert status == 0, error
    assert json.loads((tmp_path / "run" / "report.json").read_text())["peak_memory_mb"] < 3000


# Damaged reports.

DAMAGE = {
    "length_penalty": ["much", None, True, -1, float("nan"), float("inf")],
    "tokenize": [5, None, "nosuch"],
    "metric": [[], None, "accuracy"],
    "corpus": [5, []],
    "source": [5, {}],
    "target": [5, True],
    "config": [None, 5, [["length_penalty", 1]]],
}
WHOLE = [b"", b"{", b"null", b"[]", b"5", b'"text"', b"\xff\xfe", b"[" * 100_000, b"{}x", b'{"config": ' * 9999]


def damaged():
    for name, values in DAMAGE.items():
        for value in values:
            yield pytest.param(name, value, id=f"{name}={value!r}")
    for number, content in enumerate(WHOLE):
        yield pytest.param(None, content, id=f"whole-{number}")


@pytest.mark.parametrize(("name", "value"), list(damaged()))
def test_damaged_reports_are_refused_with_a_sentence(name, value, run, capfd):
    path = run / "report.json"
    if name is None:
        path.write_bytes(value)
    else:
        report = json.loads(path.read_text())
        (report if name in report else report["config"])[name] = value
        path.write_text(json.dumps(report))
    text, output = run.parent / "text", run.parent / "output"
    status, error = called(evaluate.main, [run, "--input", text, "--references", text, "--output", output], capfd)
    assert status == 2
    assert "report" in error or value == "nosuch"
    assert error.count("\n") == 1
    if value != "nosuch":  # which only `evaluate` reads
        for main, options in (
            (translate.main, ["--input", text, "--output", output]),
            (score.main, ["--source", text, "--target", text, "--output", output]),
        ):
            status, error = called(main, [run, *options], capfd)
            assert (status, error.count("\n")) == (2, 1)
            assert "report" in error
    assert not output.exists()


# Files and flags.


VALUES = ["--beam=nan", "--length-penalty=inf", "--max-length=-1", "--batch-size=1e9"]


@pytest.mark.parametrize(
    ("command", "flag"),
    [*((command, "--frobnicate") for command in sorted(COMMANDS)), *(("translate", flag) for flag in VALUES)],
)
def test_flags_are_refused_as_subprocesses(command, flag, tmp_path):
    status, out, error = ended(start("keras_attn", command, tmp_path, flag))
    assert status == 2
    assert not out
    assert error.startswith(f"keras-attn {command}: ")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\n\n", b"\xff\n", b"\x00\n", b"s1", b"s1\r\ns2\r\n", b" \n\t\n"])
@pytest.mark.parametrize("command", ["translate", "score", "evaluate"])
def test_odd_files_are_read_or_refused(command, content, run, capfd):
    text, output = run.parent / "text", run.parent / "output"
    text.write_bytes(content)
    options = {
        "translate": (translate.main, ["--input", text]),
        "score": (score.main, ["--source", text, "--target", text]),
        "evaluate": (evaluate.main, ["--input", text, "--references", text]),
    }
    main, files = options[command]
    status, error = called(main, [run, *files, "--output", output], capfd)
    assert status in (0, 2)
    assert output.exists() == (status == 0)
    if status == 0 and command != "evaluate":
        lines = content.decode(errors="replace").split("\n")
        assert output.read_text().count("\n") == len(lines) - (not lines[-1])
    elif status == 2:
        assert error.count("\n") == 1


@pytest.mark.parametrize("where", ["nosuch", "text", "run/model.keras", ".", "run/source_tokenizer", "\x00", "a" * 300])
@pytest.mark.parametrize("main", [translate.main, evaluate.main, score.main, export.main], ids=lambda m: m.__module__)
def test_what_is_no_run_is_refused(main, where, run, capfd):
    text = run.parent / "text"
    options = {
        evaluate.main: ["--input", text, "--references", text],
        score.main: ["--source", text, "--target", text],
        export.main: [run.parent / "exported"],
        translate.main: ["--input", text],
    }[main]
    if main is evaluate.main and where == "text":
        return  # translations that somebody made, which it scores
    status, error = called(main, [f"{run.parent}/{where}", *options], capfd)
    assert status in (1, 2)
    assert error.count("\n") == 1
    assert not (run.parent / "exported").exists()
