"""Lines of text: read in windows and batches of bounded size, and written to files that are complete or absent."""

import collections
import contextlib
import gzip
import io
import os
import select
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from keras_attn import files
from keras_attn.cli.command import between
from keras_attn.text import without_byte_order_mark

MEMORY = 1 << 26  # bytes that the results of a window take, about
_BLOCK = 1 << 16  # bytes read at once
_PAUSE = 0.05  # seconds for which a writer may pause within a window
_WAIT_FROM = 64  # lines from which on nobody waits for a single answer


def add_windows(parser) -> None:
    """Adds the options of reading lines."""
    for flag, default, help in (
        ("--window", 4096, "lines sorted together, at most (default: %(default)s)"),
        ("--max-characters", 5000, "characters read of a line, at most (default: %(default)s)"),
    ):
        parser.add_argument(flag, metavar="N", type=between(int, 1, 10**6), default=default, help=help)


def window_limits(arguments, n_best: int, return_alignments: bool) -> dict:
    """Returns the bounds of `windows` by the options `--window` and `--max-characters` and two of the search."""

    def weigh(line: bytes) -> float:
        tokens = len(line) // 2 + 1  # of two bytes, about
        return n_best * (1500 + 100 * tokens + (4 * tokens**2 if return_alignments else 0))

    max_bytes = 4 * (arguments.max_characters + 1)  # of which a character has at most four
    return {"max_lines": arguments.window, "max_weight": MEMORY, "weigh": weigh, "max_bytes": max_bytes}


