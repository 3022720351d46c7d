"""The manifest of a preset: its options, and the size and SHA-256 of each of its files.

It is written last and read first: a preset with a manifest is complete, and an incomplete one is never used. The hashes
protect from damage. They do not protect from malice: who can change a file can change the manifest, too.
"""

import json
import math
import textwrap
from collections.abc import Collection, Iterable
from pathlib import Path

from keras_attn import files

NAME = "translator.json"
FORMAT = {"format": "keras_attn.translator", "version": 1}
_LARGEST = 1 << 20  # bytes; a manifest has less than 2 kB


def write(directory: Path, options: dict[str, float]) -> None:
    """Writes a manifest of all files in `directory`."""
    text = json.dumps({**FORMAT, "options": options, "files": files.digests(directory)}, indent=2)
    (directory / NAME).write_text(text + "\n", encoding="utf-8")


def read(
    directory: Path, names: Iterable[str], required: Collection[str], optional: Collection[str]
) -> dict[str, float]:
    """Checks every file against the manifest.

    Args:
        directory: The preset.
        names: The names of the options that the manifest must have.
        required: The files that the manifest must have.
        optional: The other files that it may have.

    Returns:
        The options.

    Raises:
        FileNotFoundError: if the manifest or a file is missing.
        ValueError: if one is truncated or changed, or the format is unknown.
    """
    path = directory / NAME
    if not path.is_file():
        missing = NAME if directory.is_dir() else "such folder"
        raise FileNotFoundError(f"Expected a preset in {str(directory)!r}. There is no {missing}.")
    try:
        manifest = json.loads(_text(path))
        known = {name: manifest[name] for name in FORMAT}
        recorded = {name: (entry["size"], entry["sha256"]) for name, entry in manifest["files"].items()}
        options = {name: float(manifest["options"][name]) for name in names}
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise _changed(path) from None
    if known != FORMAT:
        raise ValueError(
            f"Expected a preset of {FORMAT}. Received: {textwrap.shorten(str(known), 200)} in {str(path)!r}."
        )
    if unknown := sorted(recorded.keys() - {*required, *optional}):
        raise ValueError(f"Expected the manifest to name files of the preset. Received: {unknown[0]!r}")
    if not recorded.keys() >= set(required) or not all(map(math.isfinite, options.values())):
        raise _changed(path)
    for name, (size, sha256) in recorded.items():
        files.check(directory, name, size, sha256)
    return options


def _text(path: Path) -> str:
    if path.stat().st_size > _LARGEST:
        raise ValueError
    return path.read_text(encoding="utf-8")


def _changed(path: Path) -> ValueError:
    return ValueError(f"Expected {str(path)!r} to be a preset's manifest. It is truncated or changed.")
