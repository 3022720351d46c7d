"""The program `keras-attn`: its commands, help without Keras, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keras_attn.cli import command
from keras_attn.cli.main import COMMANDS, main

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)])
def test_help_and_refusals_do_not_wait_for_keras(arguments):
    code = f"""
import sys
from keras_attn.cli.main import main
for last in ("--help", "--frobnicate"):
    try:
        main({arguments!r} + [last])
    except SystemExit as ended:
        print(ended.code)
assert not [name for name in ("keras", "tensorflow", "torch", "jax", "sacrebleu", "matplotlib") if name in sys.modules]
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    program = " ".join(["keras-attn", *arguments])
    assert done.stdout.startswith(f"usage: {program} [-h]")
    assert done.stdout.split()[-1] == "2"
    assert done.stderr.startswith(f"{program}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_do_without_docstrings(name):
    done = subprocess.run(
        [sys.executable, "-OO", "-m", "keras_attn", name, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.startswith(f"usage: keras-attn {name}"), done.stderr


def test_the_commands_are_listed_and_an_unknown_one_is_refused(capsys):
    for arguments, status in ((["--help"], 0), (["--version"], 0), (["trnslate"], 2), ([], 2)):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == status
    out, err = capsys.readouterr()
    for name, summary in COMMANDS.items():
        assert name in out
        assert summary in out
    assert "invalid choice: 'trnslate'" in err
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (ValueError("two\n lines"), 2, "two lines"),
        (FileNotFoundError("no file"), 2, "no file"),
        (ModuleNotFoundError("not installed"), 2, "not installed"),
        (MemoryError(), 1, "there is not enough memory for this."),
        (RuntimeError("the device has gone"), 1, "the device has gone"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
@pytest.mark.parametrize("where", ["imports", "work"])
def test_errors_are_a_sentence_and_a_status(error, status, sentence, where, capsys):
    def fail(*arguments):
        raise error

    prepare = fail if where == "imports" else lambda: None
    assert command.run(fail, command.Parser("program"), [], prepare=prepare) == status
    assert capsys.readouterr().err == f"program: {sentence}\n"


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals as on POSIX")
def test_an_interrupt_while_keras_is_imported_ends_with_a_sentence(tmp_path):
    """Keras is a module that says that its import has begun, and then takes its time.

    A shell starts what it runs in the background, such as the suites of .ci/run, with interrupts ignored.
    """
    begun = tmp_path / "begun"
    (tmp_path / "keras.py").write_text(f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(2)\n")
    command = [sys.executable, "-m", "keras_attn", "translate", str(tmp_path)]
    interruptible = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    line = [sys.executable, "-c", interruptible, *command]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    with subprocess.Popen(line, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        while not begun.exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=60)[1]
    assert error == "keras-attn translate: interrupted\n"
    assert process.returncode == 130
