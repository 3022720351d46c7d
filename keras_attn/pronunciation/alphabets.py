"""Phonetic alphabets: ARPAbet, as CMUdict has it, the International Phonetic Alphabet, and X-SAMPA (Wells 1995)."""

import unicodedata
from collections.abc import Iterable, Sequence

ALPHABETS = ("arpabet", "ipa", "x-sampa")

_ARPABET_VOWELS = {
    **{"AA": "ɑ", "AE": "æ", "AH": "ʌ", "AO": "ɔ", "AW": "aʊ", "AY": "aɪ", "EH": "ɛ", "ER": "ɝ", "EY": "eɪ"},
    **{"IH": "ɪ", "IY": "i", "OW": "oʊ", "OY": "ɔɪ", "UH": "ʊ", "UW": "u"},
}
_UNSTRESSED = {"AH": "ə", "ER": "ɚ"}  # with the digit 0
_ARPABET = _ARPABET_VOWELS | {
    **{"B": "b", "CH": "tʃ", "D": "d", "DH": "ð", "F": "f", "G": "ɡ", "HH": "h", "JH": "dʒ", "K": "k", "L": "l"},
    **{"M": "m", "N": "n", "NG": "ŋ", "P": "p", "R": "ɹ", "S": "s", "SH": "ʃ", "T": "t", "TH": "θ", "V": "v"},
    **{"W": "w", "Y": "j", "Z": "z", "ZH": "ʒ"},
}
_STRESS = {"0": "", "1": "ˈ", "2": "ˌ", "": ""}

_X_SAMPA = {
    **{"ɡ": "g", "ɑ": "A", "β": "B", "ç": "C", "ð": "D", "ɛ": "E", "ɱ": "F", "ɣ": "G", "ɥ": "H", "ɪ": "I", "ɲ": "J"},
    **{"ɬ": "K", "ʎ": "L", "ɯ": "M", "ŋ": "N", "ɔ": "O", "ʋ": "P", "ɒ": "Q", "ʁ": "R", "ʃ": "S", "θ": "T", "ʊ": "U"},
    **{"ʌ": "V", "ʍ": "W", "χ": "X", "ʏ": "Y", "ʒ": "Z", "ə": "@", "ɘ": "@\\", "ɚ": "@`", "æ": "{", "ʉ": "}"},
    **{"ɨ": "1", "ø": "2", "ɜ": "3", "ɝ": "3`", "ɞ": "3\\", "ɾ": "4", "ɫ": "5", "ɐ": "6", "ɤ": "7", "ɵ": "8"},
    **{"œ": "9", "ɶ": "&", "ʔ": "?", "ʕ": "?\\", "ʢ": "<\\", "ʡ": ">\\", "ɕ": "s\\", "ʑ": "z\\", "ɖ": "d`"},
    **{"ʈ": "t`", "ɳ": "n`", "ɭ": "l`", "ɽ": "r`", "ʂ": "s`", "ʐ": "z`", "ɻ": "r\\`", "ɹ": "r\\", "ɦ": "h\\"},
    **{"ɧ": "x\\", "ɰ": "M\\", "ɮ": "K\\", "ʙ": "B\\", "ɸ": "p\\", "ɢ": "G\\", "ɴ": "N\\", "ʀ": "R\\", "ɟ": "J\\"},
    **{"ʝ": "j\\", "ħ": "X\\", "ʜ": "H\\", "ɺ": "l\\", "ʟ": "L\\", "ɓ": "b_<", "ɗ": "d_<", "ɠ": "g_<"},
    **{"ʄ": "J\\_<", "ʛ": "G\\_<", "ˈ": '"', "ˌ": "%", "ː": ":", "ˑ": ":\\", "ʰ": "_h", "ʷ": "_w", "ʲ": "_j"},
    **{"ˠ": "_G", "ˤ": "_?\\", "ʼ": "_>", "ⁿ": "_n", "ˡ": "_l", "˞": "`", "\u0361": "_", "\u0303": "_~"},
    **{"\u0325": "_0", "\u030a": "_0", "\u0329": "=", "\u032f": "_^", "\u032a": "_d", "\u031a": "_}", "\u031d": "_r"},
    **{"\u031e": "_o", "\u0320": "_-", "\u031f": "_+", "\u0324": "_t", "\u0330": "_k", "\u0308": '_"', "\u033d": "_x"},
    **{"\u033a": "_a", "\u033b": "_m", "\u032c": "_v", "\u0339": "_O", "\u031c": "_c", "\u0318": "_A", "\u0319": "_q"},
    **{"\u030b": "_T", "\u0301": "_H", "\u0304": "_M", "\u0300": "_L", "\u030f": "_B", "\u030c": "_R", "\u0302": "_F"},
    **{"\u203f": "-\\", "ʘ": "O\\", "ǀ": "|\\", "ǁ": "|\\|\\", "ǃ": "!\\", "ǂ": "=\\", "‖": "||"},  # clicks
    **{"\u033c": "_N", "\u0334": "_e"},
}


def alphabet_of(phones: Iterable[str]) -> str:
    """Returns "arpabet" if the phones, such as a vocabulary, are those of CMUdict, else "ipa"."""
    return "arpabet" if {"HH", "NG", "K"} <= set(phones) else "ipa"


def converted(phones: Sequence[str], origin: str, alphabet: str) -> list[str]:
    """Returns phones in another alphabet.

    A stress mark stands before its vowel, as the digit of ARPAbet does, not before its syllable. Characters that
    X-SAMPA has no letter for stay as they are.

    Args:
        phones: A list of phones, with or without stress digits in ARPAbet.
        origin: "arpabet" or "ipa", the alphabet that they are in.
        alphabet: "arpabet", "ipa" or "x-sampa".

    Raises:
        ValueError: for an unknown alphabet, or ARPAbet, which is for English alone, from another.

    Example:
        >>> keras_attn.pronunciation.converted(["HH", "AH0", "L", "OW1"], "arpabet", "ipa")
        ['h', 'ə', 'l', 'ˈoʊ']
        >>> keras_attn.pronunciation.converted(["ʒ", "œ̃"], "ipa", "x-sampa")
        ['Z', '9_~']
    """
    if alphabet not in ALPHABETS:
        raise ValueError(f"Expected an alphabet among: {', '.join(ALPHABETS)}. Received: {alphabet!r}")
    if origin not in ("arpabet", "ipa"):
        raise ValueError(f"Expected an origin among: arpabet, ipa. Received: {origin!r}")
    if alphabet == origin:
        return list(phones)
    if alphabet == "arpabet":
        raise ValueError("Expected alphabet='ipa' or 'x-sampa' for a language other than English. Received: 'arpabet'")
    if origin == "arpabet":
        phones = [_to_ipa(phone) for phone in phones]
    if alphabet == "ipa":
        return list(phones)
    return ["".join(map(_to_x_sampa, unicodedata.normalize("NFC", phone))) for phone in phones]


def _to_x_sampa(character: str) -> str:
    """Returns the letter of a character, such as "ç", or those of its parts, such as "ã"; else the character."""
    parts = character if character in _X_SAMPA else unicodedata.normalize("NFD", character)
    return "".join(_X_SAMPA.get(part, part) for part in parts)


def _to_ipa(phone: str) -> str:
    name = phone.rstrip("012")
    stress = phone[len(name) :]
    sound = _UNSTRESSED.get(name) if stress == "0" else None
    return _STRESS.get(stress, "") + (sound or _ARPABET.get(name, phone))
