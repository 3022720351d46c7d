"""Long sentences whose second half a fixed context loses, and attention does not, side by side.

    python -m recipes.studies.showcase RUN_FIXED RUN_ATTENTION [--min-words 30] [--out FOLDER]

A translation and its reference are each split in the middle of their words, and chrF compares the second halves (and
the first). The examples are the sentences of the test split whose second half is translated worse than the first by the
model with the fixed context, such as RNNencdec, in the order of how much better the model with attention translates
that half. From English to French the sentence of section 5.2.2 of Bahdanau, Cho, Bengio (ICLR 2015) is added.

The folder gets showcase.html, which highlights the aligned words under the pointer, and report.json.
"""

import argparse
import dataclasses
import sys
from pathlib import Path

from keras_attn.cli import command, line_streaming
from keras_attn.cli.command import between
from keras_attn.search import SearchOptions
from keras_attn.training import length_penalty, surroundings
from recipes.studies.options import add_comparison, compared, comparison

EXAMPLES = 10  # shown at most
PAPER = (
    "An admitting privilege is the right of a doctor to admit a patient to a hospital or a medical centre to carry out "
    "a diagnosis or a procedure, based on his status as a health care worker at a hospital."
)


def main(argv=None) -> int:
    parser = command.Parser("recipes.studies.showcase", description=__doc__)
    option = parser.add_argument
    option("fixed", metavar="RUN_FIXED", type=Path, help="folder of a run, such as rnnencdec's")
    option("attention", metavar="RUN_ATTENTION", type=Path, help="folder of a run, such as rnnsearch's")
    add_comparison(parser, "RUN_ATTENTION")
    option("--min-words", metavar="N", type=between(int, 2, 10**6), default=30, help="default: %(default)s")
    beam = {"type": between(int, 1, 1000), "default": SearchOptions.beam_size}
    option("--beam", metavar="N", **beam, help="default: %(default)s")
    option("--out", type=Path, default=Path("runs", "showcase"), help="a new folder (default: %(default)s)")
    return command.run(run_study, parser, argv)


def run_study(arguments: argparse.Namespace) -> None:
    runs = arguments.fixed, arguments.attention
    reports, corpus = compared(arguments, runs, first=1)
    rows = sentences(corpus, arguments.split, arguments.min_words)
    with line_streaming.new_folder(arguments.out):
        for run, one in reports.items():
            _translate(run, one.get("recipe", run.resolve().name), rows, arguments.beam)
        _write(arguments, corpus, list(reports.values()), rows)


@dataclasses.dataclass
class Sentence:
    """A sentence with its heading, and for each system its translation with the chrF of its two halves."""

    heading: str
    source: str
    reference: str | None
    translations: list[dict] = dataclasses.field(default_factory=list)
    panels: list = dataclasses.field(default_factory=list)  # (name, keras_attn.plots.WordAlignment)


def sentences(corpus, split: str, min_words: int) -> list[Sentence]:
    """The long sentences of a split; from English to French also the paper's.

    Raises:
        ValueError: if there is no such sentence.
    """
    pairs = enumerate(zip(*corpus.splits[split], strict=True), start=1)
    rows = [Sentence(f"{split} {n:,}", *pair) for n, pair in pairs if len(pair[0].split()) >= min_words]
    if not rows:
        raise ValueError(f"Expected sentences of at least {min_words} words. {corpus.name} {split} has none.")
    is_paper = (corpus.source, corpus.target) == ("en", "fr")
    return [Sentence("Bahdanau 2015, section 5.2.2", PAPER, None)] * is_paper + rows


