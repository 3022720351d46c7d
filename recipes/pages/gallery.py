"""Writes the gallery, docs/gallery.md, and its figures and pages in docs/gallery/.

    python -m recipes.pages.gallery [--output docs]

The text and most figures come from committed reports, the others from the shipped preset `phrases_en_fr`. All
figures are as wide as a phone, in Okabe and Ito's colours, on white.
"""

import argparse
import json
import sys
from pathlib import Path

from keras_attn.cli import command
from recipes.pages import alt_texts, figures, heads
from recipes.pages.markdown import frame, grid

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "recipes" / "reports"
LENGTH = "length_study-phrases-en-fr", "length_study-bible-en-es-en-es"
ATTENTION, ALIGNMENT = "attention_study-multi30k-de-en", "alignment_study-tatoeba-en-fr+news-en-fr-en-fr"
RUN, SHOWCASE, HEADS = "rnnsearch-phrases-en-fr", "showcase-phrases-en-fr", "heads-phrases-en-fr"
PRESET = "phrases_en_fr"
SENTENCES = {  # of the test split, and the word order that each shows
    "The queen forgot the black orange.": "the adjective follows its noun",
    "She does not give him a lamp.": "the pronoun precedes the verb, and the negation surrounds both",
    "Did Julien lend the hat?": "“did” is “est-ce que”, and the past is of two words",
    "An old aunt always buys fourteen lamps.": "the adverb follows the verb",
}
LONG, MOST = range(16, 25), 6  # words of the longer sentences of the hover page, and their number


def main(argv=None) -> int:
    parser = command.Parser("recipes.pages.gallery", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "docs", metavar="FOLDER", help="default: docs")
    return command.run(write, parser, argv)


def write(arguments: argparse.Namespace) -> None:
    folder = arguments.output / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    draw_reports(folder)
    draw_preset(folder)
    (arguments.output / "gallery.md").write_text(page(), encoding="utf-8")
    print(f"The gallery is in {arguments.output}: gallery.md and gallery/.")


def read(name: str) -> dict:
    """A committed report."""
    return json.loads((REPORTS / f"{name}.json").read_text(encoding="utf-8"))


def draw_reports(folder: Path) -> None:
    """Draws the figures of studies and of a training."""
    from keras_attn import plots
    from recipes.studies import figures as studies

    for name in LENGTH:
        studies.length(read(name), folder / f"{name}.svg", narrow=True)
    studies.attention(read(ATTENTION), folder / f"{ATTENTION}.svg", narrow=True)
    studies.alignment(read(ALIGNMENT), folder / f"{ALIGNMENT}.svg", narrow=True)
    heads.draw(read(HEADS), folder)
    history = read(RUN)["history"]
    for name in ("loss", "bleu"):
        curves = {column: history[column] for column in (name, f"val_{name}") if column in history}
        plots.training_curves(curves, folder / f"{RUN}-{name}.svg")


def draw_preset(folder: Path) -> None:
    """Draws alignments of the preset, and writes its hover page."""
    from keras_attn import Translator, plots
    from keras_attn.training import corpora

    with command.quietly():
        translator = Translator.from_preset(PRESET)
    lines = corpora.load("phrases", "en", "fr").splits["test"][0]
    sentences = [*SENTENCES, *[line for line in lines if len(line.split()) in LONG][:MOST]]
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    words = [plots.align_words(one, *tokenizers) for one in translator.generate(sentences, beam_size=5)]
    for n, panel in enumerate(words[: len(SENTENCES)], start=1):
        plots.alignments([panel], path=folder / f"alignment-{n}.svg")
    hover = plots.html_page(
        enumerate(words, start=1),
        title="Alignments of phrases_en_fr",
        note="Sentences of the test split of phrases, translated by the preset phrases_en_fr with a beam of 5.",
        source_language="en",
        target_language="fr",
    )
    (folder / "alignments.html").write_text(hover, encoding="utf-8")
    explained = figures.explained(translator, figures.SENTENCE, figures.WORD)
    figures.attention(*explained, folder / "scores.svg", narrow=True)


def page() -> str:
    """The gallery in Markdown."""
    parts = [
        "# Gallery",
        "Written by `python -m recipes.pages.gallery`, figures included, from the [reports](../recipes/README.md) of "
        f"runs and studies and from the preset `{PRESET}`; nothing is drawn by hand.",
        *_sentence_length(),
        *_second_half(),
        *_alignments(),
        *heads.in_gallery(HEADS, read(HEADS)),
        *_studies(),
        *_training(),
    ]
    return "\n\n".join(parts) + "\n"