def windows(
    stream: BinaryIO, *, max_lines: int, max_weight: float, weigh: Callable[[bytes], float], max_bytes: int
) -> Iterator[list[bytes]]:
    r"""Yields lists of lines, without their "\n", of bounded size: the lines that have arrived, or as many as fit.

    Lines from a slow writer are yielded as soon as no more have arrived, so that a single line is answered at once.
    From 64 lines on a short pause of the writer does not end the window, so that a pipe fills whole windows and whole
    batches.

    Args:
        stream: Read by `read1` alone, so that nothing stays in its buffer, where `select` does not see it.
        max_lines: Lines of a window, at most.
        max_weight: A window ends with the line that reaches this weight.
        weigh: Returns the weight of a line.
        max_bytes: Bytes kept of a line. The rest of it is dropped as it is read.
    """
    window, weight, rest = [], 0.0, b""
    while block := stream.read1(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        rest = rest[:max_bytes]
        for line in lines:
            window.append(line[:max_bytes])
            weight += weigh(window[-1])
            if len(window) >= max_lines or weight >= max_weight:
                yield window
                window, weight = [], 0.0
        if window and not _is_waiting(stream, _PAUSE if len(window) >= _WAIT_FROM else 0):
            yield window
            window, weight = [], 0.0
    if rest:
        window.append(rest)
    if window:
        yield window


def _is_waiting(stream: BinaryIO, seconds: float) -> bool:
    """Returns whether something can be read, within some seconds; the end of a file can."""
    try:
        return bool(select.select([stream], [], [], seconds)[0])
    except io.UnsupportedOperation:  # not a file of the system: all of it is there
        return True
    except OSError:  # Windows selects sockets only
        return False


class TextReader:
    """Decodes lines as UTF-8 and cuts off what is too long.

    `counts` has the numbers of `lines`, of `invalid` ones, which were not UTF-8, and of those that were `cut`.

    Args:
        max_characters: Characters read of a line, at most.
        name: The input, for errors.
        at_start: bool, whether the first line is that of the input, which may have a byte order mark.
    """

    def __init__(self, max_characters: int, name: str | Path = "the input", *, at_start: bool = True):
        self.max_characters = max_characters
        self.name, self.at_start = name, at_start
        self.counts = collections.Counter()

    def read(self, lines: Sequence[bytes]) -> list[str]:
        """Returns the texts of lines.

        Raises:
            ValueError: If the input is UTF-16.
        """
        if self.at_start and lines:
            lines, self.at_start = [without_byte_order_mark(lines[0], self.name), *lines[1:]], False
        texts = [line.removesuffix(b"\r").decode("utf-8", errors="replace") for line in lines]
        cut = [text[: self.max_characters] for text in texts]
        self.counts["lines"] += len(lines)
        self.counts["cut"] += sum(map(str.__ne__, texts, cut))
        self.counts["invalid"] += sum(not line.startswith(text.encode()) for line, text in zip(lines, cut, strict=True))
        return cut


def report_lines(counts: Mapping[str, int], name: str | None = None) -> None:
    """Reports on stderr how many lines, of a file with a name, were not UTF-8, and how many too long, if any."""
    of_file = f" of {name!r}" if name else ""
    for kind, what in (
        ("invalid", "contained bytes that are not UTF-8, read as U+FFFD"),
        ("cut", "were cut: see --max-characters"),
    ):
        if counts[kind]:
            print(f"{counts[kind]:,} of {counts['lines']:,} lines{of_file} {what}.", file=sys.stderr)


def in_batches(
    generate: Callable,
    texts: Sequence[str],
    numbers: Sequence[int],
    batch_size: int,
    progress: "Progress",
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


def results(
    generate: Callable,
    source: BinaryIO,
    options: Mapping[str, Any],
    arguments,
    progress: "Progress",
    name: str | Path = "the input",
    parse: Callable[[str, int], Any] = lambda text, number: text,
) -> Iterator[tuple[int, list, list]]:
    """Yields for each window of lines the number of its first line, the texts and `generate`'s results for them.

    Args:
        generate: Takes what `parse` returns for some texts, and their numbers.
        source: The lines.
        options: The options of `generate`; `batch_size`, `n_best` and `return_alignments` are read.
        arguments: Parsed arguments; `window` and `max_characters` are read.
        progress: Counts lines.
        name: The input, for errors.
        parse: Called for each text of a window and its number, before any is worked on.
    """
    reader, number = TextReader(arguments.max_characters, name), 1
    for lines in windows(source, **window_limits(arguments, options["n_best"], options["return_alignments"])):
        numbers = range(number, number + len(lines))
        texts = list(map(parse, reader.read(lines), numbers))
        sizes = [len(line) + 1 for line in lines]
        yield number, texts, in_batches(generate, texts, numbers, options["batch_size"], progress, sizes)
        number += len(lines)
    report_lines(reader.counts)


def count_lines(stream: BinaryIO) -> int:
    """Returns the number of lines of a file, which is read to its end."""
    count, last = 0, b"\n"
    while block := stream.read1(1 << 20):
        count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def standard(name: str) -> BinaryIO:
    """Returns the binary stream below `stdin` or `stdout`."""
    stream = getattr(sys, name)
    if stream is None:
        raise OSError(f"Expected {name} to be open. It is closed.")
    return stream.buffer


def opened(path: Path) -> BinaryIO:
    """Opens a file for reading, a `.gz` for reading what it unpacks to."""
    try:
        return Gzip(path) if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise type(error)(f"Expected a file that can be read. Received: {str(path)!r}, {error.strerror}.") from None


class Gzip(gzip.GzipFile):
    """A gzip reader that raises ValueError for a damaged file."""

    def __init__(self, path: Path):
        super().__init__(path, "rb")

    def read1(self, size: int = -1) -> bytes:
        try:
            return super().read1(size)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise ValueError(f"Expected {self.name!r} to be a whole gzip file. Received: a damaged one") from None


class Output(NamedTuple):
    """Writes bytes through to a file at once, and names it in errors."""

    file: BinaryIO
    name: str

    def write(self, content: bytes) -> None:
        rest = memoryview(content)
        try:
            while rest:  # an unbuffered stream may write only a part
                rest = rest[self.file.write(rest) :]
            self.file.flush()
        except OSError as error:
            raise type(error)(f"Expected {self.name} to take what is written. Received: {error.strerror}.") from None


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Output]:
    """Opens a new file, which is called `<name>.part` until all of it is written.

    So a file with its own name is complete. After a failure, or a kill, the part stays: it may be hours of work.

    Raises:
        FileExistsError: If the file or its part exists; neither is ever overwritten.
        OSError: If it cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    for taken in (path, part):
        if taken.exists() or taken.is_symlink():
            raise FileExistsError(f"Expected {str(path)!r} to be a new file. There is already: {str(taken)!r}")
    try:
        file = part.open("xb")
    except OSError as error:
        raise type(error)(f"Expected a file that can be written. Received: {str(path)!r}, {error.strerror}.") from None
    try:
        yield Output(file, repr(str(path)))
        file.close()
        files.move(part, path)
    except BaseException:
        with contextlib.suppress(OSError):  # tries again to flush what could not be written
            file.close()
        if part.exists():  # its folder may have been removed meanwhile
            if part.stat().st_size:
                print(f"What is finished is kept in {str(part)!r}.", file=sys.stderr)
            else:
                part.unlink()
        raise


def output(path: Path | None) -> contextlib.AbstractContextManager[Output]:
    """Opens a new file; without a path, stdout."""
    return new_file(path) if path else contextlib.nullcontext(Output(standard("stdout"), "stdout"))


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Makes an empty folder and keeps other writers out of it. If it is made and stays empty, it is removed.

    Raises:
        FileExistsError: If it exists and is not empty, or another process writes into it.
        OSError: If it cannot be made.
    """
    taken = FileExistsError(f"Expected a folder that is new or empty. Received: {str(path)!r}")
    if path.is_file():
        raise taken
    with files.locked(path):
        if not files.is_empty(path):
            raise taken
        yield path


class Progress:
    """Shows a count of lines and its rate on stderr, and the percentage done and the time left if the size is known.

    Args:
        shown: If False, or if stderr is not a terminal, nothing is written.
        size: The size of the whole work, in the unit of `add`'s `done`; None if it is unknown, as for a pipe.
    """

    def __init__(self, shown: bool, size: int | None = None):
        self.shown, self.size = shown and sys.stderr.isatty(), size
        self.lines = self.done = 0
        self.started = time.monotonic()

    def add(self, lines: int, done: int) -> None:
        self.lines += lines
        self.done += done
        if not self.shown:
            return
        seconds = time.monotonic() - self.started
        text = f"{self.lines:,} lines, {self.lines / max(seconds, 1e-9):,.1f} a second"
        if self.size:
            share = min(1.0, self.done / self.size)
            minutes, rest = divmod(round(seconds * (1 - share) / max(share, 1e-9)), 60)
            text += f", {share:.0%}, {minutes:,}:{rest:02} left"
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error) -> None:
        if self.shown and self.lines:
            print(file=sys.stderr)


def size(stream: BinaryIO) -> int | None:
    """Returns how many bytes of a file are left to read; None for a pipe, a terminal or a `.gz`."""
    if isinstance(stream, Gzip):
        return None
    try:
        status = os.fstat(stream.fileno())
        return status.st_size - stream.tell() if stat.S_ISREG(status.st_mode) else None
    except OSError:
        return None
