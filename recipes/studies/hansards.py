"""The Hansards gold alignments (Och & Ney 2000), and their tokenization for other English and French text.

The gold is that of the NAACL 2003 shared task (Mihalcea & Pedersen 2003): 447 sentences in which words and punctuation
marks are separated by blanks, and elisions and contractions are written out, "l'État" as "le État" and "du" as "de le".
The links are between these words, so a system is scored on text that is tokenized in the same way, in lower case.
"""

import re
from pathlib import Path
from typing import NamedTuple

from keras_attn.evaluation import Gold, parse_links
from keras_attn.text import read_lines, unequal_lengths_error

_CONTRACTIONS = [
    (r"\bcan't\b", "cannot"),
    (r"\bwon't\b", "will not"),
    (r"\bshan't\b", "shall not"),
    (r"n't\b", " not"),
    (r"\b(i)'m\b", r"\1 am"),
    (r"'re\b", " are"),
    (r"'ve\b", " have"),
    (r"'ll\b", " will"),
    (r"'d\b", " would"),
    (r"\blet's\b", "let us"),
    (r"\b(he|she|it|that|there|here|what|where|who|how)'s\b", r"\1 is"),
]
_ELISIONS = [
    (r"\bs'(ils?)\b", r"si \1"),
    (r"\b([cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu|quelqu)'", r"\1e "),
    (r"\bdu\b", "de le"),
    (r"\bdes\b", "de les"),
    (r"\bau\b", "à le"),
    (r"\baux\b", "à les"),
]
# A number, an abbreviation with its full stop, the possessive, the first half of "aujourd'hui", a word, a mark.
_WORDS = re.compile(r"\d+(?:[.,]\d+)*|\b(?:mr|mrs|dr|st|hon|m)\.|'s\b|aujourd'|\w+|\.\.\.|--|[^\w\s]")


def english(line: str) -> str:
    """English tokenized as the gold: lower case, contractions written out, a blank between words and marks."""
    return _tokenize(line, _CONTRACTIONS)


def french(line: str) -> str:
    """French tokenized as the gold: lower case, elisions and contractions written out, blanks between words."""
    return _tokenize(line, _ELISIONS)


def _tokenize(line: str, rules: list[tuple[str, str]]) -> str:
    line = line.lower().replace("’", "'")
    for pattern, replacement in rules:
        line = re.sub(pattern, replacement, line)
    return " ".join(_WORDS.findall(line))


class GoldText(NamedTuple):
    """Tokenized sentences and the links of each pair; words are numbered from 0."""

    sources: list[str]
    targets: list[str]
    links: list[Gold]


def read_gold(folder: str | Path, name: str = "enfr") -> GoldText:
    """Reads `<name>.src-tgt.gz`, lines "source ||| target", and `<name>.gold.gz`, their links, numbered from 1.

    Raises:
        FileNotFoundError: if one is missing.
        ValueError: for files of unequal length, a line without its two sides, or a link that is malformed or to a word
            that the sentence does not have; the message names the line.
    """
    text_path, gold_path = (Path(folder) / f"{name}.{kind}.gz" for kind in ("src-tgt", "gold"))
    text, gold = read_lines(text_path), read_lines(gold_path)
    if len(text) != len(gold):
        raise unequal_lengths_error(text_path, gold_path, len(text), len(gold))
    gold_text = GoldText([], [], [])
    for number, (line, links) in enumerate(zip(text, gold, strict=True), start=1):
        sides = [side.split() for side in line.split("|||")]
        if len(sides) != 2 or not all(sides):
            raise ValueError(f"Expected 'source ||| target' in line {number} of {text_path}. Received: {line!r}")
        try:
            read = parse_links(links, base=1, lengths=(len(sides[0]), len(sides[1])))
        except ValueError as error:
            raise ValueError(f"{error} in line {number} of {gold_path}") from None
        for column, value in zip(gold_text, (*(" ".join(side).lower() for side in sides), read), strict=True):
            column.append(value)
    return gold_text
