"""Training curves; see `keras_attn.plots`."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from keras_attn.plots.plot_style import BLUE, GREY, INK, ORANGE, drawing, plain_axes


def training_curves(
    history: Mapping[str, Sequence[float]] | str | Path,
    path: str | Path | None = None,
) -> Figure:
    """Draws loss, perplexity, accuracy and scores such as BLEU against epochs, one small panel for each.

    Args:
        history: `model.fit(...).history`, or the path of a CSV file with a header, as `CSVLogger` writes it. Column
            `name` is drawn as training and `val_name` as validation, for each name of loss, perplexity, accuracy,
            bleu, chrf, ter and wer. Other columns are ignored. If there is no column "epoch", rows are counted from
            1; if it starts at 0, as Keras counts, 1 is added.
        path: Path to write the picture to. Its ending (.png, .svg, .pdf) is the format. None writes no file.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        FileNotFoundError: If the CSV file does not exist.
        ValueError: If no column can be drawn, or the ending is unknown.

    Example:
        >>> history = {"loss": [4.0, 3.0], "val_loss": [4.1, 3.2], "val_bleu": [2.0, 11.5]}
        >>> figure = keras_attn.plots.training_curves(history, "curves.svg")
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['Loss', 'BLEU, validation']
    """
    table = _read_history(history)
    names = [name for name in _CURVES if name in table or f"val_{name}" in table]
    if not names:
        raise ValueError(
            f"Expected a history with one of {', '.join(_CURVES)} (or val_...). "
            f"Received: {', '.join(table) or 'no columns'}"
        )
    rows = max(len(table[key]) for name in names for key in (name, f"val_{name}") if key in table)
    epochs = table.get("epoch", np.arange(1.0, rows + 1))
    epochs = epochs + 1 if epochs.size and epochs[0] == 0 else epochs
    with drawing(path, figsize=(3.3 * len(names), 2.7)) as figure:
        figure.get_layout_engine().set(wspace=0.06, w_pad=0.08, h_pad=0.08)
        for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            _draw_curves(axes, name, epochs, table)
    return figure


# name -> (title, whether the highest value is the best; None: the best value is not marked)
_CURVES = {
    "loss": ("Loss", None),
    "perplexity": ("Perplexity", None),
    "accuracy": ("Token accuracy", None),
    "bleu": ("BLEU", True),
    "chrf": ("chrF", True),
    "ter": ("TER", False),
    "wer": ("Word error rate", False),
}


def _draw_curves(axes, name: str, x: np.ndarray, table: Mapping[str, np.ndarray]) -> None:
    title, highest = _CURVES[name]
    lines = [("training", table.get(name), GREY), ("validation", table.get(f"val_{name}"), BLUE)]
    lines = [(label, values, colour) for label, values, colour in lines if values is not None]
    ends = []
    for label, values, colour in lines:
        known = np.isfinite(values)
        marker = "o" if known.sum() == 1 else None  # a line through a single point is invisible
        axes.plot(x[: len(values)][known], values[known], color=colour, linewidth=1.8, marker=marker)
        if known.any():
            ends.append((label, x[: len(values)][known][-1], values[known][-1], colour))
    axes.margins(x=0.015)
    drawn = np.concatenate([values[np.isfinite(values)] for _, values, _ in lines])
    if name == "perplexity" and drawn.size and drawn.min() > 0 and drawn.max() > 8 * drawn.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(LogLocator(subs=()))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if highest is not None and np.isfinite(lines[-1][1]).any():
        _mark_best(axes, x, lines[-1][1], lines[-1][2], highest)
    if len(lines) == 1:
        title = f"{title}, {lines[0][0]}"
    else:
        _label_ends(axes, ends)
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, pad=9)
    axes.set_xlabel("epoch", fontsize=9, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    plain_axes(axes)


def _label_ends(axes, ends) -> None:
    """Writes the name of each line beside its last point; two names that would overlap are moved apart."""
    axes.autoscale_view()  # otherwise the limits are set only when the figure is drawn
    to_share = axes.transData + axes.transAxes.inverted()
    heights = [to_share.transform((x, y))[1] for _, x, y, _ in ends]
    if len(heights) == 2 and abs(heights[0] - heights[1]) < 0.1:
        middle, sign = sum(heights) / 2, 1 if heights[0] >= heights[1] else -1
        heights = [middle + 0.05 * sign, middle - 0.05 * sign]
    for (label, _, _, colour), height in zip(ends, heights, strict=True):
        axes.annotate(
            label,
            (1.0, height),
            xycoords="axes fraction",
            xytext=(2, 0),
            textcoords="offset points",
            color="#6A6A6A" if colour == GREY else colour,
            fontsize=9,
            va="center",
        )


def _mark_best(axes, x, values, colour, highest: bool) -> None:
    best = int(np.nanargmax(values) if highest else np.nanargmin(values))
    axes.plot(x[best], values[best], "o", color=ORANGE, markersize=5, zorder=4, clip_on=False)
    axes.annotate(
        f"{values[best]:.1f}" if abs(values[best]) >= 1 else f"{values[best]:.3f}",
        (x[best], values[best]),
        xytext=(0, 7 if highest else -7),
        textcoords="offset points",
        ha="center",
        va="bottom" if highest else "top",
        fontsize=9,
        color=ORANGE,
        annotation_clip=False,
    )
    axes.margins(y=0.14)


def _read_history(history) -> dict[str, np.ndarray]:
    """Returns columns of floats. A missing value is NaN: BLEU may be measured in every other epoch only."""
    if isinstance(history, Mapping):
        return {name: np.array([_number(v) for v in values]) for name, values in history.items()}
    if not Path(history).is_file():
        raise FileNotFoundError(
            f"Expected a CSV file with training curves. Received: {str(history)!r}, which does not exist"
        )
    with open(history, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([_number(row[name]) for row in rows]) for name in (rows[0] if rows else ())}


def _number(value) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
