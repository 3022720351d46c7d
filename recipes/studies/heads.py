"""The attention of several models, and of each of their heads, in the same sentences.

    python -m recipes.studies.heads RUN [RUN ...] --lines 459 485 [--max-words 12] [--out FOLDER]

All models align the same words: the references of the test split, teacher-forced, so that row i is the attention that
predicts word i. For each attention the report has, over all sentences of at most --max-words words, the mean of the
largest weight of a row, and the share of words whose largest weight is on the same source word as with the first RUN;
and the alignments of the sentences of --lines. A word has the sum of its pieces' weights, or, as a row, their mean. The
BLEU is that of the models' own translations of these sentences, by a search with the default beam.

The folder gets heads.html, which highlights the aligned words under the pointer, and report.json.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_attn.cli import command, line_streaming
from keras_attn.cli.command import between, run_folder
from keras_attn.search import SearchOptions
from keras_attn.training import length_penalty, surroundings
from recipes.studies.options import add_comparison, compared, comparison

BEAM = SearchOptions.beam_size


def main(argv=None) -> int:
    parser = command.Parser("recipes.studies.heads", description=__doc__)
    option = parser.add_argument
    option("runs", metavar="RUN", nargs="+", type=run_folder, help="folders of runs, or names of presets")
    number = between(int, 1, 10**9)
    option("--lines", metavar="N", nargs="+", type=number, required=True, help="sentences to show, from 1")
    add_comparison(parser, "the first RUN")
    option("--max-words", metavar="N", type=number, help="measures sentences of at most N words (default: all)")
    option("--out", type=Path, default=Path("runs", "heads"), help="a new folder (default: %(default)s)")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    reports, corpus = compared(arguments, arguments.runs)
    measured, shown = chosen(corpus, arguments.split, arguments.max_words, arguments.lines)
    with line_streaming.new_folder(arguments.out):
        systems, panels, first = [], [], None
        for run, trained in reports.items():
            system, own, first = _measure(run, trained, measured, shown, first)
            systems.append(system)
            panels.append(own)
        _write(arguments, corpus, systems, panels, len(measured))


def chosen(corpus, split: str, max_words: int | None, lines: Sequence[int]) -> tuple[list, dict]:
    """The pairs of a split whose source has at most so many words, and those of the lines by their number, from 1.

    Raises:
        ValueError: if there is no such sentence or line, or a line is given twice.
    """
    pairs = list(zip(*corpus.splits[split], strict=True))
    if len(set(lines)) < len(lines):
        raise ValueError(f"Expected --lines that differ. Received: {' '.join(map(str, lines))}")
    if wrong := [line for line in lines if line > len(pairs) or not all(map(str.split, pairs[line - 1]))]:
        raise ValueError(
            f"Expected --lines of {split}, from 1 to {len(pairs)}, that are not blank. Received: {wrong[0]}"
        )
    measured = [(a, b) for a, b in pairs if 0 < len(a.split()) <= (max_words or math.inf) and b.split()]
    if not measured:
        raise ValueError(f"Expected sentences of at most {max_words} words. {corpus.name} {split} has none.")
    return measured, {line: pairs[line - 1] for line in lines}


def _measure(run: Path, trained: dict, measured: list, shown: dict, first: list | None) -> tuple[dict, dict, list]:
    """A model's entry in the report, its panels of the sentences that are shown, and the links to compare with."""
    from keras_attn import Translator, evaluation
    from recipes.studies.aligners import sharpness

    with command.quietly():
        translator = Translator.from_preset(run)
    translator.model.check_attention()
    heads = trained["config"].get("num_heads") or 1
    sources, references = map(list, zip(*measured, strict=True))
    options = {"beam_size": BEAM, "length_penalty": length_penalty(run, None), "return_alignments": False}
    found = translator.generate(sources, **options)
    score = evaluation.bleu([one.text for one in found], references, trained["config"].get("tokenize", "13a"))
    entries, panels = [], {}
    several = attentions(translator, [*measured, *shown.values()], heads)
    for name, own in several.items():
        weights = [panel.alignment for panel in own[: len(measured)]]
        linked = [one[:-1].argmax(axis=1) for one in weights]  # without the end of the sentence
        first = linked if first is None else first
        same = np.concatenate([a == b for a, b in zip(linked, first, strict=True)])
        panels[name] = own[len(measured) :]
        entries.append(
            {
                "name": name,
                "largest_weight": round(sharpness(weights)["largest_weight"], 3),
                "same_word": round(100 * float(same.mean()), 1),
                "per_mille": [per_mille(panel.alignment) for panel in panels[name]],
            }
        )
    system = {key: trained.get(key) for key in ("command", "seed", "parameters")}
    bleu = {"score": round(score.score, 2), "signature": score.signature}
    return {"name": trained["recipe"], **system, "bleu": bleu, "attentions": entries}, panels, first


