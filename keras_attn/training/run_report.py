"""Reads the report and the test translations of a run; and backend, versions and machine, for reports."""

import importlib.metadata
import itertools
import json
import math
import os
import platform
from pathlib import Path
from typing import Any

# The settings that commands read, and what each may be.
_SETTINGS = {
    "length_penalty": lambda value: type(value) in (int, float) and 0 <= value < math.inf,
    "metric": lambda value: value in ("bleu", "wer"),
    "tokenize": lambda value: isinstance(value, str),
}
SENTENCES = 64  # of the run's test split, from which warm-up records are made


def _is_origin(value) -> bool:
    """Whether a value is what a training with --from writes of the preset."""
    if not isinstance(value, dict):
        return value is None
    names = isinstance(value.get("name"), str) and isinstance(value.get("digest"), str)
    return names and isinstance(value.get("corpus"), str | None)


def read_report(run: Path) -> dict:
    """Returns the run's `report.json`; for a preset without one, the same keys with no corpus and an empty config.

    Raises:
        ValueError: If the file is truncated or changed.
    """
    path = run / "report.json"
    report = {"corpus": None, "source": None, "target": None, "config": {}}
    if not path.is_file():
        return report
    try:
        report |= dict(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ValueError(f"Expected {str(path)!r} to be a run's report. It is truncated or changed.") from None
    config = report["config"] if isinstance(report["config"], dict) else {}
    for name, value, is_valid in (
        ("config", report["config"], isinstance(report["config"], dict)),
        *((name, report[name], isinstance(report[name], str | None)) for name in ("corpus", "source", "target")),
        ("from_preset", report.get("from_preset"), _is_origin(report.get("from_preset"))),
        ("tags", report.get("tags"), report.get("tags") in (None, "target", "corpus")),
        *((name, config[name], check(config[name])) for name, check in _SETTINGS.items() if name in config),
    ):
        if not is_valid:
            raise ValueError(f"Expected {str(path)!r} to be a run's report. Its {name!r} is changed: {value!r}")
    return report


def length_penalty(run: Path, chosen: float | None) -> float:
    """Returns the chosen length penalty; if None, the one in the run's report, else 1."""
    return read_report(run)["config"].get("length_penalty", 1.0) if chosen is None else chosen


def export_arguments(run: Path) -> dict:
    """Returns `report` and `sentences` for an export: the run's report and some of its test sentences, if there are."""
    report, path = read_report(run), run / "translations.txt"
    sentences = []
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            sources = (line.removeprefix("source:").strip() for line in file if line.startswith("source:"))
            sentences = list(itertools.islice(sources, SENTENCES))
    return {"report": report, "sentences": sentences}


def surroundings() -> dict[str, Any]:
    """Returns backend, versions and machine: what a number depends on besides the code."""
    import keras

    backend = keras.backend.backend()
    packages = ("keras", backend, "numpy", "sacrebleu", "sentencepiece", "keras-attn")
    return {
        "backend": backend,
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in packages},
        "hardware": {"system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count()},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
