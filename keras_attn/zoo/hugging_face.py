"""Presets at Hugging Face: `hf://USER/NAME`, through the package huggingface_hub."""

import os
import re
from pathlib import Path

from keras_attn.requirements import require

PREFIX = "hf://"
_NAME = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
# Nothing else is downloaded of a repository that may have anything, nor uploaded from a folder that may.
_FILES = ("translator.json", "model.keras", "*_tokenizer/tokenizer.json", "*_tokenizer/sentencepiece.model")
_FILES += ("README.md", "report.json")


def download(preset: str) -> Path:
    """Downloads a preset into the cache of huggingface_hub, or finds it there when the Hub does not answer.

    Args:
        preset: "hf://USER/NAME" or "hf://USER/NAME@REVISION", a branch, a tag or a commit. A commit is always the same.

    Raises:
        ModuleNotFoundError: if huggingface_hub is not installed.
        ValueError: if `preset` has another form.
        FileNotFoundError: if there is no such repository, or it cannot be reached and is not in the cache.
    """
    repository, revision = _parsed(preset)
    require("hub", "huggingface_hub", purpose=f"presets of {PREFIX}")
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            repository, revision=revision, allow_patterns=list(_FILES), endpoint=_endpoint()
        )
    except (OSError, ValueError) as error:  # HfHubHTTPError is an OSError
        raise FileNotFoundError(f"Could not download {preset} ({_first_line(error)}).") from error
    return Path(folder)


def upload(folder: Path, preset: str, *, private: bool = False) -> str:
    """Uploads a preset, with its card, and makes the repository if there is none.

    The Hub asks for a token with the right to write: that of `hf auth login`, or `HF_TOKEN`.

    Args:
        folder: The preset.
        preset: "hf://USER/NAME" or "hf://USER/NAME@BRANCH".
        private: Whether a new repository is private.

    Returns:
        The address of the commit.

    Raises:
        ModuleNotFoundError: if huggingface_hub is not installed.
        ValueError: if `preset` has another form.
        OSError: if the Hub refuses it, or cannot be reached.
    """
    repository, revision = _parsed(preset)
    require("hub", "huggingface_hub", purpose=f"presets of {PREFIX}")
    import huggingface_hub

    hub = huggingface_hub.HfApi(endpoint=_endpoint())
    try:
        hub.create_repo(repository, private=private, exist_ok=True)
        commit = hub.upload_folder(
            repo_id=repository, folder_path=folder, revision=revision, allow_patterns=list(_FILES)
        )
    except Exception as error:  # some are of the library through which huggingface_hub speaks HTTP
        raise OSError(f"Could not upload {preset} ({_first_line(error)}).") from error
    return commit.commit_url


def _parsed(preset: str) -> tuple[str, str | None]:
    found = _NAME.fullmatch(preset)
    if found is None:
        raise ValueError(f"Expected {PREFIX}USER/NAME or {PREFIX}USER/NAME@REVISION. Received: {preset!r}")
    return found[1], found[2]


def _endpoint() -> str | None:
    """`$HF_ENDPOINT`, a mirror of the Hub; huggingface_hub itself reads it when it is imported, not later."""
    return os.environ.get("HF_ENDPOINT") or None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