def attentions(translator, pairs: Sequence[tuple[str, str]], heads: int) -> dict[str, list]:
    """The alignments between the words of given translations: the model's, and if it has several heads, each one's.

    Args:
        translator: A `keras_attn.Translator`.
        pairs: Sources and their translations.
        heads: The number of heads of each attention layer.
    """
    from recipes.studies.aligners import panels_of

    texts = [list(side) for side in zip(*pairs, strict=True)]
    forced = translator.score(*texts, each_head=True)
    count = len(forced[0].head_alignments)
    by_name = {f"mean of {count} heads" if count > 1 else "": [one.alignment for one in forced]}
    for number in range(count if count > 1 else 0):
        layer, head = divmod(number, heads)
        parts = [f"layer {layer + 1}"] * (count > heads) + [f"head {head + 1}"] * (heads > 1)
        by_name[", ".join(parts)] = [one.head_alignments[number] for one in forced]
    return {name: panels_of(translator, forced, own, *texts) for name, own in by_name.items()}


def per_mille(alignment: np.ndarray) -> str:
    """The weights in thousandths, row by row, as a string that is small in a report."""
    return "; ".join(" ".join(str(round(1000 * float(weight))) for weight in row) for row in alignment)


def weights(attention: dict, sentence: int) -> list[list[float]]:
    """The alignment `(T, S)` of a sentence, by its number from 0, in the report's entry of an attention."""
    return [[int(weight) / 1000 for weight in row.split()] for row in attention["per_mille"][sentence].split(";")]


def named(system: dict, attention: int = 0) -> str:
    """The name of a model in the report with that of one of its attentions: "transformer, mean of 8 heads"."""
    return ", ".join(filter(None, (system["name"], system["attentions"][attention]["name"])))


def _write(arguments, corpus, systems: list[dict], panels: list[dict], count: int) -> None:
    from keras_attn.training import report

    labels = next(iter(panels[0].values()))
    sentences = [
        {"line": line, "source": list(words.source_tokens), "target": list(words.target_tokens)}
        for line, words in zip(arguments.lines, labels, strict=True)
    ]
    own = ["--lines", *map(str, arguments.lines)]
    own += ["--max-words", str(arguments.max_words)] if arguments.max_words else []
    figures = comparison("heads", arguments, arguments.runs, corpus, own) | {
        "max_words": arguments.max_words,
        "beam_size": BEAM,
        "measured": count,
        "sentences": sentences,
        "systems": systems,
    }
    (arguments.out / "heads.html").write_text(_page(figures, panels), encoding="utf-8")
    report.write(arguments.out / "report.json", figures | surroundings())
    print(f"The study is in {arguments.out}: report.json and heads.html.")


def _page(figures: dict, panels: list[dict]) -> str:
    from keras_attn import plots

    comparisons = []
    for number, sentence in enumerate(figures["sentences"]):
        systems = [
            (named(system, n), own[number])
            for system, by_name in zip(figures["systems"], panels, strict=True)
            for n, own in enumerate(by_name.values())
        ]
        comparisons.append(plots.SentenceComparison(f"{figures['split']} {sentence['line']:,}", [], systems))
    note = (
        f"Sentences of {figures['corpus']} and their reference translations. Each model was given the translation, and "
        "attends to the source before each of its words; several heads are shown by their mean and one by one."
    )
    languages = {"source_language": figures["source"], "target_language": figures["target"]}
    return plots.comparison_page(comparisons, title="The attention of each model and each head", note=note, **languages)


if __name__ == "__main__":
    sys.exit(main())
