"""Boxes and arrows for the diagrams of the guides, as wide as a phone, on white."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from keras_attn.plots.plot_style import BLUE, GREY, INK, ORANGE, STYLE, new_figure
from recipes.studies.figures import NARROW

WIDTH = round(96 * NARROW)  # pixels
LEFT, RIGHT, MIDDLE = 6, WIDTH - 6, WIDTH / 2
SHADE = "#F2F2F2"
TEXT = STYLE | {"svg.fonttype": "none"}  # letters as text: small files, which a reader can search and copy
_LINE = 14  # pixels from one line of a box to the next
_EDGES = {"plain": (GREY, 0.8, "-"), "chosen": (BLUE, 1.8, "-"), "frame": (ORANGE, 1.2, (0, (4, 3)))}


class Diagram:
    """A figure whose unit is a pixel, from the upper left corner. Create, draw and save it inside `rc_context(TEXT)`.

    Args:
        height: Pixels.
    """

    def __init__(self, height: float):
        self.figure: Figure = new_figure(figsize=(WIDTH / 96, height / 96))
        self._axes = self.figure.add_axes((0, 0, 1, 1))
        self._axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self._axes.axis("off")

    def text(self, x: float, y: float, text: str, *, size: float = 11, ha: str = "center", **style) -> None:
        """A line of text around the height y; in backticks, as code. `size` is in pixels."""
        is_code = len(text) > 1 and text[0] == text[-1] == "`"
        style = {"color": INK, "family": "monospace" if is_code else "sans-serif"} | style
        text = text[1:-1] if is_code else text
        size = 0.75 * (0.95 * size if is_code else size)
        self._axes.text(x, y, text, fontsize=size, ha=ha, va="center_baseline", parse_math=False, **style)

    def box(
        self, x: float, y: float, width: float, height: float, *lines: str, look: str = "plain", shade=False
    ) -> None:
        """A rectangle from (x, y) with lines in its middle, the first bold where there are more.

        Args:
            look: "plain", "chosen" (thick) or "frame" (dashed, with its only line in the upper left corner).
            shade: Whether it is grey inside.
        """
        colour, thick, dashes = _EDGES[look]
        face = SHADE if shade else "none" if look == "frame" else "white"
        self._axes.add_patch(
            Rectangle((x, y), width, height, facecolor=face, edgecolor=colour, linewidth=thick, linestyle=dashes)
        )
        if look == "frame":
            for line in lines:
                self.text(x + 6, y + 10, line, ha="left", weight="bold")
            return
        first = y + height / 2 - _LINE * (len(lines) - 1) / 2
        for n, line in enumerate(lines):
            self.text(x + width / 2, first + _LINE * n, line, weight="bold" if n == 0 and len(lines) > 1 else "normal")

    def arrow(self, start: tuple[float, float], end: tuple[float, float], label: str = "", *, bend: float = 0) -> None:
        """An arrow; its label is to the right of its middle."""
        style = {"arrowstyle": "-|>", "mutation_scale": 8, "shrinkA": 0, "shrinkB": 0}
        curve = f"arc3,rad={bend}"
        self._axes.add_patch(
            FancyArrowPatch(start, end, color=INK, linewidth=1.0, connectionstyle=curve, **style),
        )
        if label:
            self.text((start[0] + end[0]) / 2 + 6, (start[1] + end[1]) / 2, label, ha="left", size=10.5)

    def lines(self, points: Sequence[tuple[float, float]], **style) -> None:
        """Lines without heads from point to point; a point of NaN parts two of them."""
        self._axes.plot(*zip(*points, strict=True), **{"color": INK, "linewidth": 1.0} | style)


def text_style():
    """The context in which pictures of guides are drawn and saved."""
    return matplotlib.rc_context(TEXT)
