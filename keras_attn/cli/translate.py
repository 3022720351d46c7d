r"""Translates a file, or stdin, a line out for every line in: `keras-attn translate RUN [FILE]`.

Lines end at "\n" or "\r\n" alone. A blank line stays blank. Bytes that are not UTF-8 are read as U+FFFD, and a line
of more than `--max-characters` is cut. The numbers of such lines are printed on stderr at the end.

The lines that have arrived are translated together, sorted by length, at most `--window` of them, and fewer if they are
long. So a million lines stream through bounded memory, and a typed line is answered at once. The output is in the order
of the input, and the same for any size of window or batch.

With `--split-sentences` each sentence of a line is translated alone.

`--output FILE` is called `FILE.part` until it is complete. So a file with its own name is complete, and a command
that was killed leaves the lines that it had finished. Nothing is ever overwritten.
"""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_attn.cli import command, output_formats
from keras_attn.cli import line_streaming as streams
from keras_attn.cli.command import add_run
from keras_attn.cli.search_flags import add_options, add_search, chosen_options, flag, load_translator, search_arguments
from keras_attn.plots import align_words, html_page, to_pharaoh
from keras_attn.requirements import require
from keras_attn.search import SampleOptions, SearchOptions
from keras_attn.training import read_report
from keras_attn.translation import Translation

_SAMPLE_FIELDS = [field.name for field in dataclasses.fields(SampleOptions)]
_SEARCH_FIELDS = [field.name for field in dataclasses.fields(SearchOptions)]
_OWN_SAMPLE_FIELDS = set(_SAMPLE_FIELDS) - set(_SEARCH_FIELDS)
_OWN_SEARCH_FIELDS = set(_SEARCH_FIELDS) - set(_SAMPLE_FIELDS)
# The languages of sentencex 1. It would take any other code for a similar one, or for English.
_LANGUAGES = (
    *("am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu", "hi", "hy", "it", "ja", "kk"),
    *("kn", "ml", "mr", "my", "nl", "pa", "pl", "pt", "ru", "sk", "ta", "te", "uk"),
)
_WITHOUT_SPACES = ("ja", "zh")  # languages that write no space between sentences


def main(argv=None) -> int:
    parser = command.Parser("keras-attn translate", description=__doc__)
    add_run(parser, kinds=tuple(command.KINDS))
    option = parser.add_argument
    option("input", metavar="FILE", nargs="?", type=Path, help="lines (default: stdin)")
    option("--output", metavar="FILE", type=Path, help="a new file (default: stdout)")
    output_formats.add_format(parser, ("text", "tsv", "jsonl"), "text, or tsv with --n-best")
    streams.add_windows(parser)
    add_search(parser)
    option(
        "--split-sentences",
        metavar="LANGUAGE",
        nargs="?",
        const="",
        help="translate each sentence of a line alone; the source language (without one: the run's)",
    )
    group = parser.add_argument_group("sampling, instead of beam search")
    add_options(group, SampleOptions, _OWN_SAMPLE_FIELDS)
    group.add_argument("--seed", metavar="N", type=command.between(int, 0, 2**31 - 1), help="random seed (default: 0)")
    option = parser.add_argument_group("alignments between words, of the best translation").add_argument
    option("--pharaoh", metavar="FILE", type=Path, help="lines of links i-j: source word i, target word j, from 0")
    share, number = command.between(float, 0, 1), command.between(int, 1, 10**5)
    option("--threshold", metavar="P", type=share, help="weight of a link of --pharaoh (default: the heaviest links)")
    option("--html", metavar="FILE", type=Path, help="a page in which to point at words")
    option("--png", metavar="FOLDER", type=Path, help="a picture of each sentence")
    option("--max-plots", metavar="N", type=number, default=100, help="sentences in --html, --png")
    return command.run(translate, parser, argv)


