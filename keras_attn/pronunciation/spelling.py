"""Words of a text, and the forms of their letters that a lexicon and a model read."""

import functools
import re
import unicodedata

from keras_attn.text import APOSTROPHES

# Soft hyphens, joiners, marks of direction, byte order marks and selectors of variants, none of which has a sound.
_INVISIBLE = "\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff"
_PLAIN = dict.fromkeys(map(ord, APOSTROPHES), "'") | {0x2010: "-", 0x2011: "-"}
# Latin letters that Unicode does not decompose, as CLDR's transform Latin-ASCII has them.
_PLAIN_LETTERS = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ħ": "h"}
_PLAIN_LETTERS |= {"ı": "i", "ŋ": "ng", "ŧ": "t", "ĸ": "q"}
is_invisible = re.compile(f"[{_INVISIBLE}]").match


def word_key(word: str) -> str:
    """Returns the form in which a lexicon has a word: NFC, lower case, plain apostrophes, nothing invisible."""
    if word.isascii():
        return word.lower().translate(_PLAIN)
    return re.sub(f"[{_INVISIBLE}]", "", unicodedata.normalize("NFC", word).lower().translate(_PLAIN))


def plain_form(letter: str) -> str:
    """Returns plain letters for one of another form, such as "fi" for the ligature, or the letter itself."""
    return _PLAIN_LETTERS.get(letter) or (unicodedata.normalize("NFKC", letter) if letter.isalnum() else letter)


@functools.cache
def word_pattern() -> re.Pattern[str]:
    """Returns the pattern of a word: letters and digits, with marks, apostrophes, hyphens and full stops inside.

    The group "core" is without an apostrophe before or after, which may be a quotation mark.
    """
    marks = "".join(one for one in map(chr, range(0x300, 0x20000)) if unicodedata.category(one)[0] == "M")
    run = rf"[^\W_]+(?:[{marks}{_INVISIBLE}]+[^\W_]+)*[{marks}]*"
    outer = f"['{APOSTROPHES}]?"
    return re.compile(rf"{outer}(?P<core>{run}(?:['{APOSTROPHES}\u2010\u2011.-]{run})*){outer}")
