"""Scores given translations: `keras-attn score RUN --source FILE --target FILE`.

Prints a row for each pair of lines: its number, the log-probability of the target given the source, the score by which
search ranks (the log-probability after the length normalisation and the coverage penalty), and the target. `--format
jsonl` prints an object for each pair instead, with `--fields` of it.

Lines are read as by `keras-attn translate`, and files of any size stream through bounded memory. A blank target is the
end token alone. A blank source has one translation, the blank one.
"""

import argparse
import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from keras_attn.cli import command, output_formats
from keras_attn.cli import line_streaming as streams
from keras_attn.cli.command import add_run
from keras_attn.cli.search_flags import add_ensemble, add_options, load_translator, options_of_run
from keras_attn.search import SearchOptions

_OPTIONS = ("length_penalty", "normalization", "coverage_penalty", "batch_size")


def main(argv=None) -> int:
    parser = command.Parser("keras-attn score", description=__doc__)
    add_run(parser)
    option = parser.add_argument
    option("--source", metavar="FILE", type=Path, required=True, help="source sentences, one a line")
    option("--target", metavar="FILE", type=Path, required=True, help="their translations, line by line")
    option("--output", metavar="FILE", type=Path, help="a new file (default: stdout)")
    output_formats.add_format(parser, ("tsv", "jsonl"), "tsv")
    streams.add_windows(parser)
    add_options(parser, SearchOptions, _OPTIONS)
    add_ensemble(parser)
    return command.run(score, parser, argv)


def score(arguments: argparse.Namespace) -> None:
    options = {"batch_size": SearchOptions.batch_size} | options_of_run(arguments, arguments.run)
    form, options["return_alignments"] = output_formats.of_scores(arguments)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(streams.opened(path)) for path in (arguments.source, arguments.target)]
        _check_lines(arguments, files)
        output = stack.enter_context(streams.output(arguments.output))
        translator = load_translator(arguments, arguments.run)
        translator.score([], [], **options)  # refuses bad options

        def scores(pairs, numbers):
            return translator.score(*zip(*pairs, strict=True), **options)

        with streams.Progress(not output.file.isatty(), streams.size(files[0])) as progress:
            for number, pairs, sizes in _windows(arguments, files, options["return_alignments"]):
                numbers = range(number, number + len(pairs))
                found = streams.in_batches(scores, pairs, numbers, options["batch_size"], progress, sizes)
                rows = zip(numbers, pairs, found, strict=True)
                output.write("".join(form(n, source, scored) for n, (source, _), scored in rows).encode())


def _windows(
    arguments: argparse.Namespace, files: list[BinaryIO], return_alignments: bool
) -> Iterator[tuple[int, list[tuple[str, str]], list[int]]]:
    """Yields for each window the number of its first line, the pairs of texts and the bytes of the source lines."""
    limits = streams.window_limits(arguments, 1, return_alignments)
    readers = [streams.TextReader(arguments.max_characters) for _ in files]
    sides = (itertools.chain.from_iterable(streams.windows(file, **limits)) for file in files)
    window, weight, number = [], 0.0, 1
    for pair in itertools.chain(itertools.zip_longest(*sides), [None]):
        is_end = pair is None or None in pair
        if window and (is_end or len(window) == limits["max_lines"] or weight >= limits["max_weight"]):
            texts = (reader.read(lines) for reader, lines in zip(readers, zip(*window, strict=True), strict=True))
            yield number, list(zip(*texts, strict=True)), [len(source) + 1 for source, _ in window]
            window, weight, number = [], 0.0, number + len(window)
        if is_end:
            break
        window.append(pair)
        weight += max(map(limits["weigh"], pair))
    if pair:
        raise _unequal(arguments, *("more" if line is not None else f"{number - 1:,}" for line in pair))
    for reader in readers:
        streams.report_lines(reader.counts)


def _check_lines(arguments: argparse.Namespace, files: list[BinaryIO]) -> None:
    """Refuses files of unequal length before any work; those of pipes are not known yet."""
    if any(streams.size(file) is None for file in files):
        return
    counts = [streams.count_lines(file) for file in files]
    for file in files:
        file.seek(0)
    if counts[0] != counts[1]:
        raise _unequal(arguments, *(f"{count:,}" for count in counts))


def _unequal(arguments: argparse.Namespace, sources: str, targets: str) -> ValueError:
    return ValueError(
        f"Expected as many lines in {str(arguments.source)!r} as in {str(arguments.target)!r}. "
        f"Received: {sources} and {targets}"
    )
