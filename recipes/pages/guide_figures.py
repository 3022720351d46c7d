"""The charts of the guides: of committed reports, and of alignments."""

import numpy as np
from matplotlib.figure import Figure

from keras_attn.plots.plot_style import BLUE, GREY, INK, ORANGE, new_figure, plain_axes
from recipes.studies.figures import NARROW

_TITLE = {"loc": "left", "fontsize": 10, "color": INK, "pad": 8}


def models(panels: dict[str, list[dict]]) -> Figure:
    """BLEU of the models as bars with their numbers; those without attention are grey and say so.

    Args:
        panels: Reports of trainings, under a title for each corpus.
    """
    names = [len(reports) for reports in panels.values()]
    figure = new_figure(figsize=(NARROW, 0.9 + 0.36 * sum(names)), layout="constrained")
    for axes, (title, reports) in zip(
        figure.subplots(len(panels), gridspec_kw={"height_ratios": names}), panels.items(), strict=True
    ):
        reports = sorted(reports, key=lambda report: report["bleu"]["score"])
        has = [report["recipe"] not in ("rnnencdec", "lstm_seq2seq") for report in reports]
        scores = [report["bleu"]["score"] for report in reports]
        bars = axes.barh(range(len(reports)), scores, color=[BLUE if one else GREY for one in has], height=0.62)
        axes.bar_label(bars, [f"{score:.1f}" for score in scores], padding=3, fontsize=8.5, color=INK)
        labels = [_name(report) + ("" if one else ",\nno attention") for report, one in zip(reports, has, strict=True)]
        axes.set_yticks(range(len(reports)), labels)
        axes.set_title(title, **_TITLE)
        axes.set_xlim(0, 112 if max(scores) > 60 else 48)
        plain_axes(axes, grid="x")
    return figure


def _name(report: dict) -> str:
    return report["recipe"] + (",\nboth directions" if report["config"].get("bidirectional") else "")


