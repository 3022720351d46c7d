"""Heat maps: the alignment of a translation as in figure 3 of Bahdanau et al. 2015, and self-attention.

Every function returns a `matplotlib.figure.Figure`, made without pyplot so that no window, backend or other global
state is touched, and writes it to a path if one is given: PNG, SVG or PDF by the ending of the name.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from keras_attn.plots.plot_style import GREY, INK, drawing
from keras_attn.plots.word_alignment import WordAlignment, as_matrix

_GAP = 0.06  # inches between a label and its row or column


def alignment(
    alignment: ArrayLike,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    *,
    path: str | Path | None = None,
) -> Figure:
    """Draws the alignment of one translation: source at the top, target on the left, 0 black and 1 white.

    The self-attention of a sentence is drawn in the same way, with its words on both sides: row i shows how much word i
    attends to each word. Pieces become words by `align_words` or `merge_alignment`.

    Args:
        alignment: Weights `(T, S)`, a row for each target token; or `(N, T, S)`, a panel for each of N heads.
        source_tokens: S labels.
        target_tokens: T labels.
        path: Path to write the picture to. Its ending (.png, .svg, .pdf) is the format. None writes no file.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the labels do not match the shape of the alignment, or the ending is unknown.

    Example:
        >>> weights = [[0.9, 0.1], [0.1, 0.9]]
        >>> figure = keras_attn.plots.alignment(weights, ["Bahnhof", "</s>"], ["station", "</s>"], path="station.png")
    """
    heads = alignment if np.ndim(alignment) == 3 else [alignment]
    return alignments([WordAlignment(head, source_tokens, target_tokens) for head in heads], path=path)


def alignments(
    panels: Sequence[WordAlignment | tuple[ArrayLike, Sequence[str], Sequence[str]]],
    *,
    path: str | Path | None = None,
    columns: int = 2,
    titles: Sequence[str] | None = None,
    cell: float = 0.3,
) -> Figure:
    """Draws several alignments in one figure, lettered (a), (b), ...; by default two in a row, as in the paper.

    All cells are squares of the same size.

    Args:
        panels: Triples of weights `(T, S)`, S source labels and T target labels. Blank labels take no room: panels of
            the same words need labels only at the left and at the top of the figure.
        path: As in `alignment`.
        columns: Number of panels in a row.
        titles: A text below each panel, instead of its letter.
        cell: Side of a square in inches. It is less for long sentences, so that the figure stays within about 20
            inches. Labels are as large as the squares allow, and 10.5 points at most.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If labels do not match the shape of their alignment, there is no panel, there are other than one
            title for each, `cell` is not above 0, or the ending is unknown.

    Example:
        >>> panel = ([[0.9, 0.1], [0.2, 0.8]], ["two", "dogs"], ["deux", "chiens"])
        >>> len(keras_attn.plots.alignments([panel, panel]).axes)
        2
    """
    panels = [_checked(WordAlignment(*panel)) for panel in panels]
    if not panels or columns < 1:
        raise ValueError(
            f"Expected at least one panel and one column. Received: {len(panels)} panels, {columns} columns"
        )
    if titles is not None and len(titles) != len(panels):
        raise ValueError(f"Expected a title for each of {len(panels)} panels. Received: {len(titles)}")
    if not cell > 0:
        raise ValueError(f"Expected cell to be above 0 inches. Received: {cell}")
    columns = min(columns, len(panels))
    longest = max(max(panel.alignment.shape) for panel in panels)
    cell = min(cell, 15 / columns / longest)  # inches
    labels = [label for panel in panels for label in (*panel.source_tokens, *panel.target_tokens)]
    font = {"family": _fonts_for(labels), "size": min(10.5, cell * 72 * 0.6), "color": INK}
    letters = [f"({chr(97 + i)})" for i in range(len(panels))] if 1 < len(panels) <= 26 else [""] * len(panels)
    look = {"family": "serif", "size": 11} if titles is None else {"family": "sans-serif", "size": 9}
    with drawing(path, layout=None) as figure:
        _arrange(figure, panels, letters if titles is None else titles, columns, cell, font, look)
    return figure


def relations(
    weights: ArrayLike, tokens: Sequence[str], row: int, *, cell: float = 0.3, path: str | Path | None = None
) -> Figure:
    """Draws one row of the attention of each head: where one word looks, 0 black and 1 white.

    A row of the table is a head, a column a word. It shows which head relates "it" to its noun.

    Args:
        weights: `(layers, N, T, S)` of N heads, such as those of one sentence from `TransformerSeq2Seq.attentions`.
        tokens: S labels.
        row: The number of the attending word, from 0 to T - 1.
        cell, path: As in `alignments`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the weights have other axes, there is no such row, the labels do not match the weights, `cell` is
            not above 0, or the ending is unknown.

    Example:
        >>> weights = np.ones((2, 4, 3, 3)) / 3
        >>> figure = keras_attn.plots.relations(weights, ["she", "said", "it"], row=2)
        >>> figure.axes[0].get_yticklabels()[5].get_text()
        'layer 2, head 2'
    """
    weights = np.asarray(weights, float)
    if weights.ndim != 4 or row not in range(weights.shape[2]):
        received = f"shape {weights.shape}, row {row!r}"
        raise ValueError(f"Expected weights (layers, N, T, S) and a row from 0 to T - 1. Received: {received}")
    names = [f"layer {layer + 1}, head {head + 1}" for layer, head in np.ndindex(*weights.shape[:2])]
    return alignments([(weights[:, :, row].reshape(len(names), -1), tokens, names)], cell=cell, path=path)


def _arrange(figure, panels, titles, columns, cell, font, look) -> None:
    """Sizes the figure to its labels and places every panel. All measures are in inches."""
    boxes = []
    for panel in panels:
        left = max(_extent(figure, label, font)[0] for label in panel.target_tokens) + _GAP
        top = max(_extent(figure, label, font, 90)[1] for label in panel.source_tokens) + _GAP
        boxes.append((left, top, panel.alignment.shape[1] * cell, panel.alignment.shape[0] * cell))
    margin, gap, foot = 0.12, min(0.4, 1.5 * cell), 0.32 if any(titles) else 0.0
    rows = [boxes[i : i + columns] for i in range(0, len(boxes), columns)]
    # The panels of a column share their left edge, and those of a row their top edge.
    lefts = [max(row[c][0] for row in rows if c < len(row)) for c in range(columns)]
    widths = [max(row[c][2] for row in rows if c < len(row)) for c in range(columns)]
    tops, heights = [max(b[1] for b in row) for row in rows], [max(b[3] for b in row) for row in rows]
    total_width = 2 * margin + sum(lefts) + sum(widths) + gap * (columns - 1)
    total_height = 2 * margin + sum(tops) + sum(heights) + foot * len(rows) + gap * (len(rows) - 1) / 2
    figure.set_size_inches(total_width, total_height)
    for index, (panel, title, (_, _, width, height)) in enumerate(zip(panels, titles, boxes, strict=True)):
        row, column = divmod(index, columns)
        x = margin + sum(lefts[: column + 1]) + sum(widths[:column]) + gap * column
        y = margin + sum(tops[: row + 1]) + sum(heights[:row]) + (foot + gap / 2) * row
        place = (x / total_width, 1 - (y + height) / total_height, width / total_width, height / total_height)
        axes = figure.add_axes(place)
        _draw(axes, panel, cell, font)
        if title:
            below = place[0] + place[2] / 2, place[1] - (foot - 0.2) / total_height
            figure.text(*below, title, ha="center", va="top", color=INK, parse_math=False, **look)


def _draw(axes, panel: WordAlignment, cell: float, font: Mapping[str, Any]) -> None:
    # Squares rather than an image, because an SVG viewer would blur the pixels of an image.
    axes.set_facecolor("black")  # visible where a viewer smooths the edges between squares
    axes.pcolormesh(panel.alignment, cmap="gray", vmin=0, vmax=1, antialiased=False)
    axes.invert_yaxis()
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=_GAP * 72 * 0.8)
    for axis, tokens, rotation in (
        (axes.xaxis, panel.source_tokens, 90),
        (axes.yaxis, panel.target_tokens, 0),
    ):
        axis.set_ticks(np.arange(len(tokens)) + 0.5)
        # Without parse_math, because a sentence may contain dollar signs.
        axis.set_ticklabels(tokens, rotation=rotation, parse_math=False, **font)
    for spine in axes.spines.values():
        spine.set(color=GREY, linewidth=min(0.6, cell * 2))


def _checked(panel: WordAlignment) -> WordAlignment:
    weights = as_matrix(panel.alignment)
    labels = (len(panel.target_tokens), len(panel.source_tokens))
    if weights.shape != labels or 0 in labels:
        raise ValueError(
            "Expected an alignment (T, S) with T target tokens and S source tokens, neither of them 0. Received: "
            f"shape {weights.shape} with {labels[0]} target and {labels[1]} source tokens"
        )
    return WordAlignment(weights, [*map(str, panel.source_tokens)], [*map(str, panel.target_tokens)])


def _extent(figure: Figure, label: str, font: Mapping[str, Any], rotation: int = 0) -> tuple[float, float]:
    """Returns the width and height of a label in inches."""
    text = figure.text(0, 0, label, rotation=rotation, parse_math=False, **font)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        box = text.get_window_extent(figure.canvas.get_renderer())
    text.remove()
    return box.width / figure.dpi, box.height / figure.dpi


def _fonts_for(labels: Sequence[str]) -> list[str]:
    """Returns DejaVu Sans, which matplotlib contains, and installed fonts for the characters that it lacks."""

    def lacking(path: str, characters: set[str]) -> set[str]:
        covered = font_manager.get_font(path).get_charmap()
        return {character for character in characters if ord(character) not in covered}

    families = ["DejaVu Sans"]
    missing = {character for label in labels for character in label if not character.isspace()}
    missing = lacking(font_manager.findfont("DejaVu Sans"), missing)
    for entry in font_manager.fontManager.ttflist if missing else ():
        # matplotlib's Last Resort font draws every character as a box.
        if entry.style != "normal" or entry.name in families or entry.name.startswith("Last Resort"):
            continue
        left = lacking(entry.fname, missing)
        if len(left) < len(missing):
            families.append(entry.name)
            missing = left
        if not missing:
            break
    if missing:
        shown = "".join(sorted(missing)[:20])
        warnings.warn(
            f"No installed font has the characters {shown}: they are drawn as boxes. "
            "Install one that has them, such as Noto Sans.",
            stacklevel=4,
        )
    return families
