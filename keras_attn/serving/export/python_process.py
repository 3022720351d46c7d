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
    package_root = str(Path(__file__).resolve().parents[3])
    environment = {
        "KERAS_BACKEND": "tensorflow",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH")])),
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    last = lines[-1] if lines else "no output"
    name, _, sentence = last.partition(": ")
    if done.returncode == REFUSED and name in REFUSALS:
        raise REFUSALS[name](sentence)
    if done.returncode:
        raise RuntimeError(f"Expected {' '.join(arguments[:2])} to succeed. It ended with {done.returncode}: {last}")
    return last
