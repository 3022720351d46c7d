"""The figures of the studies, each made from the report of the study of this name alone.

All functions have an argument `path`, the file to write in the format of its ending; None: none. Those with `narrow`
draw for a phone, too: `NARROW` wide, with legends, panels or parts of names below each other.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from keras_attn import plots
from keras_attn.plots import WordAlignment
from keras_attn.plots.plot_style import BLUE, GREY, INK, ORANGE, drawing, plain_axes
from recipes.studies.heads import named, weights

_RECIPE_COLOURS = {"rnnsearch": BLUE, "rnnencdec": ORANGE}
_SYSTEM_COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's
NARROW = 3.4  # inches: what a phone of 360 pixels has between its margins
_BESIDE = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}  # places of a legend
_BELOW = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": 2}
_MARKS = {  # of a single model, and of ensembles
    "single": {"marker": "o", "markersize": 4.5},
    "probability": {"marker": "o", "markersize": 7, "fillstyle": "none"},
    "vote": {"marker": "x", "markersize": 6},
}


def length(report: dict, path: Path | None = None, *, narrow: bool = False) -> Figure:
    """BLEU against source length as in figure 2 of Bahdanau 2015, each system in its bootstrap interval."""
    x = [one["mean_words"] for one in report["bins"]]
    with drawing(path, figsize=(NARROW, 4.2) if narrow else (6.4, 4.0)) as figure:
        axes = figure.add_subplot()
        for limit in sorted({system["max_words"] for system in report["systems"]}):
            axes.axvline(limit, color=GREY, linewidth=0.8, linestyle=":")
        for system in report["systems"]:
            colour = _RECIPE_COLOURS[system["recipe"]]
            is_short = system["max_words"] == min(one["max_words"] for one in report["systems"])
            bleu, low, high = ([one[name] for one in system["bins"]] for name in ("bleu", "low", "high"))
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
            style = {"linestyle": "--" if is_short else "-", "marker": "o", "markersize": 3.5, "linewidth": 1.8}
            axes.plot(x, bleu, color=colour, label=system["name"], **style)
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, report["bins"][-1]["words"][1])
        axes.set_xlabel("source length in words", fontsize=9, color=INK)
        axes.set_title("BLEU", loc="left", fontsize=10.5, color=INK, pad=9)
        plain_axes(axes)
        _legend(axes, **_BELOW if narrow else _BESIDE)
    return figure


def _legend(axes, **place) -> None:
    """Lists the systems in the order of the ends of their lines, the highest first."""
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(handles)), key=lambda n: -handles[n].get_ydata()[-1])
    chosen = [[one[n] for n in order] for one in (handles, labels)]
    axes.legend(*chosen, frameon=False, fontsize=9, labelcolor=INK, **place)


def attention(report: dict, path: Path | None = None, *, narrow: bool = False) -> Figure:
    """The score functions in the order of their BLEU: BLEU with its interval, perplexity, entropy of the alignment."""
    rows = sorted(report["scores"], key=lambda row: row["bleu"]["score"])
    y, height = range(len(rows)), 0.8 + 0.3 * len(rows)
    panels = [
        ("BLEU", [row["bleu"]["score"] for row in rows], BLUE),
        ("Perplexity", [row["perplexity"] for row in rows], GREY),
        ("Entropy of the alignment, nats", [row["sharpness"]["entropy"] for row in rows], ORANGE),
    ]
    with drawing(path, figsize=(NARROW, 2.4 * height) if narrow else (9.0, height)) as figure:
        shape = (3, 1) if narrow else (1, 3)
        for axes, (title, x, colour) in zip(figure.subplots(*shape, sharey=True), panels, strict=True):
            if title == "BLEU":
                low, high = ([row["bleu"][name] for row in rows] for name in ("low", "high"))
                axes.hlines(y, low, high, color=colour, alpha=0.35, linewidth=3)
            axes.plot(x, y, "o", color=colour, markersize=5.5)
            axes.set_yticks(y, [row["name"] for row in rows])
            axes.set_title(title, loc="left", fontsize=10, color=INK, pad=8)
            axes.margins(y=0.6 / len(rows))
            plain_axes(axes, grid="both")
    return figure


def alignment(report: dict, path: Path | None = None, *, narrow: bool = False) -> Figure:
    """Alignment error rates as bars, the best at the top; baselines are grey."""
    rows = [(row["name"], row["test"]["aer"], BLUE) for row in report["systems"]]
    rows += [(row["name"], row["test"]["aer"], GREY) for row in report["baselines"]]
    names, rates, colours = zip(*sorted(rows, key=lambda row: -row[1]), strict=True)
    names = [name.replace(", ", ",\n") for name in names] if narrow else names
    size = (NARROW, 0.8 + 0.38 * len(rows)) if narrow else (6.4, 0.8 + 0.32 * len(rows))
    with drawing(path, figsize=size) as figure:
        axes = figure.add_subplot()
        bars = axes.barh(range(len(rows)), rates, color=colours, height=0.62)
        axes.bar_label(bars, fmt="%.1f", padding=4, fontsize=8.5, color=INK)
        axes.margins(x=0.2 if narrow else 0.1)
        axes.set_yticks(range(len(rows)), names)
        axes.set_title("Alignment error rate, %", loc="left", fontsize=10, color=INK, pad=8)
        plain_axes(axes, grid="x")
    return figure


def ingredients(report: dict, path: Path | None = None) -> Figure:
    """The difference in BLEU that each ingredient makes, with interval and single seeds, the best at the top."""
    base = report["ingredients"][0]["bleu"]["mean"]
    rows = sorted(report["ingredients"][1:], key=lambda row: row["difference"])
    with drawing(path, figsize=(6.4, 0.9 + 0.32 * len(rows))) as figure:
        axes = figure.add_subplot()
        axes.axvline(0, color=GREY, linewidth=0.8)
        for y, row in enumerate(rows):
            seeds = [score - base for score in row["bleu"]["scores"]]
            if row["interval"] is not None:
                ends = row["difference"] - row["interval"], row["difference"] + row["interval"]
                axes.hlines(y, *ends, color=BLUE, alpha=0.35, linewidth=3)
            axes.plot(seeds, [y] * len(seeds), "|", color=ORANGE, markersize=8)
            axes.plot(row["difference"], y, "o", color=BLUE, markersize=5.5)
        axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
        title = f"BLEU, difference from the base ({base:.2f})"
        axes.set_title(title, loc="left", fontsize=10, color=INK, pad=8)
        axes.margins(y=0.6 / max(1, len(rows)))
        plain_axes(axes, grid="both")
    return figure


def low_resource(report: dict, path: Path | None = None) -> Figure:
    """BLEU against the number of training pairs, the plain system and the adapted one, each with its interval."""
    sizes = sorted({row["size"] for row in report["systems"]})
    with drawing(path, figsize=(6.4, 4.0)) as figure:
        axes = figure.add_subplot()
        for kind, colour in (("plain", GREY), ("adapted", BLUE)):
            rows = sorted((row for row in report["systems"] if row["kind"] == kind), key=lambda row: row["size"])
            x, y = [row["size"] for row in rows], [row["bleu"]["mean"] for row in rows]
            widths = [row["bleu"]["interval"] or 0 for row in rows]
            axes.errorbar(
                x, y, yerr=widths, color=colour, label=kind, marker="o", markersize=4, linewidth=1.8, capsize=3
            )
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("training pairs", fontsize=9, color=INK)
        axes.set_title("BLEU", loc="left", fontsize=10.5, color=INK, pad=9)
        plain_axes(axes)
        axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="lower right")
    return figure


def g2p(report: dict, path: Path | None = None) -> Figure:
    """Word error rates of each language: the task's baseline as a bar, and a lane of marks for each system.

    A dot is the mean of the single models, with a tick for each seed; a ring and a cross are ensembles.
    """
    rows = [(row["language"], row) for row in report["languages"]]
    rows = [*rows, *((f"mean, {row['amount']}", row) for row in report["means"])][::-1]
    systems = list(dict.fromkeys(one["name"] for _, row in rows for one in row["scores"]))
    with drawing(path, figsize=(7.4, 1.2 + (0.14 + 0.11 * len(systems)) * len(rows))) as figure:
        axes = figure.add_subplot()
        axes.barh(range(len(rows)), [row["baseline"] for _, row in rows], color=GREY, alpha=0.3, height=0.8)
        for n, system in enumerate(systems):
            colour, lane = _SYSTEM_COLOURS[n % len(_SYSTEM_COLOURS)], 0.4 - 0.8 * (n + 0.5) / len(systems)
            axes.plot([], [], "o", color=colour, label=system)
            for y, (_, row) in enumerate(rows):
                for one in (one for one in row["scores"] if one["name"] == system):
                    seeds = one["wer"].get("scores", [])
                    axes.plot(seeds, [y + lane] * len(seeds), "|", color=colour, markersize=5)
                    axes.plot(one["wer"]["mean"], y + lane, color=colour, **_MARKS[one["kind"]])
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        title = "Word error rate, % (bar: the baseline; dot: single; ring: ensemble by probability; cross: by vote)"
        axes.set_title(title, loc="left", fontsize=9, color=INK, pad=8)
        axes.margins(y=0.3 / len(rows))
        axes.set_xlim(left=-0.5)
        plain_axes(axes, grid="x")
        axes.legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def heads(report: dict, sentence: int, path: Path | None = None, *, of: str | None = None) -> Figure:
    """The alignments of a sentence, as wide as a phone if it is short: each model's, or those of each head of one.

    Args:
        sentence: its number in the report, from 0.
        of: name of the model whose heads are drawn, two in a row; None: the models, below each other.
    """
    words = report["sentences"][sentence]
    if of is None:
        shown = [(named(system), system["attentions"][0]) for system in report["systems"]]
        columns, cell = 1, 0.28  # inches
    else:
        (system,) = (system for system in report["systems"] if system["name"] == of)
        shown = [(one["name"], one) for one in system["attentions"][1:]]
        columns, cell = 2, 0.16
    panels = []
    for number, (_, one) in enumerate(shown):
        labels = [list(words[side]) for side in ("source", "target")]
        if of is not None:  # heads have the labels of the first row and of the first column
            labels = [
                row if outer else [""] * len(row)
                for row, outer in zip(labels, (number < columns, number % columns == 0), strict=True)
            ]
        panels.append(WordAlignment(weights(one, sentence), *labels))
    return plots.alignments(panels, path=path, columns=columns, titles=[title for title, _ in shown], cell=cell)


def lecture(report: dict, path: Path | None = None) -> Figure:
    """A table of the accuracies of each score in each task, blue where it is high."""
    rows, tasks = report["scores"], [name for name in report["scores"][0] if name != "name"]
    return _table(rows, tasks, path, height=3.4)


def head_roles(report: dict, path: Path | None = None) -> Figure:
    """A table of the shares of each role in each head's weights, blue where it is high."""
    return _table(report["rows"], [name for name in report["rows"][0] if name != "name"], path, height=6.4, rotation=60)


