"""The manifest of a translator in ONNX: what its graphs do not say, and the size and SHA-256 of each file.

It is written last and read first, so that an incomplete folder is never used. The hashes protect from damage, not from
malice: who can change a file can change the manifest, too.
"""

import json
from pathlib import Path
from typing import NamedTuple

from keras_attn import files

NAME = "manifest.json"
ENCODE, STEP = "encode.onnx", "step.onnx"
TOKENIZERS = ("source_tokenizer", "target_tokenizer")
_FORMAT = {"format": "keras_attn.onnx", "version": 1}
_REQUIRED = {ENCODE, STEP, *(f"{name}/tokenizer.json" for name in TOKENIZERS)}
_OPTIONAL = {f"{name}/sentencepiece.model" for name in TOKENIZERS}
_LARGEST = 1 << 20  # bytes


class Properties(NamedTuple):
    """The properties of a model that a translator needs besides the graphs."""

    model: str  # the name of its class
    parameters: int
    pointer: bool
    source_length: int | None
    max_length_ratio: float
    max_length_constant: float
    trained_length: int | None = None  # as in folders of earlier versions


def write(directory: Path, properties: Properties) -> None:
    """Writes a manifest of all files in `directory`."""
    manifest = {**_FORMAT, **properties._asdict(), "files": files.digests(directory)}
    (directory / NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read(directory: Path) -> Properties:
    """Checks every file against the manifest.

    Raises:
        FileNotFoundError: if the manifest or a file is missing.
        ValueError: if one is truncated or changed, or the format is unknown.
    """
    path = directory / NAME
    if not path.is_file():
        raise FileNotFoundError(f"Expected a translator in ONNX in {str(directory)!r}. There is no {NAME}.")
    try:
        manifest = json.loads(files.read_bounded(path, _LARGEST))
        known = {name: manifest.pop(name) for name in _FORMAT}
        recorded = {name: (entry["size"], entry["sha256"]) for name, entry in manifest.pop("files").items()}
        properties = Properties(**manifest)
        if known == _FORMAT and not (_REQUIRED <= recorded.keys() <= _REQUIRED | _OPTIONAL and _is_valid(properties)):
            raise ValueError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"Expected {str(path)!r} to be a manifest. It is truncated or changed.") from None
    if known != _FORMAT:
        raise ValueError(f"Expected a translator of {_FORMAT}. Received: {str(known)[:200]} in {str(path)!r}.")
    for name, (size, sha256) in recorded.items():
        files.check(directory, name, size, sha256)
    return properties


def _is_valid(properties: Properties) -> bool:
    ratio, constant = properties.max_length_ratio, properties.max_length_constant
    numbers = all(type(x) in (int, float) and 0 <= x < float("inf") for x in (ratio, constant))
    lengths = [x for x in (properties.source_length, properties.trained_length) if x is not None]
    sizes = all(type(length) is int and length > 0 for length in lengths)
    return numbers and sizes and isinstance(properties.pointer, bool)
