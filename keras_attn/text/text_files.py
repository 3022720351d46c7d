"""Parallel text in files: one sentence per line, and line n of one file is the translation of line n of the other."""

import bz2
import codecs
import glob
import gzip
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

PathLike = str | os.PathLike
_LONGEST_LINE = 1 << 24  # bytes
_LARGEST_UNPACKED = 1 << 26  # bytes of a compressed file that unpacks to more than `_MOST_EXPANSION` times its size
_MOST_EXPANSION = 200  # text has 3 to 10
_BLOCK = 1 << 20  # bytes of text that are read at a time
_OPEN = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
PACKED = tuple(_OPEN)  # endings of the compressed files that are read as they are
_FORMATS = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2"}


def without_byte_order_mark(text: bytes, name: PathLike) -> bytes:
    """Returns the beginning of a text without UTF-8's byte order mark.

    Raises:
        ValueError: If it begins with the mark of UTF-16 or UTF-32.
    """
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        raise ValueError(
            f"Expected UTF-8 in {name}. Received: UTF-16 or UTF-32, by its byte order mark. `iconv -f UTF-16 -t UTF-8` "
            "converts it"
        )
    return text.removeprefix(codecs.BOM_UTF8)


def iterate_lines(path: PathLike) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, plain, `.gz`, `.xz` or `.bz2`, without their ends: "\n" or "\r\n" alone.

    A byte order mark at the beginning is no part of the text.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is empty, is UTF-16, is invalid UTF-8 (the message has the line number), has a line of
            more than 16 MiB, or is compressed and damaged or unpacks to far more than text does.
    """
    for number, block in iterate_blocks(path):
        yield from block_lines(block, path, number)


def iterate_blocks(path: PathLike, size: int = _BLOCK) -> Iterator[tuple[int, bytes]]:
    """Yields the bytes of a file in blocks of whole lines, each with the number of the lines before it.

    Args:
        path: A file as `iterate_lines` reads it.
        size: int, bytes of a block; a block with a longer line is longer.

    Raises:
        FileNotFoundError, ValueError: As `iterate_lines`, but for invalid UTF-8, which `block_lines` finds.
    """
    path, number, total, rest = Path(path), 0, 0, b""
    if not path.is_file():
        received = "no regular file" if path.exists() else "a path that does not exist"
        raise FileNotFoundError(f"Expected a text file {path}. Received: {received}")
    most = max(_LARGEST_UNPACKED, _MOST_EXPANSION * path.stat().st_size)
    try:
        with _OPEN.get(path.suffix, open)(path, "rb") as file:
            while part := file.read(size):
                part = part if total else without_byte_order_mark(part, path)
                total += len(part)
                rest += part
                first, end = rest.find(b"\n") + 1, rest.rfind(b"\n") + 1
                if (first or len(rest)) > _LONGEST_LINE:
                    raise ValueError(
                        f"Expected lines of at most {_LONGEST_LINE:,} bytes in {path}. Received: a longer one, line "
                        f"{number + 1}"
                    )
                if total > most:
                    raise ValueError(
                        f"Expected text in {path}. Received: a file that unpacks to more than {most:,} bytes"
                    )
                if end:
                    block, rest = rest[:end], rest[end:]
                    yield number, block
                    number += block.count(b"\n")
            if rest:
                yield number, rest
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system; the others are of the format
            raise
        raise ValueError(
            f"Expected {path} to be a whole {_FORMATS.get(path.suffix)} file. Received: one that is damaged after line "
            f"{number}"
        ) from None
    if not total:
        raise ValueError(f"Expected lines of text in {path}. Received: an empty file")


def block_lines(block: bytes, path: PathLike, number: int) -> list[str]:
    """Returns the lines of a block that `iterate_blocks` yielded with `number`.

    Raises:
        ValueError: If it is invalid UTF-8; the message has the line number.
    """
    try:
        return block.replace(b"\r\n", b"\n").removesuffix(b"\n").decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = number + error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"Expected UTF-8 in {path}. Received: an invalid byte 0x{error.object[error.start]:02x} in line {line}"
        ) from None


def text_paths(paths: PathLike | Sequence[PathLike]) -> list[Path]:
    """Returns the files that a path, a glob such as "news.*.de.gz" or a sequence of them stands for.

    The files of a glob are in the order of their names. A file whose name has the characters of a glob is itself.

    Raises:
        FileNotFoundError: If a path or a glob stands for no file.
        ValueError: If the sequence is empty.
    """
    found = []
    for path in [paths] if isinstance(paths, PathLike) else paths:
        if Path(path).is_file():
            found.append(Path(path))
        elif glob.has_magic(os.fspath(path)):
            matches = [match for match in map(Path, sorted(glob.glob(os.fspath(path)))) if match.is_file()]
            if not matches:
                raise FileNotFoundError(f"Expected text files {path}. Received: a pattern that no file matches")
            found += matches
        else:
            raise FileNotFoundError(f"Expected a text file {path}. Received: a path that does not exist")
    if not found:
        raise ValueError("Expected a text file or more. Received: none")
    return found


def sample_lines(paths: PathLike | Sequence[PathLike], count: int, seed: int = 0) -> list[str]:
    """Returns `count` lines of some files, each with the same probability, in their order; all if there are fewer.

    Args:
        paths: As `text_paths`; the files are read once.
        count: int, number of lines.
        seed: int, which sample to draw.

    Raises:
        FileNotFoundError, ValueError: As `text_paths` and `iterate_lines`.
    """
    random, kept, places, seen = np.random.default_rng(seed), [], [], 0
    for path in text_paths(paths):
        for number, block in iterate_blocks(path):
            lines = block_lines(block, path, number)
            # Algorithm R (Vitter 1985): line n takes a random one of n places, if that is one of those that are kept.
            drawn = random.integers(0, np.arange(seen, seen + len(lines)) + 1)
            for index in np.flatnonzero((drawn < count) | (np.arange(seen, seen + len(lines)) < count)).tolist():
                position = seen + index
                if position < count:
                    kept.append(lines[index])
                    places.append(position)
                else:
                    kept[drawn[index]], places[drawn[index]] = lines[index], position
            seen += len(lines)
    return [kept[index] for index in np.argsort(places)]


def read_lines(path: PathLike) -> list[str]:
    """Returns the lines of `iterate_lines` as a list."""
    return list(iterate_lines(path))


def corpus_paths(folder: PathLike, split: str, language: str) -> list[Path]:
    """Returns the files of one side of a corpus: `<split>.<language>`, or its parts in the order of their names.

    The parts are `<split>.<part>.<language>`. Each file is plain, `.gz`, `.xz` or `.bz2`; of one that is there in
    several forms the first of these is taken.

    Raises:
        FileNotFoundError: If there is none; the message lists the files of the folder.
    """
    return list(_parts(folder, split, language).values())


def parallel_paths(folder: PathLike, split: str, source: str, target: str) -> list[tuple[Path, Path]]:
    """Returns the files of both sides of a corpus, as `corpus_paths` finds them, part by part.

    Raises:
        FileNotFoundError: As `corpus_paths`.
        ValueError: If a part is there in one language alone.
    """
    sides = [_parts(folder, split, language) for language in (source, target)]
    if [len(side) for side in sides] == [1, 1]:  # "train.news-en.en" with "train.news-fr.fr"
        return list(zip(*(side.values() for side in sides), strict=True))
    for language, own, other in ((source, *sides), (target, *reversed(sides))):
        if missing := [part for part in other if part not in own]:
            raise ValueError(
                f"Expected {missing[0]}.{language} in {folder}, the other side of {other[missing[0]].name}. Received: "
                f"{', '.join(path.name for path in own.values())}"
            )
    return [(sides[0][part], sides[1][part]) for part in sides[0]]


def _parts(folder: PathLike, split: str, language: str) -> dict[str, Path]:
    """Returns the files of `corpus_paths` by their names without language: "train.news"."""
    folder, split = Path(folder, split).parent, Path(split).name  # a split may be in a folder inside
    present = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    parts = {}
    for suffix in ("", *PACKED):
        for name in present:
            part = name.removesuffix(f".{language}{suffix}")
            if part != name and f"{part}.".startswith(f"{split}.") and (folder / name).is_file():
                parts.setdefault(part, folder / name)
    if not parts:
        raise FileNotFoundError(
            f"Expected {split}.{language} or {split}.{language}.gz in {folder}. "
            f"Received: {', '.join(present) if present else 'an empty or missing folder'}"
        )
    return {split: parts[split]} if split in parts else dict(sorted(parts.items()))


def read_parallel(folder: PathLike, split: str, source: str, target: str) -> tuple[list[str], list[str]]:
    """Returns the source and target lines of a split, of all its parts.

    Raises:
        FileNotFoundError: As `corpus_paths`.
        ValueError: As `parallel_paths` and `iterate_lines`, and if the sides of a part differ in their number of lines.
    """
    sides: tuple[list[str], list[str]] = [], []
    for pair in parallel_paths(folder, split, source, target):
        parts = [read_lines(path) for path in pair]
        if len(parts[0]) != len(parts[1]):
            raise unequal_lengths_error(*pair, len(parts[0]), len(parts[1]))
        for side, part in zip(sides, parts, strict=True):
            side += part
    return sides


def unequal_lengths_error(source: Path, target: Path, source_count: int, target_count: int) -> ValueError:
    """Returns the error for two files that should have equally many lines."""
    return ValueError(
        f"Expected as many lines in {source} as in {target}. Received: {source_count:,} and {target_count:,}"
    )
