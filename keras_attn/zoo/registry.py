"""The registry of trained presets, `registry.json`: what each is, and the size and SHA-256 of each of its files."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_attn import files

REGISTRY = Path(__file__).with_name("registry.json")


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


def address() -> str | None:
    """Returns the address of the folder that has a folder for each registered preset; None if there is none."""
    return _read()["address"]


def add_preset(name: str, entry: PresetEntry) -> None:
    """Writes an entry into `registry.json` of a checkout, in the order of the names; replaces one of this name."""
    registry = _read()
    entries = registry["presets"] | {name: dataclasses.asdict(entry)}
    registry["presets"] = dict(sorted(entries.items()))
    with files.replacing(REGISTRY) as new:
        new.write_text(json.dumps(registry, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _read() -> dict:
    return json.loads(REGISTRY.read_text(encoding="utf-8"))
