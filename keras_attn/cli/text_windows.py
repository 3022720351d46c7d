"""Decodes lines and passes them through a function in windows of bounded size and in batches of similar length."""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from keras_attn.cli.command import between
from keras_attn.cli.line_streaming import Progress, windows
from keras_attn.text import without_byte_order_mark

MEMORY = 1 << 26  # bytes that the results of a window take, about


def add_windows(parser) -> None:
    """Adds the options of reading lines."""
    for flag, default, help in (
        ("--window", 4096, "lines sorted together, at most (default: %(default)s)"),
        ("--max-characters", 5000, "characters read of a line, at most (default: %(default)s)"),
    ):
        parser.add_argument(flag, metavar="N", type=between(int, 1, 10**6), default=default, help=help)


class TextReader:
    """Decodes lines as UTF-8 and cuts off what is too long; counts both for a note on stderr.

    Args:
        max_characters: Characters read of a line, at most.
        name: The input, for errors.
        at_start: bool, whether the first line is that of the input, which may have a byte order mark.
    """

    def __init__(self, max_characters: int, name: str | Path = "the input", *, at_start: bool = True):
        self.max_characters = max_characters
        self.name, self.at_start = name, at_start
        self.max_bytes = 4 * (max_characters + 1)  # bytes, of which a character has at most four
        self.lines = self.invalid = self.cut = 0

    def read(self, lines: Sequence[bytes]) -> list[str]:
        """Returns the texts of lines.

        Raises:
            ValueError: If the input is UTF-16.
        """
        if self.at_start and lines:
            lines, self.at_start = [without_byte_order_mark(lines[0], self.name), *lines[1:]], False
        texts = [line.removesuffix(b"\r").decode("utf-8", errors="replace") for line in lines]
        self.cut += sum(len(text) > self.max_characters for text in texts)
        texts = [text[: self.max_characters] for text in texts]
        self.invalid += sum(not line.startswith(text.encode()) for line, text in zip(lines, texts, strict=True))
        self.lines += len(lines)
        return texts

    def close(self) -> None:
        """Reports on stderr how many lines were not UTF-8 or too long, if any."""
        report_lines(self.lines, self.invalid, self.cut)


def report_lines(lines: int, invalid: int, cut: int) -> None:
    """Reports on stderr how many of some lines were not UTF-8, and how many too long, if any."""
    for count, what in (
        (invalid, "contained bytes that are not UTF-8, read as U+FFFD"),
        (cut, "were cut: see --max-characters"),
    ):
        if count:
            print(f"{count:,} of {lines:,} lines {what}.", file=sys.stderr)


def translated_windows(
    generate: Callable, source: BinaryIO, options: dict, arguments, progress: Progress
) -> Iterator[tuple[int, list[str], list]]:
    """Yields for each window of lines the number of its first line, the texts and their translations.

    Args:
        generate: Translates texts with these numbers.
        source: The lines.
        options: The options of `generate`; `batch_size`, `n_best` and `return_alignments` are read.
        arguments: Parsed arguments; `window` and `max_characters` are read.
        progress: Counts lines.
    """
    reader = TextReader(arguments.max_characters)
    for lines in windows(source, **window_limits(options, arguments)):
        number = reader.lines + 1
        texts = reader.read(lines)
        numbers, sizes = range(number, number + len(lines)), [len(line) + 1 for line in lines]
        yield number, texts, in_batches(generate, texts, numbers, options["batch_size"], progress, sizes)
    reader.close()


def window_limits(options: dict, arguments) -> dict:
    """Returns the arguments of `windows`; for the parameters see `translated_windows`."""
    return {
        "max_lines": arguments.window,
        "max_weight": MEMORY,
        "weigh": functools.partial(result_size, options["n_best"], options["return_alignments"]),
        "max_bytes": TextReader(arguments.max_characters).max_bytes,
        "wait_from": options["batch_size"],
    }


def in_batches(
    generate: Callable,
    texts: Sequence[str],
    numbers: Sequence[int],
    batch_size: int,
    progress: Progress,
    sizes: Sequence[int],
) -> list:
    """Returns `generate`'s results in the order of the texts, a few batches of similar length at a time.

    So progress is shown within a window. `sizes` are the texts' sizes for `progress`.
    """
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    results = [None] * len(texts)
    for start in range(0, len(order), 4 * batch_size):
        rows = order[start : start + 4 * batch_size]
        batch = generate([texts[row] for row in rows], [numbers[row] for row in rows])
        for row, result in zip(rows, batch, strict=True):
            results[row] = result
        progress.add(len(rows), sum(sizes[row] for row in rows))
    return results


def result_size(n_best: int, has_alignments: bool, line: bytes) -> int:
    """Returns about how many bytes the translations of a line take, if a token has two bytes."""
    tokens = len(line) // 2 + 1
    return n_best * (1500 + 100 * tokens + (4 * tokens**2 if has_alignments else 0))
