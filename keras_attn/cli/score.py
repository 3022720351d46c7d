"""Scores given translations: `keras-attn score RUN --source FILE --target FILE`.

Prints a row for each pair of lines: its number, the log-probability of the target given the source, the score by which
search ranks (the log-probability after the length normalisation and the coverage penalty), and the target. `--format
jsonl` prints an object for each pair instead, with `--fields` of it.

Lines are read as by `keras-attn translate`, and files of any size stream through bounded memory. A blank target is the
end token alone. A blank source has one translation, the blank one.
"""

import argparse
import contextlib
import functools
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from keras_attn.cli import command, output_formats
from keras_attn.cli import line_streaming as streams
from keras_attn.cli.command import add_run
from keras_attn.cli.search_flags import add_ensemble, add_options, load_translator, options_of_run
from keras_attn.cli.text_windows import MEMORY, TextReader, add_windows, in_batches, result_size
from keras_attn.search import SearchOptions

_OPTIONS = ("length_penalty", "normalization", "coverage_penalty", "batch_size")


def main(argv=None) -> int:
    parser = command.Parser("keras-attn score", description=__doc__)
    add_run(parser)
    option = parser.add_argument
    option("--source", metavar="FILE", type=Path, required=True, help="source sentences, one a line")
    option("--target", metavar="FILE", type=Path, required=True, help="their translations, line by line")
    option("--output", metavar="FILE", type=Path, help="a new file (default: stdout)")
    option("--format", choices=("tsv", "jsonl"), default="tsv", help="default: %(default)s")
    fields = ",".join(output_formats.FIELDS)
    option("--fields", metavar="F,F", help=f"for jsonl, any of {fields} (default: text,score)")
    add_windows(parser)
    add_options(parser, SearchOptions, _OPTIONS)
    add_ensemble(parser)
    return command.run(score, parser, argv)


def score(arguments: argparse.Namespace) -> None:
    options = {"batch_size": SearchOptions.batch_size} | options_of_run(arguments, arguments.run)
    fields = output_formats.checked_fields(arguments.fields, arguments.format, "text,score")
    options["return_alignments"] = "alignment" in fields
    form = output_formats.scored(arguments.format, fields)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(streams.opened(path)) for path in (arguments.source, arguments.target)]
        _check_lines(arguments, files)
        output = stack.enter_context(streams.new_file(arguments.output)) if arguments.output else None
        output = output or streams.Output(streams.standard("stdout"), "stdout")
        translator = load_translator(arguments, arguments.run)
        translator.score([], [], **options)  # refuses bad options

        def scores(pairs, numbers):
            sources, targets = zip(*pairs, strict=True)
            return translator.score(sources, targets, **options)

        with streams.Progress(not output.file.isatty(), streams.size(files[0])) as progress:
            for number, pairs, sizes in _windows(arguments, files, options):
                numbers = range(number, number + len(pairs))
                found = in_batches(scores, pairs, numbers, options["batch_size"], progress, sizes)
                rows = zip(numbers, pairs, found, strict=True)
                output.write("".join(form(n, source, scored) for n, (source, _), scored in rows).encode())


def _windows(arguments: argparse.Namespace, files: list[BinaryIO], options: dict):
    """Yields for each window the number of its first line, the pairs of texts and the bytes of the source lines."""
    readers = [TextReader(arguments.max_characters) for _ in files]
    bounds = {"max_lines": arguments.window, "max_weight": MEMORY, "max_bytes": readers[0].max_bytes}
    bounds["weigh"] = functools.partial(result_size, 1, options["return_alignments"])
    windows, targets = (streams.windows(file, **bounds) for file in files)
    targets = itertools.chain.from_iterable(targets)
    for lines in windows:
        while lines:
            number = readers[0].lines + 1
            others = list(_within(targets, len(lines), bounds))
            if not others:
                raise _unequal(arguments, "more", number - 1)
            part, lines = lines[: len(others)], lines[len(others) :]
            texts = (reader.read(side) for reader, side in zip(readers, (part, others), strict=True))
            yield number, list(zip(*texts, strict=True)), [len(line) + 1 for line in part]
    if next(targets, None) is not None:
        raise _unequal(arguments, readers[0].lines, "more")
    for reader in readers:
        reader.close()


def _within(lines: Iterator[bytes], most: int, bounds: dict) -> Iterator[bytes]:
    """Yields lines until there are `most`, or they reach the weight of a window."""
    weight = 0.0
    for line in itertools.islice(lines, most):
        yield line
        weight += bounds["weigh"](line)
        if weight >= bounds["max_weight"]:
            return


def _check_lines(arguments: argparse.Namespace, files: list[BinaryIO]) -> None:
    """Refuses files of unequal length before any work; those of pipes are not known yet."""
    if any(streams.size(file) is None for file in files):
        return
    counts = []
    for file in files:
        blocks = iter(lambda file=file: file.read(1 << 20), b"")
        last, count = b"\n", 0
        for block in blocks:
            last, count = block[-1:], count + block.count(b"\n")
        counts.append(count + (last != b"\n"))
        file.seek(0)
    if counts[0] != counts[1]:
        raise _unequal(arguments, *counts)


def _unequal(arguments: argparse.Namespace, sources: int | str, targets: int | str) -> ValueError:
    counts = " and ".join(f"{count:,}" if isinstance(count, int) else count for count in (sources, targets))
    return ValueError(
        f"Expected as many lines in {str(arguments.source)!r} as in {str(arguments.target)!r}. Received: {counts}"
    )


if __name__ == "__main__":
    sys.exit(main())
