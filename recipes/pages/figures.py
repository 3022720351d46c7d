"""The figure of the guide to attention, docs/guides/attention.md, drawn from the shipped preset.

    python -m recipes.pages.figures [--output docs/guides/attention.svg]

The alignment of a sentence as a table of weights, and for one of its words scores and alignment as bars.
"""

import argparse
import sys
from pathlib import Path

from keras_attn.cli import command

ROOT = Path(__file__).parents[2]
SENTENCE, WORD = "The queen forgot the black orange.", "orange"
ALT = (
    "A table of the weights with which each French word attends to the English ones, and for “orange” its scores and "
    "its alignment as bars: the softmax leaves 0.81 for “orange” and 0.18 for “black”"
)


def main(argv=None) -> int:
    parser = command.Parser("recipes.pages.figures", description=__doc__.splitlines()[0])
    path = ROOT / "docs" / "guides" / "attention.svg"
    parser.add_argument("--output", type=Path, default=path, metavar="FILE", help=".svg, .png or .pdf")
    return command.run(draw, parser, argv)


def draw(arguments: argparse.Namespace) -> None:
    from keras_attn import Translator
    from keras_attn.plots.plot_style import check_ending

    check_ending(arguments.output)
    with command.quietly():
        translator = Translator.from_preset("phrases_en_fr")
    attention(*explained(translator, SENTENCE, WORD), arguments.output)
    print(f"The figure is in {arguments.output}.")


def explained(translator, sentence: str, word: str):
    """A translation, the number i of a token in it, and e_ij for all source tokens j.

    Args:
        translator: A `keras_attn.Translator` with a model of one attention layer that attends before the cell.
        sentence: The source.
        word: The token of the translation.
    """
    import numpy as np
    from keras import ops

    (translation,) = translator.generate([sentence])
    step, model = translation.tokens.index(word), translator.model
    memory, state = model.encode(ops.convert_to_tensor([translation.source_token_ids], dtype="int32"))
    for token_id in (model.target_special_ids.start, *translation.token_ids)[:step]:
        _, state, _ = model.step(ops.convert_to_tensor([token_id], dtype="int32"), memory, state)
    (attention,) = model.decoder.attentions
    scores = attention.scores(state["cell"][0], memory["keys"][0])  # (1, S)
    return translation, step, np.array(ops.convert_to_numpy(scores)[0])


def attention(translation, step: int, scores, path: Path, *, narrow: bool = False) -> None:
    """Draws what `explained` returns.

    Args:
        translation, step, scores: The translation, the number of a token, and its scores.
        path: The file to write, in the format of its ending.
        narrow: Whether it is for a phone, with the bars below the table.
    """
    import matplotlib
    import numpy as np
    from matplotlib.patches import Rectangle

    from keras_attn.plots.plot_style import BLUE, GREY, INK, ORANGE, STYLE, new_figure, plain_axes, save
    from recipes.studies.figures import NARROW

    sources = [token.replace("▁", "") for token in translation.source_tokens]
    targets = [token.replace("▁", "") for token in translation.tokens]
    places = np.arange(len(sources))
    with matplotlib.rc_context(STYLE):
        figure = new_figure(figsize=(NARROW, 7.6) if narrow else (8.4, 4.6), layout="constrained")
        below = {"mosaic": [["table"], ["e"], ["alpha"]], "height_ratios": [2, 1, 1]}
        beside = {"mosaic": [["table", "e"], ["table", "alpha"]], "width_ratios": [1.1, 1]}
        table, upper, lower = figure.subplot_mosaic(**below if narrow else beside).values()
        table.imshow(translation.alignment, cmap="Greys", vmin=0, vmax=1, aspect="auto")
        for (i, j), weight in np.ndenumerate(translation.alignment):
            if weight >= 0.005:  # as text, so that no shade has to be told from another
                ink = "white" if weight > 0.6 else INK
                table.text(j, i, f"{weight:.2f}", ha="center", va="center", fontsize=8, color=ink)
        table.add_patch(Rectangle((-0.5, step - 0.5), len(sources), 1, fill=False, edgecolor=ORANGE, linewidth=2.2))
        turned = {"rotation": 90 if narrow else 0}
        table.set_xticks(places, sources, fontsize=9, color=INK, **turned)
        table.set_yticks(range(len(targets)), targets, fontsize=9, color=INK)
        table.xaxis.tick_top()
        table.tick_params(length=0)
        table.spines[:].set(color=GREY, linewidth=0.8)
        rows = (upper, scores, BLUE, "Scores"), (lower, translation.alignment[step], ORANGE, "Alignment")
        symbols = "$e_{ij}$", r"$\alpha_{ij}$" + ("" if narrow else " = softmax of the scores")
        for (axes, values, colour, name), symbol in zip(rows, symbols, strict=True):
            bars = axes.bar(places, values, color=colour, width=0.62)
            numbers = [f"{value:.2f}" for value in values]
            axes.bar_label(bars, numbers, padding=2, fontsize=7 if narrow else 8, color=INK)
            axes.set_xticks(places, sources, **turned)
            axes.set_title(f"{name} of “{targets[step]}”: {symbol}", loc="left", fontsize=10, color=INK, pad=8)
            axes.margins(y=0.18)
            plain_axes(axes)
        upper.axhline(0, color=GREY, linewidth=0.8)
        save(figure, path)


if __name__ == "__main__":
    sys.exit(main())