def intervals(report: dict) -> Figure:
    """BLEU of systems with the interval of each; the band is that of the best one.

    Args:
        report: Of `recipes.studies.attention`.
    """
    rows = sorted(report["scores"], key=lambda row: row["bleu"]["score"])
    low, high = (rows[-1]["bleu"][name] for name in ("low", "high"))
    figure = new_figure(figsize=(NARROW, 0.9 + 0.3 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    axes.axvspan(low, high, color="#E4E4E4", linewidth=0)
    for y, row in enumerate(rows):
        bleu = row["bleu"]
        axes.plot([bleu["low"], bleu["high"]], [y, y], color=BLUE, linewidth=2, solid_capstyle="butt")
        axes.plot(bleu["score"], y, "o", color=BLUE, markersize=5)
        axes.text(bleu["score"], y + 0.22, f"{bleu['score']:.1f}", ha="center", va="bottom", fontsize=8, color=INK)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_ylim(-0.5, len(rows) - 0.2)
    axes.set_title("BLEU with its 95 % interval", **_TITLE)
    plain_axes(axes, grid="x")
    return figure


def backends(rows: list[dict]) -> Figure:
    """Rates of training and decoding on each backend, with a tick for JoeyNMT, measured beside it.

    Args:
        rows: Of recipes/reports/speed.jsonl.
    """
    panels = (
        ("train", "target_tokens_per_second", "Training, target tokens/s"),
        ("decode", "sentences_per_second", "Translating, beam 5, sentences/s"),
        ("decode", "single_sentence_ms", "One sentence, beam 5, ms"),
    )
    order = ("torch", "jax", "tensorflow")
    figure = new_figure(figsize=(NARROW, 4.6), layout="constrained")
    for axes, (benchmark, column, title) in zip(figure.subplots(len(panels)), panels, strict=True):
        found = {row["backend"]: row for row in rows if row["benchmark"] == benchmark}
        values = [found[name][column] for name in order]
        axes.barh(order, values, color=BLUE, height=0.6)
        for y, value in enumerate(values):
            style = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center"}
            axes.text(1.0, y, f"{value:,}", fontsize=8.5, color=INK, **style)
        peers = [found[name]["peer"].get(column) for name in order]
        for y, peer in enumerate(peers):
            if peer:
                axes.vlines(peer, y - 0.42, y + 0.42, color=ORANGE, linewidth=2.2)
        axes.set_title(title, **_TITLE)
        axes.margins(x=0.3)
        plain_axes(axes, grid="x")
    figure.supxlabel("Upright line: JoeyNMT 2.3, measured beside it", fontsize=8.5, color=INK)
    return figure


def performance(training: list[dict], sweep: list[dict], speed: list[dict]) -> Figure:
    """What the sizes of batch, vocabulary and beam, and batches of sentences, are worth: bars with their numbers.

    Args:
        training: The cases of docs/scaling.json.
        sweep: The rows of `recipes.evaluate`'s report of beams and length penalties.
        speed: Of recipes/reports/speed.jsonl.
    """
    cases = {(row["length"], row["vocabulary"], row["batch"]): row["target_tokens_per_second"] for row in training}
    trained = {
        "8 sentences a batch": cases[16, 8000, 8],
        "128 sentences a batch": cases[16, 8000, 128],
        "vocabulary of 32,000": cases[16, 32000, 32],
        "vocabulary of 2,000": cases[16, 2000, 32],
    }
    beams = {row["beam_size"]: row for row in sweep if row["beam_size"] == 1 or row["length_penalty"] == 0.5}
    searched = {f"beam {n}: {row['bleu']['score']:.1f} BLEU": row["seconds"] for n, row in sorted(beams.items())}
    decoded = {row["backend"]: row for row in speed if row["benchmark"] == "decode"}
    together = {}
    for name, row in decoded.items():
        together[f"{name}, one by one"] = 1000 / row["single_sentence_ms"]
        together[f"{name}, 128 at once"] = row["sentences_per_second"]
    panels = {
        "Training: tokens/s": trained,
        "A test set: seconds": searched,
        "Beam 5: sentences/s": together,
    }
    heights = [len(bars) for bars in panels.values()]
    figure = new_figure(figsize=(NARROW, 1.5 + 0.27 * sum(heights)), layout="constrained")
    axes_of = figure.subplots(len(panels), gridspec_kw={"height_ratios": heights})
    for axes, (title, bars) in zip(axes_of, panels.items(), strict=True):
        drawn = axes.barh(list(bars), list(bars.values()), color=BLUE, height=0.62)
        axes.bar_label(drawn, [f"{value:,.0f}" for value in bars.values()], padding=3, fontsize=8.5, color=INK)
        axes.invert_yaxis()
        axes.set_title(title, **_TITLE)
        axes.margins(x=0.2)
        plain_axes(axes, grid="x")
    return figure


def unlearned(trained, flat) -> Figure:
    """Two alignments of the same sentence side by side: 0 black, 1 white.

    Args:
        trained, flat: A title, and a `WordAlignment`.
    """
    figure = new_figure(figsize=(NARROW, 2.9), layout="constrained")
    columns = figure.subplots(1, 2)
    for axes, (title, words) in zip(columns, (trained, flat), strict=True):
        axes.set_facecolor("black")  # visible where a viewer smooths the edges between squares
        axes.pcolormesh(words.alignment, cmap="gray", vmin=0, vmax=1, antialiased=False)
        axes.invert_yaxis()
        axes.xaxis.tick_top()
        axes.set_xticks(np.arange(len(words.source_tokens)) + 0.5, words.source_tokens, rotation=90)
        axes.set_yticks(np.arange(len(words.target_tokens)) + 0.5, words.target_tokens)
        axes.tick_params(length=0, labelsize=8, labelcolor=INK)
        axes.set_xlabel(title, fontsize=8.5, color=INK)
        axes.spines[:].set(color=GREY, linewidth=0.6)
    return figure
