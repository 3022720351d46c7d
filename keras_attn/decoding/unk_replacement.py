"""Replacement of unknown tokens by the source words that they are aligned to."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_attn.text import BLANKS

if TYPE_CHECKING:
    from keras_attn.text import Tokenizer


def words_for_unknown(
    text: str,
    source: tuple["Tokenizer", Sequence[int]],
    target: tuple["Tokenizer", Sequence[int]],
    alignment: np.ndarray,
    dictionary: Mapping[str, str],
) -> list[str]:
    """The replacement of each unknown id of a translation, in their order, for `Tokenizer.decode`.

    An unknown word is replaced by the source word with the largest alignment weight, or by that word's entry in the
    dictionary (Luong et al. 2015, arXiv:1410.8206, section 3; by attention as in Jean et al. 2015, arXiv:1412.2007,
    and Luong, Pham & Manning 2015, arXiv:1508.04025). The word is a substring of the raw source text, with its case
    and its characters, whatever the tokenizer knows. An unknown id that is only part of a word (a rare character
    among pieces) is replaced by the text of the aligned source id, not by the whole word.

    Args:
        text: The source sentence.
        source: Its tokenizer, and its ids with the end token.
        target: Tokenizer and ids of the translation.
        alignment: `(T, S)`. A row without weight on any word leaves the unknown token.
        dictionary: From source words to target words; source words as in the text or, for a tokenizer that
            lower-cases, in lower case. Words that are not in it are copied.
    """
    words, parts = _source_words(text, *source)
    tokenizer, ids = target
    unknown, surface = tokenizer.special_ids.unknown, tokenizer.unknown_token
    whole = {position for word, group in tokenizer.words(ids) if word == surface for position in group}
    replacements = []
    for position in np.flatnonzero(np.asarray(ids) == unknown):
        weights = alignment[position, : len(words)]  # without the end token
        is_aligned = bool(weights.size) and weights.max() > 0
        word = (words if position in whole else parts)[int(weights.argmax())] if is_aligned else ""
        lower = word.lower() if source[0].lowercase else word
        replacements.append(dictionary.get(word, dictionary.get(lower, word)) if word else surface)
    return replacements


def _source_words(text: str, tokenizer: "Tokenizer", token_ids: Sequence[int]) -> tuple[list[str], list[str]]:
    """For each source id but the end token: the word of the text to which it belongs, and its own text."""
    spans = tokenizer.spans(text)
    words = [""] * len(spans)
    for _, group in tokenizer.words(token_ids[: len(spans)]):
        word = text[spans[group[0]][0] : spans[group[-1]][1]].strip(BLANKS)
        for position in group:
            words[position] = word
    parts = [text[start:end].strip(BLANKS) or word for (start, end), word in zip(spans, words, strict=True)]
    return words, parts
