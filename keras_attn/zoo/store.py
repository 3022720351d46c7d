"""Finds the folder of a preset: by its name in the registry, at Hugging Face, or where it is said to be.

The files of a registered preset are looked for in this order:

1. `$KERAS_ATTN_PRESETS`, a folder or an address (of http, https or file) with a folder for each preset,
2. `saved_models/presets/` of the checkout that this package is in,
3. the cache, `presets/` in `keras_attn.downloads.cache_folder()`,
4. the address in the registry.

Wherever they come from, they must have the sizes and the SHA-256 that the registry in this package has.
"""

import contextlib
import os
import shutil
import urllib.parse
from pathlib import Path

from keras_attn import downloads, files
from keras_attn.zoo import hugging_face, registry
from keras_attn.zoo.registry import PresetEntry

VARIABLE = "KERAS_ATTN_PRESETS"
CHECKOUT = Path(__file__).parents[2] / "saved_models" / "presets"
_MANIFEST = "translator.json"  # has the digests of the others, and so names a version of the preset


def locate(preset: str | os.PathLike) -> Path:
    """Returns the folder of a preset, and downloads it first if need be.

    Args:
        preset: A name of `keras_attn.presets()`; "hf://USER/NAME" or "hf://USER/NAME@REVISION"; or a folder. A folder
            with the name of a registered preset is given as "./NAME" or as a `Path`.

    Raises:
        FileNotFoundError: if it is nowhere, or cannot be downloaded.
        ValueError: if files are not those of the registry, or the address is none of Hugging Face.
        ModuleNotFoundError: if "hf://" needs the package huggingface_hub.
        OSError: if the cache cannot be written.
    """
    if not isinstance(preset, str):
        return Path(preset)
    if preset.startswith(hugging_face.PREFIX):
        return hugging_face.download(preset)
    known = registry.presets()
    if preset in known:
        return _find(preset, known[preset])
    if not Path(preset).exists() and Path(preset).name == preset:
        raise FileNotFoundError(
            f"Expected a preset: one of {', '.join(known) or 'an empty registry'}; hf://USER/NAME; or a folder. "
            f"Received: {preset!r}"
        )
    return Path(preset)


def _find(name: str, entry: PresetEntry) -> Path:
    place = os.environ.get(VARIABLE) or None
    is_address = place is not None and "://" in place
    for folder in ([] if place is None or is_address else [Path(place)]) + [CHECKOUT]:
        if (folder / name).is_dir():
            if fault := _fault(folder / name, entry):
                raise ValueError(f"Expected {str(folder / name)!r} to be the preset of the registry. {fault}")
            return folder / name
    cached = downloads.cache_folder() / "presets" / f"{name}-{entry.files[_MANIFEST]['sha256'][:12]}"
    if _fault(cached, entry) is None:
        return cached
    address = place if is_address else registry.address()
    if address is None:
        raise FileNotFoundError(
            f"Expected the files of the preset {name} in {str(cached)!r}. They are not there, and this version's "
            f"registry has no address to download them from: set {VARIABLE} to a folder, or an address, that has them."
        )
    _fetch(entry, cached, f"{address.rstrip('/')}/{name}")
    return cached


def _fault(folder: Path, entry: PresetEntry) -> str | None:
    """Returns what is wrong with a preset's files; None if they are those of the registry."""
    for name, recorded in entry.files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing."
        if path.stat().st_size != recorded["size"] or files.sha256(path) != recorded["sha256"]:
            return f"{name} has another size or SHA-256."
    return None


def _fetch(entry: PresetEntry, folder: Path, address: str) -> None:
    """Downloads a preset. What has arrived when it is interrupted is kept in `<folder>.part`."""
    part = folder.with_name(f"{folder.name}.part")
    with files.locked(part, wait=True):
        if _fault(folder, entry):  # no other process was faster
            for name, recorded in entry.files.items():
                path = part / "files" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    downloads.download(f"{address}/{urllib.parse.quote(name)}", path, **recorded)
            shutil.rmtree(folder, ignore_errors=True)  # one that is damaged
            files.publish(part / "files", folder)
    with contextlib.suppress(OSError):  # another process has locked it
        part.rmdir()
