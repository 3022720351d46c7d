"""Trained presets by name, their files wherever they are, and presets at Hugging Face.

`registry.json` describes each preset, with the size and SHA-256 of each of its files. These are looked for in
this order:

1. `$KERAS_ATTN_PRESETS`, a folder or an address (of http, https or file) with a folder for each preset,
2. `keras_attn/saving/shipped/` of a wheel, which has two of them,
3. `saved_models/presets/` of the checkout that this package is in,
4. the distribution `keras-attn-presets`, which has them all,
5. the cache, `presets/` in `keras_attn.downloads.cache_folder()`,
6. the address in the registry, if it has one.

Wherever they come from, they must have the sizes and the SHA-256 of the registry. Presets of `hf://USER/NAME` come
through the package huggingface_hub.
"""

import dataclasses
import json
import os
import re
import urllib.parse
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from keras_attn import downloads, files
from keras_attn.requirements import require
from keras_attn.suggestions import did_you_mean

REGISTRY = Path(__file__).with_name("registry.json")
PACKAGED = Path(__file__).with_name("shipped")  # in a wheel
CHECKOUT = Path(__file__).parents[2] / "saved_models" / "presets"
DISTRIBUTION = "keras_attn_presets"  # a namespace package of folders
VARIABLE = "KERAS_ATTN_PRESETS"
PREFIX = "hf://"
_AT_HUB_NAME = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)
LEXICON = "lexicon.dict.xz"  # of a preset for pronunciation, beside its manifest
_MANIFEST = "translator.json"  # has the digests of the others, and so names a version of the preset
# Nothing else is downloaded of a repository that may have anything, nor uploaded from a folder that may.
_AT_HUB = (_MANIFEST, "model.keras", "*_tokenizer/tokenizer.json", "*_tokenizer/sentencepiece.model")
_AT_HUB += ("README.md", "report.json", LEXICON)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PresetEntry:
    """A preset of the registry.

    Args:
        task: "translation", or "pronunciation" (letters to phones).
        source, target: The languages.
        model: The class of its model, in `keras_attn.models`.
        parameters: The number of its weights.
        dtype: In what its matrices are stored: "float32", "float16" or "int8".
        corpus: The name of the corpus that it was trained on.
        licence: That of the corpus.
        metric, score, signature: The score on the test split, with the weights as they are stored.
        files: The size and the SHA-256 of each file.
    """

    task: str
    source: str
    target: str
    model: str
    parameters: int
    dtype: str
    corpus: str
    licence: str
    metric: str
    score: float
    signature: str
    files: Mapping[str, Mapping[str, Any]] = dataclasses.field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file["size"] for file in self.files.values())


def presets() -> dict[str, PresetEntry]:
    """Returns the registered presets by their names, which `Translator.from_preset` takes.

    Each has `task`, `source`, `target`, `model`, `parameters`, `dtype`, `corpus`, `licence` (of the corpus), `metric`,
    `score`, `signature`, `files` and `size` (bytes).

    Example:
        >>> entry = keras_attn.presets()["phrases_en_fr"]
        >>> entry.task, entry.source, entry.target, entry.licence
        ('translation', 'en', 'fr', 'apache-2.0')
    """
    return {name: PresetEntry(**entry) for name, entry in _read()["presets"].items()}


