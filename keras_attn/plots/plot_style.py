"""The palette and style of all pictures, and reproducible files.

Figures are made without pyplot, so that no window, backend or other global state is touched.
"""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
# Okabe and Ito's palette, distinguishable for colour-blind readers and in grey.
INK, GREY, BLUE, ORANGE = "#222222", "#8A8A8A", "#0072B2", "#D55E00"
STYLE = {"svg.hashsalt": "keras_attn", "axes.unicode_minus": True}


def plain_axes(axes, grid: str = "y") -> None:
    """Removes everything around the data except a base line and a faint grid."""
    axes.tick_params(labelsize=8.5, length=0, colors=INK)
    axes.grid(axis=grid, color="#E4E4E4", linewidth=0.7)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set(visible=side == "bottom", color=GREY, linewidth=0.8)


def check_ending(path: str | Path | None) -> None:
    """Raises ValueError unless the path ends in .png, .svg or .pdf; None is allowed."""
    if path is not None and Path(path).suffix.lower() not in ENDINGS:
        raise ValueError(f"Expected a file name that ends in {', '.join(ENDINGS)}. Received: {str(path)!r}")


def save(figure: Figure, path: str | Path | None) -> Figure:
    """Writes the figure to `path`, unless that is None, and returns it."""
    if path is not None:
        # Without a date, so that equal pictures give equal files.
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(Path(path).suffix.lower())
        with matplotlib.rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
            figure.savefig(path, metadata=metadata)
    return figure


@contextlib.contextmanager
def drawing(path: str | Path | None, layout: str | None = "constrained", **options: Any) -> Iterator[Figure]:
    """Gives an empty white figure to draw in the block, and writes it to `path` at its end, unless that is None.

    Raises:
        ValueError: If the ending of `path` is unknown.
    """
    check_ending(path)
    with matplotlib.rc_context(STYLE):
        figure = Figure(dpi=200, facecolor="white", layout=layout, **options)
        FigureCanvasAgg(figure)
        yield figure
    save(figure, path)
