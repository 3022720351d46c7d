"""The files of a saved tokenizer: `tokenizer.json`, with a digest of its content, and `sentencepiece.model`."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from keras_attn import files

_T = TypeVar("_T")
_FORMAT = 1
_MANIFEST, _MODEL = "tokenizer.json", "sentencepiece.model"
_LARGEST = 1 << 26  # bytes; a million words have some 20 MB


def digest(manifest: dict[str, Any]) -> str:
    """Returns the SHA-256 of a manifest, in hexadecimal."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def write(directory: Path, manifest: dict[str, Any], sentencepiece_model: bytes | None) -> None:
    """Writes a tokenizer's files.

    Raises:
        ValueError: If the folder contains another tokenizer, which is left as it is.
    """
    recorded = {"format": _FORMAT, "sha256": digest(manifest)} | manifest
    contents = {_MANIFEST: json.dumps(recorded, ensure_ascii=False, indent=0).encode()}
    if sentencepiece_model is not None:
        contents = {_MODEL: sentencepiece_model} | contents  # the manifest last: it records the model's hash
    for name, content in contents.items():
        path = directory / name
        if path.exists() and path.read_bytes() != content:
            raise ValueError(f"Expected {directory} without a tokenizer. Received: a folder with another {name}")
    for name, content in contents.items():
        with files.replacing(directory / name) as path:
            path.write_bytes(content)


def read(directory: Path, restore: Callable[[dict[str, Any], bytes | None], _T]) -> _T:
    """Reads a tokenizer's files.

    Args:
        directory: The folder.
        restore: Takes the manifest, and the SentencePiece model if its level is "bpe". Any error of it means that the
            files were changed.

    Returns:
        What `restore` returns.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is truncated, changed, of a later format or larger than 64 MiB.
    """
    path = directory / _MANIFEST
    try:
        manifest = json.loads(_read(path))
        recorded = manifest.pop("format"), manifest.pop("sha256")
        expected = _FORMAT, digest(manifest)
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise _changed(path) from None
    if recorded != expected:
        raise _changed(path)
    model = None
    if manifest.get("level") == "bpe":
        path = directory / _MODEL
        try:
            model = _read(path)
        except ValueError:
            raise _changed(path) from None
        if hashlib.sha256(model).hexdigest() != manifest.get("sentencepiece_sha256"):
            raise _changed(path)
    try:
        return restore(manifest, model)
    except (ValueError, LookupError, AttributeError, TypeError, RuntimeError) as error:
        raise _changed(path) from error


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(f"Expected a tokenizer's file {path}. Received: a folder without it")
    return files.read_bounded(path, _LARGEST)


def _changed(path: Path) -> ValueError:
    return ValueError(
        f"Expected {path} to be what Tokenizer.save wrote in format {_FORMAT}. Received: a file that is truncated, "
        "changed or of another format"
    )