def translate(arguments: argparse.Namespace) -> None:
    options = search_arguments(arguments, arguments.run)
    samples = options.get("num_samples")
    _refuse_unused(arguments, samples)
    options["n_best"] = samples or options["n_best"]
    form, has_alignments = output_formats.of_translations(arguments, options["n_best"])
    options["return_alignments"] = has_alignments or bool(arguments.pharaoh or arguments.html or arguments.png)
    if command.kind_of(arguments.run) == "saved_model":  # without tokenizers, and with tokens only beside alignments
        if arguments.pharaoh or arguments.html or arguments.png:
            raise ValueError("Expected a run, a preset or ONNX for alignments between words. Received: a SavedModel")
        options["return_alignments"] = arguments.format in ("tsv", "jsonl")
    report = read_report(arguments.run)
    if arguments.split_sentences is not None:
        language = _checked_language(arguments.split_sentences or report["source"], options)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(streams.opened(arguments.input)) if arguments.input else streams.standard("stdin")
        output = stack.enter_context(streams.output(arguments.output))
        pharaoh, page = (
            stack.enter_context(streams.new_file(path)) if path else None
            for path in (arguments.pharaoh, arguments.html)
        )
        pictures = stack.enter_context(streams.new_folder(arguments.png)) if arguments.png else None

        translator = load_translator(arguments, arguments.run)
        generate = _sampler(translator, options, arguments.seed or 0) if samples else generator(translator, options)
        if arguments.split_sentences is not None:
            space = "" if report["target"] in _WITHOUT_SPACES else " "
            generate = functools.partial(_generate_by_sentence, generate, language, space)
        generate([], [])  # refuses bad options even when no line comes
        alignments = _Alignments(translator, arguments, report, pharaoh, page, pictures)
        with streams.Progress(not output.file.isatty(), streams.size(source)) as progress:
            for number, texts, found in streams.results(generate, source, options, arguments, progress):
                lines = list(zip(range(number, number + len(texts)), texts, found, strict=True))
                output.write("".join(itertools.starmap(form, lines)).encode())
                alignments.add(lines)
        alignments.close()


def _refuse_unused(arguments: argparse.Namespace, samples: int | None) -> None:
    """Refuses options that would change nothing.

    Raises:
        ValueError: if one was chosen; the message has all of them.
    """
    chosen = set(chosen_options(arguments))
    chosen |= {name for name in ("seed", "shortlist", "threshold") if getattr(arguments, name) is not None}
    if samples and (unused := chosen & (_OWN_SEARCH_FIELDS | {"shortlist"})):
        flags = ", ".join(flag(name, SearchOptions) for name in sorted(unused))
        raise ValueError(f"Expected no --samples with {flags}. Received: --samples {samples}")
    if not samples and (unused := chosen & (_OWN_SAMPLE_FIELDS | {"seed"})):
        flags = ", ".join(flag(name, SampleOptions) for name in sorted(unused))
        raise ValueError(f"Expected --samples with {flags}. Received: none")
    if "threshold" in chosen and not arguments.pharaoh:
        raise ValueError("Expected --pharaoh with --threshold. Received: none")


def generator(translator, options: dict) -> Callable[[list[str], list[int]], list]:
    """Returns a function that translates texts by search; their numbers do not matter."""
    options = {name: value for name, value in options.items() if name not in _OWN_SAMPLE_FIELDS}
    return lambda texts, numbers: translator.generate(texts, **options)


def _sampler(translator, options: dict, seed: int) -> Callable[[list[str], list[int]], list]:
    """Returns a function that samples translations of texts, which depend on the texts' numbers."""
    names = {*_SAMPLE_FIELDS, "replace_unknown", "return_alignments"}
    options = {name: value for name, value in options.items() if name in names}
    return lambda texts, numbers: translator.sample(texts, seed=seed, row_ids=numbers, **options)


