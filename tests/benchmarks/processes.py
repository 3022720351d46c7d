"""Measures a case in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
