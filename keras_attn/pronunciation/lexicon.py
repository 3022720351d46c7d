"""Lexicons: words and their pronunciations, as CMUdict, tables and aligners of speech have them."""

import re
import unicodedata
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from keras_attn.text import APOSTROPHES, iterate_lines

_PLAIN = str.maketrans(dict.fromkeys(APOSTROPHES, "'"))


def word_key(word: str) -> str:
    """Returns the form in which a lexicon has a word: NFC, lower case, with plain apostrophes."""
    return unicodedata.normalize("NFC", word).lower().translate(_PLAIN)


def read_lexicon(lexicon: str | PathLike | Mapping[str, str | list[str]]) -> dict[str, tuple[str, ...]]:
    """Returns the pronunciations of each word, in their order.

    Args:
        lexicon: A file, plain or packed: lines "word, tab, phones", or as CMUdict's "word phones" with blanks between,
            variants as "word(2)", comments after "#" or ";;;". Or a dict from words to a pronunciation or a list.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a word without phones.

    Example:
        >>> keras_attn.pronunciation.read_lexicon({"Keras": "K EH R AH S"})
        {'keras': ('K EH R AH S',)}
    """
    entries: dict[str, list[str]] = {}
    if isinstance(lexicon, Mapping):
        for word, texts in lexicon.items():
            entries.setdefault(word_key(word), []).extend([texts] if isinstance(texts, str) else texts)
        return {word: tuple(texts) for word, texts in entries.items()}
    for number, line in enumerate(iterate_lines(Path(lexicon)), 1):
        line = re.sub(r"^;;;.*| #.*", "", line).strip()
        if not line:
            continue
        word, _, phones = line.partition("\t") if "\t" in line else line.partition(" ")
        if not phones.strip():
            raise ValueError(f"Expected a word and its phones in line {number:,} of {lexicon}. Received: {line[:80]!r}")
        word = re.sub(r"(?<=.)\(\d+\)$", "", word.strip())
        variants = entries.setdefault(word_key(word), [])
        if (text := " ".join(phones.split())) not in variants:
            variants.append(text)
    return {word: tuple(texts) for word, texts in entries.items()}
