"""Python processes with TensorFlow and without accelerators, for an export: JSON in, one line out."""

import json
import os
import subprocess
import sys
from pathlib import Path

REFUSED = 2  # exit status of `keras_attn.serving.export`; the last line on stderr is then "NameOfTheError: sentence"
REFUSALS = {error.__name__: error for error in (ValueError, FileExistsError, FileNotFoundError, OSError)}


def run_python(arguments: list[str], request) -> str:
    """Runs Python and returns the last line that it prints.

    Args:
        arguments: Those of the interpreter: a script or `-m` and a module, and theirs.
        request: Written to its stdin as JSON.

    Raises:
        ValueError, FileExistsError, FileNotFoundError, OSError: as raised in the process, if it is
            `keras_attn.serving.export`.
        RuntimeError: if it fails otherwise.
    """
    with PythonProcess(arguments) as process:
        return process.answer(request)


class PythonProcess:
    """A process that imports what it needs while its request is made; a context manager, at whose end it is dead.

    Args:
        arguments: Those of the interpreter.
    """

    def __init__(self, arguments: list[str]):
        package_root = str(Path(__file__).resolve().parents[3])
        environment = {
            "KERAS_BACKEND": "tensorflow",
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "PYTHONPATH": os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")])),
        }
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, *arguments]
        self._arguments = arguments
        self._process = subprocess.Popen(command, **pipes, text=True, env=os.environ | environment)

    def __enter__(self) -> "PythonProcess":
        return self

    def __exit__(self, *error) -> None:
        self._process.kill()
        self._process.communicate()

    def answer(self, request) -> str:
        """Writes the request, once; returns and raises what `run_python` does."""
        stdout, stderr = self._process.communicate(json.dumps(request))
        code = self._process.returncode
        lines = (stderr if code else stdout).strip().splitlines()
        last = lines[-1] if lines else "no output"
        name, _, sentence = last.partition(": ")
        if code == REFUSED and name in REFUSALS:
            raise REFUSALS[name](sentence)
        if code:
            raise RuntimeError(f"Expected {' '.join(self._arguments[:2])} to succeed. It ended with {code}: {last}")
        return last