def _sentence_length() -> list[str]:
    images = []
    for name in LENGTH:
        report = read(name)
        images.append((alt_texts.of_study(report), name))
    return [
        "## Sentence length",
        "A model without attention, RNNencdec, keeps a sentence in one vector. The longer the sentence, the more is "
        "lost. RNNsearch attends to the source for each word. The first figure is of generated sentences, English to "
        "French, the second of the Bible, English to Spanish. The number in a name is the longest sentence of its "
        "training; a dotted line stands there. Bands are 95 % intervals.",
        grid(images),
    ]


def _second_half() -> list[str]:
    report = read(SHOWCASE)
    fixed, attention = report["systems"]
    example = next(one for one in report["examples"] if one["reference"])
    lines = [("source", example["source"]), ("reference", example["reference"])]
    for one in example["translations"]:
        halves = f"chrF {one['first']:.1f} for the first half, {one['second']:.1f} for the second"
        lines.append((f"{one['name']}, {halves}", one["translation"]))
    return [
        "## The second half of a long sentence",
        f"Of {report['sentences']} {report['split']} sentences of at least {report['min_words']} words, "
        f"{fixed['name']} translates the second half worse than the first in {report['lost']} where "
        f"{attention['name']} is better. Here is the one where the difference is largest:",
        "\n".join(f"- **{name}:** {text}" for name, text in lines),
        "A page has this one, nine more and the example of the paper. Point at a word, or tap it: those that it is "
        "aligned to light up. In rnnencdec every word attends to the end of the sentence, whose state is all that the "
        "decoder gets.",
        frame(f"../recipes/reports/{SHOWCASE}.html", f"../reports/{SHOWCASE}.html", "Two systems side by side"),
    ]


def _alignments() -> list[str]:
    images = [(f"Alignment of “{line}”: {why}", f"alignment-{n}") for n, (line, why) in enumerate(SENTENCES.items(), 1)]
    return [
        "## Alignments",
        f"How `{PRESET}` attends, as in figure 3 of Bahdanau, Cho & Bengio (2015): a row for each French word, white "
        "where it attends. French orders words in its own way:",
        "\n".join(f"{n}. “{line}”: {why}." for n, (line, why) in enumerate(SENTENCES.items(), 1)),
        grid(images),
        "The same sentences and longer ones, to be pointed at or tapped:",
        frame("gallery/alignments.html", "alignments.html", "Alignments of phrases_en_fr"),
        "### From scores to an alignment",
        "The numbers of one word: a softmax makes weights of scores. "
        "[Attention explained](guides/attention.md) computes them by hand.",
        grid([(figures.ALT, "scores")]),
    ]


def _studies() -> list[str]:
    scores, aligners = read(ATTENTION), read(ALIGNMENT)
    best = max(scores["scores"], key=lambda row: row["bleu"]["score"])
    flat = max(scores["scores"], key=lambda row: row["sharpness"]["entropy"])
    return [
        "## Score functions and aligners",
        f"First, every score function in the same model on {scores['corpus']}, {scores['max_steps']:,} updates each: "
        f"{best['name']} has the highest BLEU, {flat['name']} the flattest alignments "
        "([table](../recipes/README.md#score-functions-multi30k-de-to-en)). Then, how far the attention of models is "
        f"from links by hand, on {aligners['gold']['sentences']} sentences of the Hansards (blue); grey are aligners "
        "that do not translate ([table](../recipes/README.md#alignment-error-rate-tatoeba-en-frnews-en-fr-en-to-fr)).",
        grid([(alt_texts.of_study(scores), ATTENTION), (alt_texts.of_study(aligners), ALIGNMENT)]),
    ]


def _training() -> list[str]:
    report = read(RUN)
    images = [(alt_texts.of_curve(report, name), f"{RUN}-{name}") for name in ("loss", "bleu")]
    return [
        "## Training",
        f"Loss and BLEU of `{report['command']}`, {report['epochs']} epochs in {report['train_seconds'] / 60:.1f} "
        "minutes:",
        grid(images),
    ]


if __name__ == "__main__":
    sys.exit(main())
