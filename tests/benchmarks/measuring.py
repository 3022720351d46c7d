"""What benchmarks share: options, corpus and translator, processes, figures with their spread, peers' environments."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attn.text import read_parallel

ROOT = Path(__file__).parents[2]
CORPUS = "multi30k-tok"


def parser_of(doc: str) -> argparse.ArgumentParser:
    """The parser of a benchmark on Multi30k."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    data = Path(os.environ.get("KERAS_ATTN_DATA", "."))
    parser.add_argument("--data", type=Path, default=data, help="folder with data/ (default: $KERAS_ATTN_DATA)")
    return parser


def search_parser(doc: str, batch_size: int) -> argparse.ArgumentParser:
    """The same for one whose translator is that of `translator_of`."""
    parser = parser_of(doc)
    parser.add_argument("--preset", required=True, type=Path)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=batch_size)
    parser.add_argument("--int8", action="store_true", help="with keras_attn.quantize")
    parser.add_argument("--shortlist", action="store_true", help="with a keras_attn.Shortlist")
    return parser


def sentences(data: Path, split: str) -> tuple[list[str], list[str]]:
    """German and English of Multi30k."""
    return read_parallel(data / "data" / CORPUS, split, "de", "en")


def translator_of(arguments: argparse.Namespace):
    """The translator of --preset, in int8 and with a shortlist of the training text if they are asked for."""
    from keras_attn import Shortlist, Translator, quantize, with_shortlist

    translator = Translator.from_preset(arguments.preset)
    if arguments.int8:
        translator = quantize(translator)
    if arguments.shortlist:
        translator = with_shortlist(translator, Shortlist.learn(translator, *sentences(arguments.data, "train")))
    return translator


def called(*line, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess:
    """A program that has ended, with what it printed.

    Args:
        *line: Its command line.
        cwd: The folder that it runs in.
        **environment: Variables of the environment that are changed.

    Raises:
        RuntimeError: if it fails.
    """
    call, changed = list(map(str, line)), os.environ | environment
    ended = subprocess.run(call, capture_output=True, text=True, cwd=cwd, env=changed)
    if ended.returncode:
        raise RuntimeError(f"Expected {Path(call[0]).name} to succeed. It ended: {ended.stderr.strip()[-400:]}")
    return ended


def run_process(*line, python=sys.executable, **environment: str) -> dict:
    """The last line that a Python process prints, as JSON; `called` has the arguments."""
    return json.loads(called(python, *line, **environment).stdout.splitlines()[-1])


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
            called(*line)
        complete.touch()
    return programs
