"""The manifest of a folder: its format, its properties, and the size and SHA-256 of each of its other files.

It is written last and read first: a folder with a manifest is complete, and an incomplete one is refused. The hashes
protect from damage, not from malice: who can change a file can change the manifest. Needs no Keras.
"""

import json
import textwrap
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from keras_attn import files

TOKENIZERS = ("source_tokenizer", "target_tokenizer")
TOKENIZER_FILES = tuple(f"{name}/tokenizer.json" for name in TOKENIZERS)
SENTENCEPIECE_FILES = tuple(f"{name}/sentencepiece.model" for name in TOKENIZERS)  # of level "bpe"
_LARGEST = 1 << 20  # bytes; a manifest has less than 2 kB


def write(path: Path, format: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
    """Writes a manifest of all files in its folder."""
    manifest = {**format, **properties, "files": files.digests(path.parent)}
    path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read(
    path: Path,
    kind: str,
    format: Mapping[str, Any],
    required: Collection[str],
    parse: Callable[[dict[str, Any]], Any],
    optional: Collection[str] = (),
) -> Any:
    """Checks every file against a manifest, and returns the parsed properties.

    Args:
        path: The manifest.
        kind: The kind of folder, for errors.
        format: As it was written.
        required: The names of the files that there must be.
        parse: Maps the properties to the result. An error in it is that of a changed manifest.
        optional: The names of files that there may be, besides SentencePiece models.

    Raises:
        FileNotFoundError: if the manifest or a file is missing.
        ValueError: if one is truncated or changed, or the format is unknown.
    """
    if not path.is_file():
        missing = path.name if path.parent.is_dir() else "such folder"
        raise FileNotFoundError(f"Expected {kind} in {str(path.parent)!r}. There is no {missing}.")
    try:
        manifest = json.loads(files.read_bounded(path, _LARGEST))
        known = {name: manifest.pop(name) for name in format}
        recorded = {name: (entry["size"], entry["sha256"]) for name, entry in manifest.pop("files").items()}
        if {(type(size), type(sha256)) for size, sha256 in recorded.values()} != {(int, str)}:
            raise TypeError
        if known == format:
            properties = parse(manifest)
            if not {*required} <= recorded.keys() <= {*required, *optional, *SENTENCEPIECE_FILES}:
                raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ValueError(f"Expected {str(path)!r} to be the manifest of {kind}. It is truncated or changed.") from None
    if known != format:
        received = textwrap.shorten(str(known), 200)
        raise ValueError(f"Expected {kind} of {format}. Received: {received} in {str(path)!r}.")
    for name, (size, sha256) in recorded.items():
        files.check(path.parent, name, size, sha256)
    return properties


def length_arguments(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a translator that limit lengths. Earlier versions wrote no `trained_length`.

    Raises:
        KeyError, OverflowError, TypeError, ValueError: if one is missing or wrong.
    """
    lengths = {name: properties[name] for name in ("max_length_ratio", "max_length_constant")}
    trained_length = properties.get("trained_length")
    if not all(type(length) in (int, float) and 0 <= float(length) < float("inf") for length in lengths.values()):
        raise ValueError
    if trained_length is not None and (type(trained_length) is not int or trained_length < 1):
        raise ValueError
    return lengths | {"trained_length": trained_length}
