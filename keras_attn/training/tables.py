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
_Given = tuple[str | None, str | None]  # --source and --target


class Table(NamedTuple):
    """The two columns of a table: `sources`, `targets`, and `columns`, the names or numbers of both."""

    sources: list[str]
    targets: list[str]
    columns: tuple[str, str]


def read_table(path: Path, source: str | None = None, target: str | None = None) -> Table:
    """Returns two columns of a table.

    The name without `.gz`, `.xz` or `.bz2` says what it is: `.csv` has commas and quotation marks, `.jsonl` an object
    in each line, anything else tabs. Blank lines are skipped. A header is recognised by the names of both columns, in
    upper or lower case; without one, the columns are the first two, and names are names of languages only. An object
    may have the two columns in another one inside, such as `{"translation": {"en": "a house", "fr": "une maison"}}`.

    Args:
        path: The file.
        source, target: Names of columns in a header, or numbers from 1; None: "source" and "target", or the first two.

    Raises:
        ValueError: for a line without one of the columns, a header with one of two names, a number without another or
            below 1, no pairs, or what is no table.
    """
    kind = ending(path)
    given = source, target
    if kind == ".jsonl":
        rows, columns = _objects(path, given), _wanted(given)
    else:
        rows, columns = _columns(_comma_separated(path) if kind == ".csv" else _tab_separated(path), path, given)
    sides: tuple[list[str], list[str]] = ([], [])
    for row in rows:
        for side, text in zip(sides, row, strict=True):
            side.append(" ".join(text.splitlines()) if "\n" in text or "\r" in text else text)
    if not sides[0]:
        raise ValueError(f"Expected pairs of text in {path}. Received: none")
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


def _wanted(given: _Given) -> tuple[str, str]:
    return given[0] or "source", given[1] or "target"


def _columns(
    rows: Iterator[tuple[int, list[str]]], path: Path, given: _Given
) -> tuple[Iterator[Sequence[str]], tuple[str, str]]:
    wanted = _wanted(given)
    rows = ((line, row) for line, row in rows if len(row) > 1 or any(map(str.strip, row)))
    if (start := next(rows, None)) is None:
        return iter(()), wanted
    names = [name.strip() for name in start[1]]
    found = [names.index(name) for name in wanted if name in names]
    folded = [name.casefold() for name in names]
    if len(found) < 2 and all(name.casefold() in folded for name in wanted):  # one of two may be a word of a first pair
        found = [folded.index(name.casefold()) for name in wanted]
    if any(name.isdecimal() for name in wanted):
        if not all(name.isdecimal() and int(name) for name in wanted):
            received = " and ".join(map(repr, wanted))
            raise ValueError(
                f"Expected --source and --target to be two numbers of columns, from 1. Received: {received}"
            )
        places, has_header = [int(name) - 1 for name in wanted], False
    elif len(found) == 2:
        places, has_header = found, True
    elif found:
        missing = next(name for name in wanted if name not in names)
        raise ValueError(_no_column(path, missing, names, given))
    else:
        places, has_header = [0, 1], False

    def texts() -> Iterator[list[str]]:
        for line, row in itertools.chain([] if has_header else [start], rows):
            if len(row) <= max(places):
                raise ValueError(_too_few_columns(path, line, row, max(places) + 1))
            yield [row[place] for place in places]

    return texts(), wanted if has_header else tuple(str(place + 1) for place in places)


def _too_few_columns(path: Path, line: int, row: Sequence[str], needed: int) -> str:
    text = " ".join(row)
    delimiter = "comma" if ending(path) == ".csv" else "tab"
    expected = f"'source, {delimiter}, target'" if needed == 2 else f"column {needed}"
    count = "" if needed == 2 else "1 column, " if len(row) == 1 else f"{len(row)} columns, "
    hint = ", which has semicolons" if delimiter == "comma" and ";" in text else ""
    return f"Expected {expected} in line {line:,} of {path}. Received: {count}{text[:80]!r}{hint}"


def _objects(path: Path, given: _Given) -> Iterator[list[str]]:
    wanted = _wanted(given)
    for number, line in enumerate(iterate_lines(path), 1):
        if not line.strip():
            continue
        if line.lstrip().startswith("["):
            raise ValueError(f"Expected one object on each line of {path}. Received in line {number:,}: an array")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Expected an object of JSON in line {number:,} of {path}. Received: {error}") from None
        inner = [one for one in (found, *_values(found)) if isinstance(one, Mapping) and all(w in one for w in wanted)]
        if not inner:
            names = list(found) if isinstance(found, Mapping) else []
            missing = next((name for name in wanted if name not in names), wanted[0])
            raise ValueError(_no_column(path, missing, names, given, f"line {number:,} of "))
        texts = [inner[0][name] for name in wanted]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"Expected text in {' and '.join(wanted)} of line {number:,} of {path}. Received: {texts}")
        yield texts


def _values(found: Any) -> list[Any]:
    return list(found.values()) if isinstance(found, Mapping) else []


def _no_column(path: Path, missing: str, names: Sequence[str], given: _Given, line: str = "") -> str:
    if missing in given:
        received = f"{missing!r}{did_you_mean(missing, names)}"
    else:
        options = zip(("--source", "--target"), given, strict=True)
        received = " ".join(f"{option} {name}" for option, name in options if name) or "neither"
    return (
        f"Expected --source and --target to name two columns of {line}{path} ({', '.join(names)[:200] or 'none'}). "
        f"Received: {received}"
    )