def _translate(run: Path, name: str, rows: list[Sentence], beam_size: int) -> None:
    from keras_attn import Translator, plots

    with command.quietly():
        translator = Translator.from_preset(run)
    options = {"beam_size": beam_size, "length_penalty": length_penalty(run, None)}
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    translations = translator.generate([row.source for row in rows], **options)
    for row, translation in zip(rows, translations, strict=True):
        halves = chrf_of_halves(translation.text, row.reference) if row.reference else (None, None)
        row.translations.append(
            {"name": name, "translation": translation.text, "first": halves[0], "second": halves[1]}
        )
        scores = f": chrF {halves[0]:.1f} of the first half, {halves[1]:.1f} of the second" if row.reference else ""
        row.panels.append((name + scores, plots.align_words(translation, *tokenizers, row.source)))


def _write(arguments, corpus, reports: list[dict], rows: list[Sentence]) -> None:
    from keras_attn.training import report

    scored = [row for row in rows if row.reference]
    chosen = ranked(scored)
    shown = [row for row in rows if not row.reference] + chosen[:EXAMPLES]
    systems = [
        {"name": scored[0].translations[n]["name"], "command": one.get("command"), "parameters": one.get("parameters")}
        | {
            half: round(sum(row.translations[n][half] for row in scored) / len(scored), 2)
            for half in ("first", "second")
        }
        for n, one in enumerate(reports)
    ]
    own = ["--min-words", str(arguments.min_words)]
    own += ["--beam", str(arguments.beam)] if arguments.beam != SearchOptions.beam_size else []
    figures = comparison("showcase", arguments, (arguments.fixed, arguments.attention), corpus, own) | {
        "beam_size": arguments.beam,
        "min_words": arguments.min_words,
        "sentences": len(scored),
        "lost": len(chosen),
        "systems": systems,
        "examples": [
            {"heading": row.heading, "source": row.source, "reference": row.reference, "translations": row.translations}
            for row in shown
        ],
    }
    (arguments.out / "showcase.html").write_text(_page(figures, shown), encoding="utf-8")
    report.write(arguments.out / "report.json", figures | surroundings())
    print(f"{systems[0]['name']} loses the second half of {len(chosen)} of {len(scored)} sentences.")
    print(f"The showcase is in {arguments.out}: report.json and showcase.html.")


def chrf_of_halves(translation: str, reference: str) -> tuple[float, float]:
    """chrF of the first halves and of the second halves, each text split in the middle of its words."""
    from keras_attn import evaluation

    words = translation.split(), reference.split()
    first = [" ".join(line[: len(line) // 2]) for line in words]
    second = [" ".join(line[len(line) // 2 :]) for line in words]
    return tuple(round(evaluation.chrf([translated], [expected]).score, 2) for translated, expected in (first, second))


def ranked(rows: list[Sentence]) -> list[Sentence]:
    """The sentences whose second half the first system loses, by the second system's advantage there (above 0)."""

    def advantage(row: Sentence) -> float:
        return row.translations[1]["second"] - row.translations[0]["second"]

    lost = [row for row in rows if row.translations[0]["second"] < row.translations[0]["first"] and advantage(row) > 0]
    return sorted(lost, key=advantage, reverse=True)


def _page(figures: dict, rows: list[Sentence]) -> str:
    from keras_attn import plots

    fixed, attention = figures["systems"]
    note = (
        f"{fixed['name']} and {attention['name']} on {figures['corpus']}. Of {figures['sentences']} {figures['split']} "
        f"sentences of at least {figures['min_words']} words {fixed['name']} translates the second half worse than "
        f"the first in {figures['lost']} where {attention['name']} is better; here are those where the difference is "
        "largest. Without attention one vector represents the whole source. Over all of these sentences chrF is "
        f"{fixed['first']:.1f} for the first halves of {fixed['name']} and {fixed['second']:.1f} for the second, "
        f"{attention['first']:.1f} and {attention['second']:.1f} for those of {attention['name']}."
    )
    comparisons = [
        plots.SentenceComparison(row.heading, [("reference", row.reference)] if row.reference else [], row.panels)
        for row in rows
    ]
    languages = {"source_language": figures["source"], "target_language": figures["target"]}
    return plots.comparison_page(comparisons, title="The second half of long sentences", note=note, **languages)


if __name__ == "__main__":
    sys.exit(main())