def add_preset(name: str, entry: PresetEntry) -> None:
    """Writes an entry into `registry.json` of a checkout, in the order of the names; replaces one of this name.

    Args:
        name: The preset's name.
        entry: Its entry.
    """
    registry = _read()
    entries = registry["presets"] | {name: dataclasses.asdict(entry)}
    registry["presets"] = dict(sorted(entries.items()))
    with files.replacing(REGISTRY) as new:
        new.write_text(json.dumps(registry, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read() -> dict:
    return json.loads(REGISTRY.read_text(encoding="utf-8"))


def locate(preset: str | os.PathLike) -> Path:
    """Returns the folder of a preset, and downloads it first if need be.

    Args:
        preset: A name of `keras_attn.presets()`; "hf://USER/NAME" or "hf://USER/NAME@REVISION", a branch, a tag or a
            commit; or a folder. A folder with the name of a registered preset is given as "./NAME" or as a `Path`.

    Raises:
        FileNotFoundError: if it is nowhere, or cannot be downloaded.
        ValueError: if it is no name and no path, files are not those of the registry, or "hf://" has another form.
        ModuleNotFoundError: if "hf://" needs the package huggingface_hub.
        OSError: if the cache cannot be written.
    """
    if not isinstance(preset, str):
        return files.as_path(preset, "a preset: a name, hf://USER/NAME, or a folder")
    if preset.startswith(PREFIX):
        return _from_hub(preset)
    known = presets()
    if preset in known:
        return _find(preset, known[preset])
    if not Path(preset).exists() and Path(preset).name == preset:
        raise FileNotFoundError(
            f"Expected a preset: one of {', '.join(known) or 'an empty registry'}; hf://USER/NAME; or a folder. "
            f"Received: {preset!r}{did_you_mean(preset, known)}"
        )
    return Path(preset)


def is_here(name: str) -> bool:
    """Returns True if a registered preset is on this computer, so that nothing has to be downloaded.

    Args:
        name: The preset's name.

    Example:
        >>> keras_attn.saving.is_here("phrases_en_fr")
        True
    """
    return _folder(name) is not None or not _other_files(_cached(name, entry := presets()[name]), entry)


def _folder(name: str) -> Path | None:
    """Returns the first folder of this computer but the cache that has the preset, or None."""
    folders = [PACKAGED, CHECKOUT]
    if (place := os.environ.get(VARIABLE)) and "://" not in place:
        folders.insert(0, Path(place))
    if spec := find_spec(DISTRIBUTION):
        folders += [Path(folder) for folder in spec.submodule_search_locations or ()]
    return next((folder / name for folder in folders if (folder / name).is_dir()), None)


def _cached(name: str, entry: PresetEntry) -> Path:
    return downloads.cache_folder() / "presets" / f"{name}-{entry.files[_MANIFEST]['sha256'][:12]}"


def _find(name: str, entry: PresetEntry) -> Path:
    if folder := _folder(name):
        if others := _other_files(folder, entry):
            received = f"{others[0]} is missing, or has another SHA-256."
            raise ValueError(f"Expected {str(folder)!r} to be the preset of the registry. {received}")
        return folder
    cached = _cached(name, entry)
    if not _other_files(cached, entry):
        return cached
    place = os.environ.get(VARIABLE, "")
    address = place if "://" in place else _read()["address"]
    if address is None:
        raise FileNotFoundError(
            f"Expected the preset {name} to be installed: pip install keras-attn-presets, or set {VARIABLE} to a "
            "folder or an address that has it. This version's registry has no address to download it from."
        )
    with files.locked(cached.parent, wait=True):
        for file in _other_files(cached, entry):  # none if another process was faster
            (cached / file).parent.mkdir(parents=True, exist_ok=True)
            place = f"{address.rstrip('/')}/{name}/{urllib.parse.quote(file)}"
            downloads.download(place, cached / file, **entry.files[file])
    return cached


def _other_files(folder: Path, entry: PresetEntry) -> list[str]:
    """Returns the names of the files that a folder lacks, or has with another content than the registry's."""
    found = files.digests(folder)
    return [name for name, recorded in entry.files.items() if found.get(name) != recorded]


def _from_hub(preset: str) -> Path:
    """Downloads a preset into the cache of huggingface_hub, or finds it there when the Hub does not answer."""
    repository, revision = _parsed(preset)
    require("hub", "huggingface_hub", purpose=f"presets of {PREFIX}")
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            repository, revision=revision, allow_patterns=list(_AT_HUB), endpoint=_endpoint()
        )
    except (OSError, ValueError) as error:  # HfHubHTTPError is an OSError
        raise FileNotFoundError(f"Could not download {preset} ({_first_line(error)}).") from error
    return Path(folder)


def upload(folder: Path, preset: str, *, private: bool = False) -> str:
    """Uploads a preset to Hugging Face, with its card, and makes the repository if there is none.

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
            repo_id=repository, folder_path=folder, revision=revision, allow_patterns=list(_AT_HUB)
        )
    except Exception as error:  # some are of the library through which huggingface_hub speaks HTTP
        raise OSError(f"Could not upload {preset} ({_first_line(error)}).") from error
    return commit.commit_url


def _parsed(preset: str) -> tuple[str, str | None]:
    found = _AT_HUB_NAME.fullmatch(preset)
    if found is None:
        raise ValueError(f"Expected {PREFIX}USER/NAME or {PREFIX}USER/NAME@REVISION. Received: {preset!r}")
    return found[1], found[2]


def _endpoint() -> str | None:
    """`$HF_ENDPOINT`, a mirror of the Hub; huggingface_hub itself reads it when it is imported, not later."""
    return os.environ.get("HF_ENDPOINT") or None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
