"""Unknown words of a translation, taken from its source: from where the model looked when it wrote them."""

from collections.abc import Mapping, Sequence

import numpy as np

from keras_attn.text import BLANKS, SPECIAL_TOKENS, UNKNOWN_ID, Tokenizer

_UNKNOWN = SPECIAL_TOKENS[UNKNOWN_ID]


def words_for_unknown(
    text: str,
    source: tuple[Tokenizer, Sequence[int]],
    target: tuple[Tokenizer, Sequence[int]],
    alignment: np.ndarray,
    dictionary: Mapping[str, str],
) -> list[str]:
    """What to write for each unknown id of a translation, in their order, for `Tokenizer.decode`.

    An unknown word becomes the source word that it is aligned to most, or that word's entry in the dictionary (Luong
    et al. 2015, arXiv:1410.8206, section 3; by attention as in Jean et al. 2015, arXiv:1412.2007, and Luong, Pham &
    Manning 2015, arXiv:1508.04025). The word is cut from the raw source string, so that its case and its characters
    are those of the text, whatever the tokenizer knows. Where an unknown id is only a part of a word (a rare character
    among pieces), what stands at the aligned source id replaces it, and not the whole word.

    Args:
        text: the source sentence.
        source: its tokenizer, and its ids with the end token.
        target: tokenizer and ids of the translation.
        alignment: `(T, S)`. A row without weight on any word leaves `<unk>`.
        dictionary: source word to target word: as it stands in the text or, for a tokenizer that lower-cases, in lower
            case. Words that it lacks are copied.
    """
    words, parts = _source_words(text, *source)
    tokenizer, ids = target
    whole = {position for word, group in tokenizer.words(ids) if word == _UNKNOWN for position in group}
    found = []
    for position in np.flatnonzero(np.asarray(ids) == UNKNOWN_ID):
        weights = alignment[position, : len(words)]  # not that of the end token
        looked = bool(weights.size) and weights.max() > 0
        chosen = (words if position in whole else parts)[int(weights.argmax())] if looked else ""
        lower = chosen.lower() if source[0].lowercase else chosen
        found.append(dictionary.get(chosen, dictionary.get(lower, chosen)) if chosen else _UNKNOWN)
    return found


def _source_words(text: str, tokenizer: Tokenizer, token_ids: Sequence[int]) -> tuple[list[str], list[str]]:
    """For each source id but the end: the word of the text that it belongs to, and the text of its own."""
    spans = tokenizer.spans(text)
    words = [""] * len(spans)
    for _, group in tokenizer.words(token_ids[: len(spans)]):
        word = text[spans[group[0]][0] : spans[group[-1]][1]].strip(BLANKS)
        for position in group:
            words[position] = word
    parts = [text[start:end].strip(BLANKS) or word for (start, end), word in zip(spans, words, strict=True)]
    return words, parts
