"""Code run in a process where some packages cannot be imported, as if they were not installed."""

import subprocess
import sys
from pathlib import Path


def run_without(packages: tuple[str, ...], code: str) -> str:
    """Runs code in such a process; returns what it prints."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"  # None stands for "not to be found"
    line, root = [sys.executable, "-c", blocked + code], Path(__file__).parents[2]
    done = subprocess.run(line, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
