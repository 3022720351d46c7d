"""The program `keras-attn`: its commands, help without Keras, the backend that it chooses, and how it ends."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keras_attn import requirements
from keras_attn.cli import command
from keras_attn.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("switches", [[], ["-OO"]], ids=["", "without docstrings"])
def test_help_and_refusals_do_not_wait_for_keras(switches):
    code = """
import sys
from keras_attn.cli.main import COMMANDS, main
for arguments in ([], *([name] for name in COMMANDS)):
    for last in ("--help", "--frobnicate"):
        try:
            main(arguments + [last])
        except SystemExit as ended:
            print("\\nended", *arguments, ended.code)
print([name for name in ("keras", "tensorflow", "torch", "jax", "sacrebleu", "matplotlib") if name in sys.modules])
"""
    line = [sys.executable, *switches, "-c", code]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    programs = [["keras-attn", *name] for name in ([], *([name] for name in COMMANDS))]
    for program in programs:
        assert f"usage: {' '.join(program)} [-h]" in done.stdout
    for name, summary in COMMANDS.items():
        assert re.search(rf"^ +{name}\s+{re.escape(summary)}$", done.stdout, flags=re.M), "the list of all commands"
    ends = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("ended")]
    assert ends == [[*program[1:], status] for program in programs for status in "02"]
    refusals = done.stderr.splitlines()
    assert all(line.startswith(" ".join(program) + ": ") for line, program in zip(refusals, programs, strict=True))


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_and_flags(capsys):
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for words, expected in (
        (["keras-attn", "tra"], {"train", "translate", "translate-corpus"}),
        (["keras-attn", "translate", "--be"], {"--beam"}),
        (["keras-attn", "train", "--min"], {"--minutes"}),
        (["keras-attn", "evaluate", "--metric", ""], {"bleu", "wer"}),
    ):
        typed = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; "
        last, before = words[-1], words[-2]
        call = f'{typed}_shtab_keras_attn keras-attn "{last}" "{before}"; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", f"{script}\n{call}"], capture_output=True, text=True, timeout=60)
        assert {word.strip() for word in done.stdout.split()} == expected, done.stderr


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
def test_errors_are_one_line_and_a_status(error, status, sentence, capsys):
    def fail(*arguments):
        raise error

    for prepare in (fail, lambda: None):  # while Keras is imported, and at work
        assert command.run(fail, command.Parser("program"), [], prepare=prepare) == status
        assert capsys.readouterr().err == f"program: {sentence}\n"


@pytest.mark.parametrize(
    ("absent", "named", "expected"),
    [
        ("tensorflow jax", None, "torch"),
        ("jax torch", None, None),  # Keras' own default
        ("tensorflow", "tensorflow", 'Expected tensorflow to be installed: pip install "keras_attn[tensorflow]".'),
        ("", "pytorch", "Expected KERAS_BACKEND to be one of tensorflow, jax, torch. Received: 'pytorch'"),
        ("tensorflow jax torch", None, 'Expected a backend of Keras: pip install "keras_attn[tensorflow]", '),
    ],
)
def test_a_command_chooses_an_installed_backend(absent, named, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(requirements, "is_installed", lambda name: name not in absent.split())
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("KERAS_BACKEND", named or "")
    if named is None:
        monkeypatch.delenv("KERAS_BACKEND")
    try:
        command.choose_backend()
        found = os.environ.get("KERAS_BACKEND")
    except (ImportError, ValueError) as error:
        found = str(error)[: len(expected)]
    assert found == expected
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs the signals of POSIX")
def test_an_interrupt_while_keras_is_imported(tmp_path):
    """Keras is a module that says that its import has begun, and then takes its time.

    A shell starts background processes, such as the suites of .ci/run, with interrupts ignored.
    """
    begun = tmp_path / "begun"
    (tmp_path / "keras.py").write_text(f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(1)\n")
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
