r"""Translates stdin to stdout, a line out for every line in: `keras-attn translate RUN < text`.

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
import sys
from collections.abc import Callable
from pathlib import Path

from keras_attn.cli import command, output_formats
from keras_attn.cli import line_streaming as streams
from keras_attn.cli.command import add_run
from keras_attn.cli.search_flags import add_options, add_search, chosen_options, flag, load_translator, search_arguments
from keras_attn.cli.sentences import add_sentences, by_sentence, check_sentences
from keras_attn.cli.text_windows import add_windows, translated_windows
from keras_attn.search import SampleOptions, SearchOptions
from keras_attn.training import read_report

_SAMPLE_FIELDS = [field.name for field in dataclasses.fields(SampleOptions)]
_SEARCH_FIELDS = [field.name for field in dataclasses.fields(SearchOptions)]
_OWN_SAMPLE_FIELDS = set(_SAMPLE_FIELDS) - set(_SEARCH_FIELDS)
_OWN_SEARCH_FIELDS = set(_SEARCH_FIELDS) - set(_SAMPLE_FIELDS)


def main(argv=None) -> int:
    parser = command.Parser("keras-attn translate", description=__doc__)
    add_run(parser)
    option = parser.add_argument
    option("--input", metavar="FILE", type=Path, help="default: stdin")
    option("--output", metavar="FILE", type=Path, help="a new file (default: stdout)")
    output_formats.add_format(parser)
    add_windows(parser)
    add_search(parser)
    add_sentences(parser)
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
    form, has_alignments = output_formats.chosen(arguments.format, arguments.fields, options["n_best"])
    options["return_alignments"] = has_alignments or bool(arguments.pharaoh or arguments.html or arguments.png)
    language = check_sentences(arguments, options)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(streams.opened(arguments.input)) if arguments.input else streams.standard("stdin")
        files = {
            name: stack.enter_context(streams.new_file(path))
            for name in ("output", "pharaoh", "html")
            if (path := getattr(arguments, name))
        }
        pictures = stack.enter_context(streams.new_folder(arguments.png)) if arguments.png else None
        output = files.get("output") or streams.Output(streams.standard("stdout"), "stdout")

        translator = load_translator(arguments, arguments.run)
        generate = _sampler(translator, options, arguments.seed or 0) if samples else generator(translator, options)
        if language:
            generate = by_sentence(generate, language, read_report(arguments.run)["target"])
        generate([], [])  # refuses bad options even when no line comes
        alignments = _alignment_files(translator, arguments, files, pictures)
        with streams.Progress(not output.file.isatty(), streams.size(source)) as progress:
            for number, texts, found in translated_windows(generate, source, options, arguments, progress):
                lines = zip(texts, found, strict=True)
                output.write("".join(form(n, *line) for n, line in enumerate(lines, start=number)).encode())
                alignments.add(number, texts, found)
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


def _alignment_files(translator, arguments, files: dict, pictures: Path | None):
    from keras_attn.cli.alignment_files import AlignmentFiles

    report = read_report(arguments.run)
    return AlignmentFiles(
        translator,
        pharaoh=files.get("pharaoh"),
        threshold=arguments.threshold,
        page=files.get("html"),
        pictures=pictures,
        max_plots=arguments.max_plots,
        title=f"Alignments of {arguments.run.resolve().name}",
        source_language=report["source"] or "",
        target_language=report["target"] or "",
    )


if __name__ == "__main__":
    sys.exit(main())
