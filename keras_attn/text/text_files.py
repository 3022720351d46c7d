"""Parallel text in files: one sentence per line, and line n of one file is the translation of line n of the other."""

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

PathLike = str | os.PathLike
_LONGEST_LINE = 1 << 24  # bytes
_LARGEST_UNPACKED = 1 << 26  # bytes of a .gz that unpacks to more than `_MOST_EXPANSION` times its size
_MOST_EXPANSION = 200  # text has 3 to 10


def iterate_lines(path: PathLike) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, plain or `.gz`. Only "\\n" ends a line, and it is left out.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is empty, is invalid UTF-8 (the message has the line number), has a line of more than
            16 MiB, or is a `.gz` that is damaged or unpacks to far more than text does.
    """
    path, number, size = Path(path), 0, 0
    if not path.is_file():
        raise FileNotFoundError(f"Expected a text file {path}. Received: a path that does not exist")
    most = max(_LARGEST_UNPACKED, _MOST_EXPANSION * path.stat().st_size)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            while line := file.readline(_LONGEST_LINE + 1):
                number += 1
                size += len(line)
                if len(line) > _LONGEST_LINE:
                    raise ValueError(
                        f"Expected lines of at most {_LONGEST_LINE:,} bytes in {path}. Received: a longer one, line "
                        f"{number}"
                    )
                if size > most:
                    raise ValueError(
                        f"Expected text in {path}. Received: a file that unpacks to more than {most:,} bytes"
                    )
                yield line.removesuffix(b"\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Expected UTF-8 in {path}. Received: an invalid byte 0x{error.object[error.start]:02x} in line {number}"
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ValueError(
            f"Expected {path} to be a whole gzip file. Received: one that is damaged after line {number}"
        ) from None
    if not number:
        raise ValueError(f"Expected lines of text in {path}. Received: an empty file")


def read_lines(path: PathLike) -> list[str]:
    """Returns the lines of `iterate_lines` as a list."""
    return list(iterate_lines(path))


def corpus_path(folder: PathLike, split: str, language: str) -> Path:
    """Returns the file of one side of a corpus: `<split>.<language>` or `<split>.<language>.gz`.

    Raises:
        FileNotFoundError: If neither exists; the message lists the files of the folder.
    """
    folder = Path(folder)
    for path in (folder / f"{split}.{language}", folder / f"{split}.{language}.gz"):
        if path.is_file():
            return path
    present = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    raise FileNotFoundError(
        f"Expected {split}.{language} or {split}.{language}.gz in {folder}. "
        f"Received: {', '.join(present) if present else 'an empty or missing folder'}"
    )


def read_parallel(folder: PathLike, split: str, source: str, target: str) -> tuple[list[str], list[str]]:
    """Returns the source and target lines of a split.

    Raises:
        FileNotFoundError: As `corpus_path`.
        ValueError: As `iterate_lines`, and if the sides differ in length.
    """
    paths = [corpus_path(folder, split, language) for language in (source, target)]
    sides = [read_lines(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise unequal_lengths_error(*paths, len(sides[0]), len(sides[1]))
    return sides[0], sides[1]


def unequal_lengths_error(source: Path, target: Path, source_count: int, target_count: int) -> ValueError:
    """Returns the error for two files that should have equally many lines."""
    return ValueError(
        f"Expected as many lines in {source} as in {target}. Received: {source_count:,} and {target_count:,}"
    )