def relations(report: dict, path: Path | None = None) -> Figure:
    """A table of where each head of the first seed looks from "it" and from the adjective, blue where it is high."""
    rows = report["runs"][0]["rows"]
    return _table(rows, [name for name in rows[0] if name != "name"], path, height=6.4, rotation=60)


def pronoun_rows(report: dict, number: int, path: Path | None = None) -> Figure:
    """The rows of "it", or of cross attention before its translation, in the heads of the first seed."""
    run = report["runs"][0]
    rows, words = weights(run, number), report["sentences"][number % len(report["sentences"])].split()
    return plots.relations(np.reshape(rows, (run["layers"], -1, 1, len(words))), words, 0, cell=0.17, path=path)


def _table(rows: Sequence[dict], names: Sequence[str], path: Path | None, *, height: float, rotation=0) -> Figure:
    """A table of percentages of rows with a name; None: an empty cell."""
    with drawing(path, figsize=(NARROW, height)) as figure:
        axes = figure.add_subplot()
        for y, row in enumerate(rows):
            for x, value in ((x, row[name]) for x, name in enumerate(names) if row[name] is not None):
                axes.add_patch(Rectangle((x, y), 0.96, 0.92, color=BLUE, alpha=value / 100, linewidth=0))
                colour = "white" if value > 60 else INK
                axes.text(x + 0.48, y + 0.46, f"{value:.0f}", ha="center", va="center", fontsize=8.5, color=colour)
        axes.set(xlim=(0, len(names)), ylim=(len(rows), 0))
        axes.set_xticks([x + 0.48 for x in range(len(names))], names, rotation=rotation)
        axes.set_yticks([y + 0.46 for y in range(len(rows))], [row["name"] for row in rows])
        axes.xaxis.tick_top()
        axes.tick_params(labelsize=8.5, length=0, colors=INK)
        axes.spines[:].set_visible(False)
    return figure


