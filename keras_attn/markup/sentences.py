"""Sentences of a text, by sentencex."""

import difflib

from keras_attn.requirements import require

# For which sentencex 1 has rules. It takes any other code for a similar one, or for English.
LANGUAGES = (
    *("am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu", "hi", "hy", "it", "ja", "kk"),
    *("kn", "ml", "mr", "my", "nl", "pa", "pl", "pt", "ru", "sk", "ta", "te", "uk"),
)


def check_sentence_splitter(language: str) -> None:
    """Refuses to go on if sentences of a language cannot be split.

    Args:
        language: The code of the language, such as "en".

    Raises:
        ValueError: If sentencex has no rules for the language. The message has the known codes, the nearest first.
        ModuleNotFoundError: If sentencex is not installed.

    Example:
        >>> keras_attn.markup.check_sentence_splitter("english")
        Traceback (most recent call last):
            ...
        ValueError: Expected split_sentences to be the code of a language ...: en, ... Received: 'english'
    """
    if language not in LANGUAGES:
        nearest = ", ".join(sorted(LANGUAGES, key=lambda code: _distance(code, language.lower())))
        raise ValueError(
            f"Expected split_sentences to be the code of a language that sentencex has rules for: {nearest}. "
            f"Received: {language!r}"
        )
    require("sentences", "sentencex", purpose="split_sentences")


def _distance(code: str, received: str) -> tuple[bool, float]:
    """Codes with which the received one begins are the nearest, then those that share most letters with it."""
    return not received.startswith(code), -difflib.SequenceMatcher(None, code, received).ratio()


def sentences_of(text: str, language: str) -> list[tuple[int, int]]:
    """Returns the (start, end) of each sentence of a text, without the blanks around it.

    Args:
        text: A paragraph, in which each run of blanks is one blank.
        language: The code of its language, such as "en". For one that sentencex has no rules for, that of a language
            whose sentences end in the same way.

    Raises:
        ValueError: If sentencex has no rules for the language.
        ModuleNotFoundError: If sentencex is not installed.

    Example:
        >>> keras_attn.markup.sentences_of("Mr. Smith has two dogs. They run.", "en")  # needs sentencex
        [(0, 23), (24, 33)]
    """
    check_sentence_splitter(language)
    from sentencex import segment

    spans, start = [], 0
    for sentence in segment(language, text):
        content = sentence.strip(" ")
        if content:
            first = start + sentence.index(content)
            spans.append((first, first + len(content)))
        start += len(sentence)
    return spans
