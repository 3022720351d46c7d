"""Formats of translations: lines of text, columns with scores, or JSON lines.

A format is a function from the number of a line, its text and its `Translation` to complete lines of output.
"""

import functools
import json
import math
from collections.abc import Callable, Sequence

import numpy as np

# The possible fields of a JSON line: attributes of `Translation`.
FIELDS = ("text", "score", "tokens", "token_ids", "token_log_probs", "alignment")
# Valid inside JSON strings, but `str.splitlines` splits lines there.
_TO_BLANKS = dict.fromkeys(map(ord, "\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_LINE_ENDS = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}


def add_format(parser, names: Sequence[str], default: str) -> None:
    """Adds `--format`, one of some names, and `--fields`; `default` is for the help."""
    parser.add_argument("--format", choices=names, help=f"default: {default}")
    fields = f"for jsonl, any of {','.join(FIELDS)} (default: text,score)"
    parser.add_argument("--fields", metavar="F,F", help=fields)


def of_translations(arguments, n_best: int) -> tuple[Callable[[int, str, object], str], bool]:
    """Returns the format that `--format`, `--fields` and `--n-best` choose, and whether it contains alignments.

    Raises:
        ValueError: If these do not fit together, or a field is unknown.
    """
    name = arguments.format or ("text" if n_best == 1 else "tsv")
    if name == "text" and n_best > 1:
        raise ValueError("Expected --format tsv or jsonl with --n-best, for text has a line for every line in.")
    fields = _fields(arguments, name)
    forms = {"text": _text, "tsv": _tsv, "jsonl": functools.partial(_json_line, fields)}
    return forms[name], "alignment" in fields


def of_scores(arguments) -> tuple[Callable[[int, str, object], str], bool]:
    """Returns the format of given translations with their scores, and whether it contains alignments.

    Raises:
        ValueError: If `--format` and `--fields` do not fit together, or a field is unknown.
    """
    name = arguments.format or "tsv"
    fields = _fields(arguments, name)
    return {"tsv": _scored_tsv, "jsonl": functools.partial(_scored_json_line, fields)}[name], "alignment" in fields


def _fields(arguments, form: str) -> list[str]:
    """Returns the fields of a JSON line, given with commas between."""
    if arguments.fields and form != "jsonl":
        raise ValueError(f"Expected --format jsonl with --fields. Received: --format {form}")
    names = (arguments.fields or "text,score").split(",")
    if unknown := [name for name in names if name not in FIELDS]:
        raise ValueError(f"Expected --fields among: {', '.join(FIELDS)}. Received: {', '.join(unknown)}")
    return names


def _text(number: int, source: str, translation) -> str:
    return _on_one_line(translation.text) + "\n"


def _tsv(number: int, source: str, translation) -> str:
    """Returns a row for each hypothesis, best first: the number of the line, the score, the translation."""
    found = translation.n_best or (translation,)
    return "".join(f"{number}\t{one.score:.4f}\t{_on_one_line(one.text)}\n" for one in found)


def _json_line(fields: Sequence[str], number: int, source: str, translation) -> str:
    """Returns an object with all hypotheses of the line. If tokens are among the fields, so are the source tokens."""
    found = translation.n_best or (translation,)
    hypotheses = [{field: _plain(getattr(one, field)) for field in fields} for one in found]
    return _object(fields, number, source, translation, translations=hypotheses)


def _scored_tsv(number: int, source: str, translation) -> str:
    """Returns a row: the number of the line, the log-probability, the score, the translation."""
    log_prob = _log_prob(translation)
    return f"{number}\t{log_prob:.4f}\t{translation.score:.4f}\t{_on_one_line(translation.text)}\n"


def _scored_json_line(fields: Sequence[str], number: int, source: str, translation) -> str:
    values = {field: _plain(getattr(translation, field)) for field in fields}
    return _object(fields, number, source, translation, log_prob=_plain(_log_prob(translation)), **values)


def _object(fields: Sequence[str], number: int, source: str, translation, **values) -> str:
    tokens = {"source_tokens": translation.source_tokens} if {"tokens", "alignment"} & set(fields) else {}
    line = {"line": number, "source": source, **tokens, **values}
    return json.dumps(line, ensure_ascii=False, allow_nan=False).translate(_LINE_ENDS) + "\n"


def _log_prob(translation) -> float:
    """Returns the log-probability of the whole translation; 0 for the blank translation of a blank line."""
    log_probs = translation.token_log_probs
    return 0.0 if log_probs is None else float(np.sum(log_probs, dtype="float64"))


def _plain(value):
    """Converts for JSON: arrays to lists, numbers to five decimals, infinity and NaN to null, None to []."""
    if value is None:
        return []
    if isinstance(value, np.ndarray):
        return [_plain(one) for one in value]
    if isinstance(value, (float, np.floating)):
        return round(float(value), 5) if math.isfinite(value) else None
    return value


def _on_one_line(text: str) -> str:
    """Replaces line breaks of all kinds and tabs, which a byte-level vocabulary can produce."""
    return text.translate(_TO_BLANKS)
