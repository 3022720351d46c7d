"""Alignments over sources that are no text: images, and spectrograms.

The functions return figures and write files as those of `keras_attn.plots.heatmaps`.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from keras_attn.plots.plot_style import GREY, INK, drawing
from keras_attn.plots.word_alignment import as_matrix


def image_alignment(
    alignment: ArrayLike,
    image: ArrayLike,
    target_tokens: Sequence[str],
    *,
    grid: tuple[int, int] | None = None,
    columns: int = 5,
    path: str | Path | None = None,
) -> Figure:
    """Draws for each output token the places of an image that it attends to, as in figure 2 of Xu et al. 2015.

    The image comes first, by itself. Beside it, it is dim, and the places that a token attends to are lit: most of all
    the one with its largest weight.

    Args:
        alignment: Weights `(T, S)`, a row for each token, over a grid of S places, row by row; or `(T, rows, columns)`.
        image: `(H, W)` or `(H, W, 3)`, from 0 black to 1 white, or whole numbers from 0 to 255.
        target_tokens: T labels.
        grid: `(rows, columns)` of the places; None: those of the alignment, or a square.
        columns: Number of pictures in a row.
        path: Path to write the picture to. Its ending (.png, .svg, .pdf) is the format. None writes no file.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If labels or grid do not match the alignment, the image is none, or the ending is unknown.

    Example:
        >>> figure = keras_attn.plots.image_alignment(np.eye(2, 4), np.ones((8, 8)), ["a", "seven"])
        >>> [axes.get_title() for axes in figure.axes]
        ['', 'a', 'seven']
    """
    weights, image = np.asarray(alignment, float), np.asarray(image)
    rows, places = grid or (weights.shape[1:] if weights.ndim == 3 else (int(np.prod(weights.shape[1:]) ** 0.5),) * 2)
    count = len(target_tokens)
    if weights.ndim not in (2, 3) or weights.shape[0] != count or not count or weights[0].size != rows * places:
        raise ValueError(
            f"Expected an alignment (T, S) of T tokens over a grid of S places. Received: shape {weights.shape}, "
            f"{count} tokens and a grid of {rows} x {places}"
        )
    if image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)) or columns < 1:
        raise ValueError(
            f"Expected an image (H, W) or (H, W, 3) and at least one column. Received: shape {image.shape}, "
            f"columns={columns}"
        )
    shown = image / 255 if image.dtype.kind in "iu" else image
    weights = weights.reshape(count, rows, places)
    height, width = image.shape[:2]
    y, x = np.arange(height) * rows // height, np.arange(width) * places // width  # the place of each pixel
    columns = min(columns, count + 1)
    lines = -(-(count + 1) // columns)
    size = 1.3  # inches, the width of a picture
    with drawing(path, figsize=(size * columns, (size * height / width + 0.3) * lines)) as figure:
        for n, axes in enumerate(figure.subplots(lines, columns, squeeze=False).flat):
            axes.set(xticks=[], yticks=[], frame_on=False)
            if n > count:
                axes.remove()
                continue
            picture = shown
            if n:
                light = (weights[n - 1] / max(weights[n - 1].max(), 1e-9))[y][:, x]  # (H, W)
                picture = np.minimum(0.4 * shown + 0.6 * (light if image.ndim == 2 else light[..., None]), 1)
                axes.set_title(target_tokens[n - 1], fontsize=9, color=INK, parse_math=False)
            axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    return figure


def spectrogram_alignment(
    alignment: ArrayLike,
    spectrogram: ArrayLike,
    target_tokens: Sequence[str],
    *,
    seconds: float | None = None,
    path: str | Path | None = None,
) -> Figure:
    """Draws the alignment of speech below its spectrogram, on one axis of time, as in figure 2 of Chan et al. 2016.

    The largest weight is white. The alignment may have fewer places than the spectrogram has frames: a `PyramidEncoder`
    makes one of several.

    Args:
        alignment: Weights `(T, S)`, a row for each token, over S places of equal duration.
        spectrogram: `(frames, features)`, the lowest frequency first.
        target_tokens: T labels.
        seconds: Duration of the speech; None: the axis counts frames.
        path: As in `image_alignment`.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the labels do not match the alignment, the spectrogram is no matrix, or the ending is unknown.

    Example:
        >>> figure = keras_attn.plots.spectrogram_alignment(np.eye(2, 3), np.ones((12, 8)), ["two", "six"], seconds=0.6)
        >>> [label.get_text() for label in figure.axes[1].get_yticklabels()]
        ['two', 'six']
    """
    weights, frames = as_matrix(alignment), np.asarray(spectrogram)
    if weights.shape[0] != len(target_tokens) or 0 in weights.shape or frames.ndim != 2 or 0 in frames.shape:
        raise ValueError(
            "Expected an alignment (T, S) of T tokens and a spectrogram (frames, features). Received: shapes "
            f"{weights.shape} and {frames.shape}, {len(target_tokens)} tokens"
        )
    count, end = len(weights), len(frames) if seconds is None else seconds
    with drawing(path, figsize=(4.4, 1.5 + 0.22 * count)) as figure:
        heights = {"height_ratios": [1.0, 0.22 * count]}
        upper, lower = figure.subplots(2, 1, sharex=True, gridspec_kw=heights)
        upper.pcolormesh(np.linspace(0, end, len(frames) + 1), np.arange(frames.shape[1] + 1), frames.T, cmap="gray_r")
        upper.set_yticks([])
        lower.set_facecolor("black")
        times = np.linspace(0, end, weights.shape[1] + 1)
        lower.pcolormesh(times, np.arange(count + 1), weights, cmap="gray", vmin=0)
        lower.invert_yaxis()
        lower.set_yticks(np.arange(count) + 0.5)
        lower.set_yticklabels(target_tokens, fontsize=9, color=INK, parse_math=False)
        lower.set_xlabel("frames" if seconds is None else "seconds", fontsize=9, color=INK)
        for axes in (upper, lower):
            axes.tick_params(length=0, labelsize=8.5, colors=INK)
            for spine in axes.spines.values():
                spine.set(color=GREY, linewidth=0.6)
    return figure
