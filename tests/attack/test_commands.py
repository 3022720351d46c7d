"""The commands under attack: interruption at any moment, damaged files, settings that lead nowhere.

Every case ends with a documented status and one sentence, without a traceback.
"""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import pytest

from keras_attn.cli import evaluate, export, score, train, translate
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


# Files that lead nowhere.


@pytest.mark.parametrize(("split", "side"), [("train", "de"), ("val", "fr"), ("test", "de")])
def test_a_blank_split_is_named(split, side, tmp_path, capfd):
    for name in itertools.product(("train", "val", "test"), ("de", "fr")):
        lines = " \t\u3000\n" if name == (split, side) else "1 2 3\n"
        (tmp_path / ".".join(name)).write_text(lines * 60)
    line = ["rnnsearch", "--corpus", tmp_path, "--source", "de", "--target", "fr", "--out", tmp_path / "run"]
    status, error = called(train.main, [*line, "--no-export", "--epochs", "1", "--set", *TINY, "batch_size=16"], capfd)
    assert status == 2
    assert split in error.replace("training", "")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"", b"\n\n\n", b"\xff\n", b"\x00\n", b"s1", b"s1\r\ns2\r\n"])
@pytest.mark.parametrize("main", [translate.main, score.main], ids=["translate", "score"])
def test_odd_files_have_their_lines(main, content, preset, tmp_path, capfd):
    text, output = tmp_path / "text", tmp_path / "output"
    text.write_bytes(content)
    given = ["--input", text] if main is translate.main else ["--source", text, "--target", text]
    status, error = called(main, [preset, *given, "--output", output], capfd)
    assert status == 0, error
    lines = content.decode(errors="replace").split("\n")
    assert output.read_text().count("\n") == len(lines) - (not lines[-1])


@pytest.mark.parametrize("where", ["nosuch", "text", "preset/model.keras", ".", "\x00", "a" * 300])
@pytest.mark.parametrize("main", [translate.main, evaluate.main, export.main], ids=lambda main: main.__module__)
def test_what_is_no_run_is_refused(main, where, preset, tmp_path, capfd):
    shutil.copytree(preset, tmp_path / "preset")
    (tmp_path / "text").write_text("s1 s2\ns3\n")
    files = [tmp_path / "exported"] if main is export.main else ["--input", tmp_path / "text"]
    files += ["--references", tmp_path / "text"] if main is evaluate.main else []
    status, error = called(main, [f"{tmp_path}/{where}", *files], capfd)
    if main is evaluate.main and where == "text":  # translations that somebody made, which it scores
        assert status == 0
        return
    assert status in (1, 2)
    assert error.count("\n") == 1
    assert not (tmp_path / "exported").exists()
