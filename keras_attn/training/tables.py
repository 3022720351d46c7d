"""Pairs of text from a table: tab-separated, CSV or JSON lines, plain or packed, with or without a header."""

import csv
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_attn.suggestions import did_you_mean
from keras_attn.text import PACKED, iterate_lines

ENDINGS = (".tsv", ".csv", ".jsonl")


class Table(NamedTuple):
    """The two columns of a table: `sources`, `targets`, and `columns`, the names or numbers of both."""

    sources: list[str]
    targets: list[str]
    columns: tuple[str, str]


def read_table(path: Path, source: str | None = None, target: str | None = None) -> Table:
    """Returns two columns of a table.

    The name without `.gz`, `.xz` or `.bz2` says what it is: `.csv` has commas and quotation marks, `.jsonl` an object
    in each line, anything else tabs. A header is recognised by the names of both columns; without one, the columns are
    the first two, and names are names of languages only. An object may have the two columns in another one inside,
    such as `{"translation": {"en": "a house", "fr": "une maison"}}`.

    Args:
        path: The file.
        source, target: Names of columns in a header, or numbers from 1; None: "source" and "target", or the first two.

    Raises:
        ValueError: for a line without one of the columns, a header with one of two names, a number without another or
            below 1, or what is no table.
    """
    kind = ending(path)
    wanted = source or "source", target or "target"
    if kind == ".jsonl":
        rows, columns = _objects(path, wanted), wanted
    else:
        rows, columns = _columns(_comma_separated(path) if kind == ".csv" else _tab_separated(path), path, wanted)
    sides: tuple[list[str], list[str]] = ([], [])
    for row in rows:
        for side, text in zip(sides, row, strict=True):
            side.append(" ".join(text.splitlines()) if "\n" in text or "\r" in text else text)
    return Table(*sides, columns)


def ending(path: Path) -> str:
    """Returns the ending of a file's name, without that of its packing: ".tsv" of "words.TSV.gz"."""
    return Path(path.name.removesuffix(path.suffix) if path.suffix in PACKED else path.name).suffix.lower()


def _tab_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(iterate_lines(path), 1):
        yield number, line.split("\t")


def _comma_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line + "\n" for line in iterate_lines(path)), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"Expected {path} to be CSV. Received in line {reader.line_num:,}: {error}") from None


def _columns(
    rows: Iterator[tuple[int, list[str]]], path: Path, wanted: tuple[str, str]
) -> tuple[Iterator[Sequence[str]], tuple[str, str]]:
    number, first = next(rows)
    names = [name.strip() for name in first]
    found = [name for name in wanted if name in names]
    if any(name.isdecimal() for name in wanted):
        if not all(name.isdecimal() and int(name) for name in wanted):
            given = " and ".join(map(repr, wanted))
            raise ValueError(f"Expected --source and --target to be two numbers of columns, from 1. Received: {given}")
        places, has_header = [int(name) - 1 for name in wanted], False
    elif len(found) == 2:
        places, has_header = [names.index(name) for name in wanted], True
    elif found:
        missing = next(name for name in wanted if name not in names)
        raise ValueError(_no_column(path, missing, names))
    else:
        places, has_header = [0, 1], False

    def texts() -> Iterator[list[str]]:
        for line, row in itertools.chain([] if has_header else [(number, first)], rows):
            if len(row) <= max(places):
                received = f"Received: {' '.join(row)[:80]!r}"
                raise ValueError(f"Expected 'source, tab, target' in line {line:,} of {path}. {received}")
            yield [row[place] for place in places]

    return texts(), wanted if has_header else tuple(str(place + 1) for place in places)


def _objects(path: Path, wanted: tuple[str, str]) -> Iterator[list[str]]:
    for number, line in enumerate(iterate_lines(path), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Expected an object of JSON in line {number:,} of {path}. Received: {error}") from None
        inner = [one for one in (found, *_values(found)) if isinstance(one, Mapping) and all(w in one for w in wanted)]
        if not inner:
            names = list(found) if isinstance(found, Mapping) else []
            missing = next((name for name in wanted if name not in names), wanted[0])
            raise ValueError(_no_column(path, missing, names, f"line {number:,} of "))
        texts = [inner[0][name] for name in wanted]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"Expected text in {' and '.join(wanted)} of line {number:,} of {path}. Received: {texts}")
        yield texts


def _values(found: Any) -> list[Any]:
    return list(found.values()) if isinstance(found, Mapping) else []


def _no_column(path: Path, missing: str, names: Sequence[str], line: str = "") -> str:
    return (
        f"Expected --source and --target to name two columns of {line}{path} ({', '.join(names)[:200] or 'none'}). "
        f"Received: {missing!r}{did_you_mean(missing, names)}"
    )
