"""Parallel text in files: one sentence a line, the two sides of a corpus line by line."""

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

PathLike = str | os.PathLike


def iterate_lines(path: PathLike) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or `.gz`, one by one. "\\n" alone ends a line, and is left out.

    Raises:
        FileNotFoundError: where there is no such file.
        ValueError: for an empty file, invalid UTF-8 (the sentence names the line) or a damaged `.gz`.
    """
    path, number = Path(path), 0
    if not path.is_file():
        raise FileNotFoundError(f"Expected a text file {path}, received a path where there is none.")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            for number, line in enumerate(file, 1):  # noqa: B007, the count is used after the loop
                yield line.removesuffix(b"\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Expected UTF-8 in {path}, received an invalid byte 0x{error.object[error.start]:02x} in line {number}."
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ValueError(
            f"Expected {path} to be a whole gzip file, received one that is damaged after line {number}."
        ) from None
    if not number:
        raise ValueError(f"Expected lines of text in {path}, received an empty file.")


def read_lines(path: PathLike) -> list[str]:
    """`iterate_lines` as a list."""
    return list(iterate_lines(path))


def corpus_path(folder: PathLike, split: str, language: str) -> Path:
    """The file of one side of a corpus: `<split>.<language>` or the same with `.gz`.

    Raises:
        FileNotFoundError: where there is neither; the sentence lists what there is.
    """
    folder = Path(folder)
    for path in (folder / f"{split}.{language}", folder / f"{split}.{language}.gz"):
        if path.is_file():
            return path
    present = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    raise FileNotFoundError(
        f"Expected {split}.{language} or {split}.{language}.gz in {folder}, received "
        f"{', '.join(present) if present else 'an empty or missing folder'}."
    )


def read_parallel(folder: PathLike, split: str, source: str, target: str) -> tuple[list[str], list[str]]:
    """Both sides of a split, line by line each other's translation.

    Raises:
        FileNotFoundError, ValueError: as `corpus_path` and `iterate_lines`, and for sides of unequal length.
    """
    paths = [corpus_path(folder, split, language) for language in (source, target)]
    sides = [read_lines(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise unequal(*paths, len(sides[0]), len(sides[1]))
    return sides[0], sides[1]


def unequal(source: Path, target: Path, source_count: int, target_count: int) -> ValueError:
    return ValueError(
        f"Expected as many lines in {source} as in {target}, received {source_count:,} and {target_count:,}."
    )