def _checked_language(language: str | None, options: dict) -> str:
    """Returns the code of the source language, by whose rules `--split-sentences` splits.

    Raises:
        ValueError: If lines have several translations or alignments, or sentencex does not know the language.
        ModuleNotFoundError: If sentencex is not installed.
    """
    if options["n_best"] > 1 or options["return_alignments"]:
        raise ValueError(
            "Expected no --n-best, --samples and alignments with --split-sentences, whose lines have one translation, "
            f"without an alignment. Received: n_best={options['n_best']}, alignments: {options['return_alignments']}"
        )
    if language not in _LANGUAGES:
        codes = ", ".join(_LANGUAGES)
        raise ValueError(f"Expected --split-sentences LANGUAGE to be one of: {codes}. Received: {language!r}")
    require("sentences", "sentencex", purpose="--split-sentences")
    return language


def _generate_by_sentence(
    generate: Callable, language: str, space: str, texts: Sequence[str], numbers: Sequence[int]
) -> list[Translation]:
    """Translates each sentence of the texts, and joins the translations of a text, with a space between."""
    from sentencex import segment

    sentences = [[one.strip() for one in segment(language, text) if one.strip()] for text in texts]
    flat = list(itertools.chain(*sentences))
    translations = iter(generate(flat, range(len(flat))))
    return [_joined(list(itertools.islice(translations, len(own))), space) for own in sentences]


def _joined(translations: list[Translation], space: str) -> Translation:
    def all_of(name: str) -> tuple:
        return tuple(itertools.chain(*(getattr(one, name) for one in translations)))

    log_probs = [one.token_log_probs for one in translations if one.token_log_probs is not None]
    return Translation(
        text=space.join(one.text for one in translations),
        score=sum(one.score for one in translations),
        token_log_probs=np.concatenate(log_probs) if log_probs else None,
        **{name: all_of(name) for name in ("tokens", "token_ids", "source_tokens", "source_token_ids")},
    )


@dataclasses.dataclass
class _Alignments:
    """Writes the alignments between words of the best translation of each line, as lines are translated.

    Any number of Pharaoh lines is written. The page and the pictures contain the first `--max-plots` sentences, which
    also bounds the memory of the page, for it is written at the end.
    """

    translator: Any  # its tokenizers merge tokens into words
    arguments: argparse.Namespace
    report: dict  # the run's, which names the languages
    pharaoh: streams.Output | None  # receives a line of links for each line
    page: streams.Output | None
    pictures: Path | None  # a folder, which receives `<number of the line>.png`
    sentences: int = 0
    panels: list = dataclasses.field(default_factory=list)

    def add(self, lines: Sequence[tuple[int, str, Translation]]) -> None:
        """Writes the alignments of numbered lines."""
        links = []
        for number, text, translation in lines:
            self.sentences += bool(translation.tokens)
            is_plotted = translation.tokens and self.sentences <= self.arguments.max_plots
            if not (self.pharaoh or (is_plotted and (self.page or self.pictures))):
                continue
            tokenizers = self.translator.source_tokenizer, self.translator.target_tokenizer
            words = align_words(translation, *tokenizers, source_text=text)
            if self.pharaoh:
                links.append(to_pharaoh(words, threshold=self.arguments.threshold) + "\n")
            if is_plotted and self.page:
                self.panels.append((number, words))
            if is_plotted and self.pictures:
                from keras_attn import plots  # matplotlib is slow to import

                plots.alignment(*words, path=self.pictures / f"{number:06}.png")
        if self.pharaoh:
            self.pharaoh.write("".join(links).encode())

    def close(self) -> None:
        """Writes the page; says on stderr if there were more sentences than plots."""
        most = self.arguments.max_plots
        has_more = self.sentences > most and bool(self.page or self.pictures)
        count = f"{self.sentences:,} sentence{'s' * (self.sentences != 1)}"
        note = f"The first {most:,} of {count}" if has_more else count
        if self.page:
            title = f"Alignments of {self.arguments.run.resolve().name}"
            languages = {f"{side}_language": self.report[side] or "" for side in ("source", "target")}
            self.page.write(html_page(self.panels, note=f"{note}.", title=title, **languages).encode())
        if has_more:
            print(f"{note} are plotted; --max-plots N plots more.", file=sys.stderr)
