"""What a finished run leaves in its folder: scores, translations, a picture and `report.json`."""

import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_attn import Translator, files, plots
from keras_attn.translator import Translation


def translate(translator: Translator, sources: Sequence[str], **options) -> tuple[list[Translation], float]:
    """Translations, and the seconds that they took, compilation included."""
    started = time.monotonic()
    translations = translator.generate(sources, **options)
    return translations, time.monotonic() - started


def write_translations(path: Path, sources, references, translations: Sequence[Translation]) -> None:
    """Writes a block of three lines for each sentence: source, reference and translation."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for source, reference, translation in zip(sources, references, translations, strict=True):
            file.write(f"source:      {source}\nreference:   {reference}\ntranslation: {translation.text}\n\n")


def read_translations(path: Path) -> list[tuple[str, str, str]]:
    """Reads what `write_translations` wrote: source, reference and translation of each sentence."""
    texts = [line[len("translation: ") :] for line in path.read_text(encoding="utf-8").split("\n")]
    return list(zip(texts[0::4], texts[1::4], texts[2::4], strict=False))


def draw_reordering(path: Path, translator: Translator, translations, references) -> None:
    """Draws the sentence with the most reordering, a correctly translated one if possible."""
    best, best_rank = None, ()
    for translation, reference in zip(translations, references, strict=True):
        if not translation.token_ids:
            continue
        words = plots.align_words(translation, translator.source_tokenizer, translator.target_tokenizer)
        alignment, sources, targets = words
        moderate = 7 <= len(sources) <= 18 and 7 <= len(targets) <= 22
        rank = moderate, translation.text == reference, _inversions(alignment)
        if best is None or rank > best_rank:
            best, best_rank = words, rank
    if best:
        plots.alignment(*best, path=path)


def _inversions(alignment: np.ndarray) -> float:
    """Share of pairs of target words whose source words are in the opposite order; 0 is monotone."""
    if len(alignment) < 2:
        return 0.0
    positions = alignment.argmax(axis=1)
    earlier, later = np.triu_indices(len(positions), 1)
    return float((positions[earlier] > positions[later]).mean())


def peak_memory_mb() -> int:
    """The peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))


def write(path: Path, report: dict) -> None:
    """Writes a report atomically."""
    with files.replacing(path) as partial:
        partial.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
