"""The manifest of a preset: its options, and the size and SHA-256 of each of its files.

It is written last and read first: a preset with a manifest is complete, and an incomplete one is never used.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

NAME = "translator.json"
FORMAT = {"format": "keras_attn.translator", "version": 1}


def write(directory: Path, options: dict[str, float]) -> None:
    """Writes a manifest of all files in `directory`."""
    files = {
        path.relative_to(directory).as_posix(): {"size": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    text = json.dumps({**FORMAT, "options": options, "files": files}, indent=2)
    (directory / NAME).write_text(text + "\n", encoding="utf-8")


def read(directory: Path, names: Iterable[str]) -> dict[str, float]:
    """Checks every file against the manifest.

    Args:
        directory: The preset.
        names: The names of the options that the manifest must have.

    Returns:
        The options.

    Raises:
        FileNotFoundError: if the manifest or a file is missing.
        ValueError: if one is truncated or changed, or the format is unknown.
    """
    path = directory / NAME
    if not path.is_file():
        raise FileNotFoundError(f"Expected a preset in {str(directory)!r}. There is no {NAME}.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        known = {name: manifest[name] for name in FORMAT}
        files = {name: (entry["size"], entry["sha256"]) for name, entry in manifest["files"].items()}
        options = {name: float(manifest["options"][name]) for name in names}
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError):
        raise ValueError(f"Expected {str(path)!r} to be a preset's manifest. It is truncated or changed.") from None
    if known != FORMAT:
        raise ValueError(f"Expected a preset of {FORMAT}. Received: {known} in {str(path)!r}.")
    for name, (size, sha256) in files.items():
        _check_file(directory, name, size, sha256)
    return options


def _check_file(directory: Path, name: str, size: int, sha256: str) -> None:
    path = directory / name
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise ValueError(f"Expected the manifest to name files of the preset. Received: {name!r}")
    if not path.is_file():
        raise FileNotFoundError(f"Expected the preset in {str(directory)!r} to have a file {name}. It is missing.")
    if path.stat().st_size != size:
        raise ValueError(f"Expected {str(path)!r} to have {size} bytes. It has {path.stat().st_size}: truncated?")
    if _sha256(path) != sha256:
        raise ValueError(f"Expected {str(path)!r} to be as it was saved. Its SHA-256 has changed.")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
