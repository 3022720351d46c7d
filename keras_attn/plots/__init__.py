"""Pictures of alignments and training: heat maps and curves with Matplotlib, alignments as HTML and Pharaoh lines.

Matplotlib is imported when the first picture is drawn.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from keras_attn.plots.word_alignment import (
    SentenceComparison,
    WordAlignment,
    align_words,
    comparison_page,
    html_page,
    merge_alignment,
    to_pharaoh,
)

if TYPE_CHECKING:
    from keras_attn.plots.curves import training_curves
    from keras_attn.plots.heatmaps import alignment, alignments, relations

_LAZY = {"alignment": "heatmaps", "alignments": "heatmaps", "relations": "heatmaps", "training_curves": "curves"}

__all__ = [
    "SentenceComparison",
    "WordAlignment",
    "align_words",
    "alignment",
    "alignments",
    "comparison_page",
    "html_page",
    "merge_alignment",
    "relations",
    "to_pharaoh",
    "training_curves",
]


def __getattr__(name: str):
    """Imports a function that draws with Matplotlib when it is first used."""
    if name in _LAZY:
        return getattr(import_module(f"keras_attn.plots.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
