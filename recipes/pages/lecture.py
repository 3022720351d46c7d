"""Draws pictures of docs/lecture/: of the preset `phrases_en_fr`, and of the n-grams of a sentence.

    python -m recipes.pages.lecture

Those of trained tasks are drawn from their report by `python -m recipes.pages.results`.
"""

import argparse
import itertools
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from keras_attn import Translator
from keras_attn.cli import command
from keras_attn.plots.plot_style import BLUE, GREY, INK, ORANGE, drawing, plain_axes
from keras_attn.translation import Translation
from recipes.studies.figures import NARROW

SENTENCE, CHANGED = "The queen forgot the black orange.", "The queen forgot the white orange."
HYPOTHESIS, REFERENCE = "the the cat sat on the mat .", "the cat sat on a mat ."


def main(argv=None) -> int:
    parser = command.Parser("recipes.pages.lecture", description=__doc__)
    folder = Path(__file__).parents[2] / "docs" / "lecture"
    parser.add_argument("--out", type=Path, default=folder, help="folder of the pictures (default: docs/lecture)")
    return command.run(draw, parser, argv)


def draw(arguments: argparse.Namespace) -> None:
    translator = Translator.from_preset("phrases_en_fr")
    both = translator.generate([SENTENCE, CHANGED])
    annotations(both[0].source_tokens, *(states(translator, one) for one in both), arguments.out / "annotations.svg")
    unrolled(both[0], arguments.out / "unrolled.svg")
    ngrams(HYPOTHESIS.split(), REFERENCE.split(), arguments.out / "bleu.svg")


def states(translator: Translator, translation: Translation) -> np.ndarray:
    """The annotations `(S, M)` of a translated sentence."""
    from keras import ops

    memory, _ = translator.model.encode(ops.convert_to_tensor([translation.source_token_ids], dtype="int32"))
    return ops.convert_to_numpy(memory["values"])[0]


def annotations(words, before: np.ndarray, after: np.ndarray, path: Path) -> None:
    """The change of the annotations `(S, M)` with a word, relative to their length, forward and backward."""
    with drawing(path, figsize=(NARROW, 3.4)) as figure:
        halves = zip(("forward", "backward"), *(np.split(one, 2, axis=1) for one in (before, after)), strict=True)
        for axes, (name, old, new) in zip(figure.subplots(2, 1, sharex=True, sharey=True), halves, strict=True):
            change = np.linalg.norm(new - old, axis=1) / np.linalg.norm(old, axis=1)  # (S,)
            bars = axes.bar(range(len(words)), change, color=BLUE if name == "forward" else ORANGE, width=0.7)
            axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=7.5, color=INK)
            axes.set_title(f"change of the {name} state", loc="left", fontsize=9, color=INK)
            axes.margins(y=0.2)
            plain_axes(axes)
            axes.set_yticks([])
        axes.set_xticks(range(len(words)), [word.strip("▁") for word in words], rotation=60)


def unrolled(translation: Translation, path: Path) -> None:
    """A translation as a graph: annotations on the left, decoder states on the right, lines as thick as the weights."""
    source, target = ([word.strip("▁") for word in side] for side in (translation.source_tokens, translation.tokens))
    left, right = np.linspace(0, 1, len(source)), np.linspace(0, 1, len(target))
    arrow = {"arrowstyle": "-|>", "color": GREY, "linewidth": 0.8, "shrinkA": 4, "shrinkB": 4}
    with drawing(path, figsize=(NARROW, 4.4)) as figure:
        axes = figure.add_subplot(xlim=(-0.45, 1.5), ylim=(1.06, -0.12))
        axes.set_axis_off()
        for i, row in enumerate(translation.alignment):
            for j, weight in enumerate(row):
                is_first = j == row.argmax()
                axes.plot([0, 1], [left[j], right[i]], color=BLUE if is_first else ORANGE, linewidth=4 * weight)
            axes.text(1.5, right[i], f"{row.max():.2f}", ha="right", va="center", fontsize=8, color=BLUE)
        for x, side, words in ((0, left, source), (1, right, target)):
            axes.plot([x] * len(side), side, "o", color=INK, markersize=5)
            for a, b in itertools.pairwise(side):
                axes.annotate("", (x, b), (x, a), arrowprops=arrow | ({"arrowstyle": "<|-|>"} if x == 0 else {}))
            for y, word in zip(side, words, strict=True):
                place = {"ha": "right"} if x == 0 else {"ha": "left"}
                axes.text(x + (0.06 if x else -0.06), y, word, va="center", fontsize=9, color=INK, **place)
        axes.text(0, -0.1, "annotations $h_j$", ha="center", fontsize=9, color=INK)
        axes.text(1, -0.1, "states $s_i$", ha="center", fontsize=9, color=INK)


def ngrams(hypothesis: list[str], reference: list[str], path: Path) -> None:
    """The n-grams of a hypothesis as bars below its words, blue where the reference has them, as often at most."""
    with drawing(path, figsize=(NARROW, 2.4)) as figure:
        axes = figure.add_subplot(xlim=(-1.6, len(hypothesis)), ylim=(9.6, -0.6))
        axes.set_axis_off()
        for x, word in enumerate(hypothesis):
            axes.text(x + 0.5, 0, word, ha="center", va="center", fontsize=9, color=INK)
        y = 0.8
        for n in range(1, 5):
            left = Counter(_ngrams(reference, n))
            found = _ngrams(hypothesis, n)
            for x, ngram in enumerate(found):
                is_counted, left[ngram] = left[ngram] > 0, left[ngram] - 1
                ends, row = [x + 0.12, x + n - 0.12], y + 0.55 * (x % n)
                axes.plot(ends, [row, row], color=BLUE if is_counted else ORANGE, linewidth=3)
            counted = f"{(Counter(found) & Counter(_ngrams(reference, n))).total()} of {len(found)}"
            axes.text(-0.3, y + 0.27 * (n - 1), counted, ha="right", va="center", fontsize=9, color=INK)
            y += 0.55 * n + 1.2


def _ngrams(words: list[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


if __name__ == "__main__":
    sys.exit(main())
