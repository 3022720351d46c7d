"""Lines in and files out for corpora of any size: bounded windows of lines, and files that are whole or not there."""

import contextlib
import io
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_BLOCK = 1 << 16  # bytes read at once
_PATIENCE = 0.05  # seconds


def windows(
    stream: BinaryIO,
    *,
    most_lines: int,
    most_weight: float = float("inf"),
    weigh: Callable[[bytes], float] = len,
    longest: int = 1 << 20,
    patient_from: int = 64,
) -> Iterator[list[bytes]]:
    """Lists of lines, without their "\\n", of a bounded size: what has come in, or as much as fits.

    A list that a slow writer fills is yielded as soon as no more is there, so that a single line is answered
    at once. From `patient_from` lines on nobody is waiting for one answer; a moment's patience with the
    writer then makes full windows, and full batches, from a pipe.

    Args:
        stream: Read by `read1` alone, so that nothing is left in its buffer where `select` does not see it.
        most_lines: Lines of a window, at most.
        most_weight: A window ends with the line that reaches this weight.
        weigh: The weight of a line.
        longest: Bytes kept of a line. What comes after them is dropped as it is read, and never held.
        patient_from: Lines from which on a pause of the writer is waited for.
    """
    window, weight, rest = [], 0.0, b""
    while block := stream.read1(_BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        rest = rest[:longest]
        for line in lines:
            window.append(line[:longest])
            weight += weigh(window[-1])
            if len(window) >= most_lines or weight >= most_weight:
                yield window
                window, weight = [], 0.0
        if window and not _is_waiting(stream, _PATIENCE if len(window) >= patient_from else 0):
            yield window
            window, weight = [], 0.0
    if rest:
        window.append(rest)
    if window:
        yield window


def _is_waiting(stream: BinaryIO, seconds: float) -> bool:
    """Whether something can be read, if need be after some seconds; the end of a file can."""
    try:
        return bool(select.select([stream], [], [], seconds)[0])
    except io.UnsupportedOperation:  # no file of the system's: nothing in it is still to come
        return True
    except OSError:  # Windows selects sockets alone
        return False


def standard(name: str) -> BinaryIO:
    """The bytes of `stdin` or `stdout`."""
    stream = getattr(sys, name)
    if stream is None:
        raise OSError(f"Expected {name} to be open. It is closed.")
    return stream.buffer


def opened(path: Path) -> BinaryIO:
    """The file, to be read."""
    try:
        return path.open("rb")
    except OSError as error:
        raise type(error)(f"Expected a file that can be read. Received: {str(path)!r}, {error.strerror}.") from None


class Output:
    """Takes bytes and hands them on at once; what goes wrong is a sentence."""

    def __init__(self, file: BinaryIO, name: str):
        self.file = file
        self.name = name

    def write(self, content: bytes) -> None:
        rest = memoryview(content)
        try:
            while rest:  # a stream without a buffer may take less than it is given
                rest = rest[self.file.write(rest) :]
            self.file.flush()
        except OSError as error:
            raise type(error)(f"Expected {self.name} to take what is written. Received: {error.strerror}.") from None


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Output]:
    """A file that gets its name when all is written, and until then is called `<name>.part`.

    So a file with its right name is whole. A failure, or a kill, leaves the part: hours of finished work.

    Raises:
        FileExistsError: If there is such a file, or part; neither is ever overwritten.
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
        file.flush()
        os.fsync(file.fileno())
        file.close()
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):  # flushes again what could not be written
            file.close()
        if part.stat().st_size:
            print(f"What is finished is kept in {str(part)!r}.", file=sys.stderr)
        else:
            part.unlink()
        raise


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """An empty folder, which a failure leaves behind only with something in it.

    Raises:
        FileExistsError: If there is one with something in it.
        OSError: If it cannot be made.
    """
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise FileExistsError(f"Expected a folder that is new or empty. Received: {str(path)!r}")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(f"Expected a folder that can be made. Received: {str(path)!r}, {error.strerror}.") from None
    try:
        yield path
    except BaseException:
        with contextlib.suppress(OSError):
            path.rmdir()
        raise


class Progress:
    """A count with its rate, on stderr; with the share that is done and the time left where the size is known.

    Args:
        shown: Nothing is written if False, or if stderr is no terminal.
        size: Of all that is to be done, in the unit of `add`'s `done`; None when nobody knows, as of a pipe.
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
    """Bytes that are left to read of a file; None for a pipe or a terminal."""
    try:
        status = os.fstat(stream.fileno())
        return status.st_size - stream.tell() if stat.S_ISREG(status.st_mode) else None
    except OSError:
        return None