def pruned_heads(report: dict, path: Path | None = None) -> Figure:
    """BLEU without more and more heads; the colours are those of the attention of the head that is removed."""
    scores = [report["complete"]["score"], *(row["bleu"] for row in report["pruned"])]
    with drawing(path, figsize=(NARROW, 2.8)) as figure:
        axes = figure.add_subplot()
        axes.plot(scores, color=GREY, linewidth=1.2)
        for kind, colour in zip(("encoder", "decoder", "cross"), (BLUE, ORANGE, "#009E73"), strict=True):
            x = [n + 1 for n, row in enumerate(report["pruned"]) if row["name"].startswith(kind)]
            axes.plot(x, [scores[n] for n in x], "o", color=colour, markersize=4.5, label=kind)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("heads removed", fontsize=9, color=INK)
        axes.set_title("BLEU", loc="left", fontsize=10, color=INK)
        axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
        plain_axes(axes)
    return figure


def lecture_attentions(report: dict, of: str, path: Path | None = None) -> Figure:
    """The alignments of one item: of each head ("heads"), or the Transformer's three attentions ("transformer")."""
    if of == "heads":
        found = report["heads"][-1]
        titles = [f"head {n + 1}" for n in range(found["heads"])]
        positions = [str(n + 1) for n in range(len(weights(found, 0)))]
        labels = [(positions, positions)] * found["heads"]
    else:
        found = report["transformer"]
        titles = ["encoder", "decoder", "cross"]
        source, target = list(found["word"]), ["<s>", *found["word"][:0:-1]]
        labels = [(source, source), (target, target), (source, target)]
    panels = [WordAlignment(weights(found, n), *words) for n, words in enumerate(labels)]
    return plots.alignments(panels, path=path, columns=2, titles=titles, cell=0.13 if of == "heads" else 0.2)
