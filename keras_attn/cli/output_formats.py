"""How translations are written: lines of text, columns with scores, or JSON lines.

A format is a function of the line's number, its text and its `Translation` that returns whole lines.
"""

import functools
import json
import math
from collections.abc import Callable, Sequence

import numpy as np

# What a JSON line can say of a translation: names of `Translation`.
FIELDS = ("text", "score", "tokens", "token_ids", "token_log_probs", "alignment")
# JSON leaves these be, but `str.splitlines` ends a line at them.
_LINE_ENDS = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}


def named(name: str, fields: Sequence[str]) -> Callable[[int, str, object], str]:
    """The format of this name: "text", "tsv" or "jsonl", the last with these fields."""
    return {"text": _text, "tsv": _tsv, "jsonl": functools.partial(_json_line, fields)}[name]


def _text(number: int, source: str, translation) -> str:
    return _on_one_line(translation.text) + "\n"


def _tsv(number: int, source: str, translation) -> str:
    """A row for each hypothesis, best first: the number of the line, the score, the translation."""
    found = translation.n_best or (translation,)
    return "".join(f"{number}\t{one.score:.4f}\t{_on_one_line(one.text)}\n" for one in found)


def _json_line(fields: Sequence[str], number: int, source: str, translation) -> str:
    """An object for each line, which lists its hypotheses; tokens come with those of the source."""
    line = {"line": number, "source": source}
    if {"tokens", "alignment"} & set(fields):
        line["source_tokens"] = translation.source_tokens
    found = translation.n_best or (translation,)
    line["translations"] = [{field: _plain(getattr(one, field)) for field in fields} for one in found]
    return json.dumps(line, ensure_ascii=False, allow_nan=False).translate(_LINE_ENDS) + "\n"


def _plain(value):
    """For JSON: arrays as lists, five decimals, null for what is no number; [] for what a blank line lacks."""
    if value is None:
        return []
    if isinstance(value, np.ndarray):
        return [_plain(one) for one in value]
    if isinstance(value, (float, np.floating)):
        return round(float(value), 5) if math.isfinite(value) else None
    return value


def _on_one_line(text: str) -> str:
    """A byte-level vocabulary can write anything, a line break or a tab too."""
    return text.replace("\n", " ").replace("\t", " ")
