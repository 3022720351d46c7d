"""Words of a text by their characters alone, the same for every tokenizer and both sides of a translation."""

import functools
import unicodedata

from keras_attn.text import BLANKS

# Scripts without blanks between words: Thai to Khmer, kana, bopomofo, ideographs. Each character is a word.
_UNSPACED = ((0xE00, 0xEFF), (0xF00, 0x109F), (0x1780, 0x17FF), (0x3040, 0x312F), (0x31A0, 0x31FF), (0x3400, 0x9FFF))
_APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
_UNSPACED += ((0xF900, 0xFAFF), (0xFF66, 0xFF9D), (0x20000, 0x3FFFF))


def words_of(text: str) -> list[tuple[int, int]]:
    """Returns the (start, end) of each word of a text, and of each other character that is no blank.

    A word is a run of letters, marks and digits, with the apostrophe after it if one joins it to another word. A letter
    of a script without blanks is a word, with its marks.

    Args:
        text: Any text.

    Example:
        >>> words_of("l'or, 你好")
        [(0, 2), (2, 4), (4, 5), (6, 7), (7, 8)]
    """
    spans, last = [], "blank"
    for place, character in enumerate(text):
        kind = _kind(character)
        following = text[place + 1 : place + 2]
        is_elision = character in _APOSTROPHES and last == "word" and following and _kind(following) == "word"
        is_mark = last == kind == "letter" and unicodedata.category(character)[0] == "M"
        if is_elision or is_mark or last == kind == "word":
            spans[-1] = spans[-1][0], place + 1
        elif kind != "blank":
            spans.append((place, place + 1))
        last = kind
    return spans


def is_unspaced(character: str) -> bool:
    """Returns whether a character belongs to a script that has no blanks between words."""
    return _kind(character) == "letter"


@functools.lru_cache(4096)
def _kind(character: str) -> str:
    if character in BLANKS:
        return "blank"
    if unicodedata.category(character)[0] not in "LMN" and character != "_":
        return "sign"
    return "letter" if any(low <= ord(character) <= high for low, high in _UNSPACED) else "word"
