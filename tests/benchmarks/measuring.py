"""A case in a process of its own, a figure with its spread, and a peer in an environment of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]


def run_process(*line: str, **environment: str) -> dict:
    """The last line that a Python process prints, as JSON.

    Args:
        *line: Its command line.
        **environment: Variables of the environment that are changed.

    Raises:
        RuntimeError: if it fails.
    """
    changed = os.environ | environment
    ended = subprocess.run([sys.executable, *line], capture_output=True, text=True, cwd=ROOT, env=changed)
    if ended.returncode:
        raise RuntimeError(f"Expected a case to be measured. Its process ended: {ended.stderr.strip()[-400:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def timed(call: Callable) -> tuple[float, Any]:
    """The seconds that a call takes, and its result."""
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def with_spread(name: str, values: Sequence[float], digits: int = 1) -> dict:
    """NAME, the median of the values, and NAME_spread, the 10th and the 90th percentile."""
    low, middle, high = (round(float(value), digits or None) for value in np.percentile(values, (10, 50, 90)))
    return {name: middle, f"{name}_spread": [low, high]}


def installed(folder: Path, *packages: str, python: str = sys.executable) -> Path:
    """The folder of programs of a virtual environment with these packages, which is made on first use.

    Args:
        folder: The environment.
        *packages: As for pip, installed one after the other: torch first, since it chooses the build.
        python: The interpreter.

    Raises:
        RuntimeError: if it cannot be made, or a package cannot be installed.
    """
    programs, complete = folder / "bin", folder / "complete"
    if not complete.exists():
        pip = programs / "python", "-m", "pip", "install", "-q"
        for line in (python, "-m", "venv", folder), *((*pip, package) for package in packages):
            ended = subprocess.run(line, stderr=subprocess.PIPE, text=True)
            if ended.returncode:
                said = ended.stderr.strip()[-400:]
                raise RuntimeError(f"Expected {', '.join(packages)} to be installed in {folder}. pip ended: {said}")
        complete.touch()
    return programs
