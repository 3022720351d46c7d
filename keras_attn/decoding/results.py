"""Translations read from the arrays of a search result."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_attn.decoding.batching import Sentence
from keras_attn.decoding.unk_replacement import words_for_unknown
from keras_attn.text import without_temporary_ids
from keras_attn.translation import Translation

if TYPE_CHECKING:
    from keras_attn.text import Tokenizer


def translations_of(
    sentence: Sentence,
    result: Mapping[str, np.ndarray],
    source_tokenizer: "Tokenizer",
    target_tokenizer: "Tokenizer",
    dictionary: Mapping[str, str] | None = None,
) -> list[Translation]:
    """The hypotheses of one sentence; fewer may exist than were requested, but there is always one, if empty.

    Args:
        sentence: The source sentence.
        result: Its row of each array of a `SearchResult`.
        source_tokenizer, target_tokenizer: The tokenizers of both sides.
        dictionary: Replaces each unknown token by the source word that it is aligned to, translated by this
            dictionary if it has that word. None: unknown tokens stay.
    """
    source_tokens = _tokens(sentence, sentence.token_ids, source_tokenizer)
    translations = []
    for n in np.flatnonzero(result["lengths"]) if result["lengths"].any() else [0]:
        length = result["lengths"][n]
        ids = [int(i) for i in result["token_ids"][n, :length]]
        alignment = result.get("alignments")
        if alignment is not None:
            alignment = alignment[n, :length, : len(source_tokens)].copy()
        heads = result.get("head_alignments")
        if heads is not None:
            heads = heads[n, :length, :, : len(source_tokens)].swapaxes(0, 1).copy()  # (heads, T, S)
        translation = Translation(
            text=_text(sentence, ids, alignment, source_tokenizer, target_tokenizer, dictionary),
            tokens=_tokens(sentence, ids, target_tokenizer),
            token_ids=tuple(ids),
            score=float(result["scores"][n]),
            token_log_probs=result["token_log_probs"][n, :length].copy(),
            alignment=alignment,
            source_tokens=source_tokens,
            source_token_ids=tuple(sentence.token_ids),
            head_alignments=heads,
        )
        translations.append(translation)
    return translations


def _text(sentence, ids, alignment, source_tokenizer, target_tokenizer, dictionary) -> str:
    temporary = {token_id: word for word, token_id in sentence.words.items()}
    copied = {position: temporary[token_id] for position, token_id in enumerate(ids) if token_id in temporary}
    ids = without_temporary_ids(target_tokenizer, ids)
    positions = [position for position, token_id in enumerate(ids) if token_id == target_tokenizer.special_ids.unknown]
    if not positions or (dictionary is None and not copied and positions[0] >= len(sentence.prefix)):
        return target_tokenizer.decode(ids)
    words = [target_tokenizer.unknown_token] * len(positions)
    if dictionary is not None:
        source_ids = without_temporary_ids(source_tokenizer, sentence.token_ids)
        source, target = (source_tokenizer, source_ids), (target_tokenizer, ids)
        words = words_for_unknown(sentence.text, source, target, alignment, dictionary)
    # Unknown tokens of a prefix keep the text that the user gave.
    pieces = copied | dict(enumerate(target_tokenizer.pieces(sentence.prefix_text)[: len(sentence.prefix)]))
    words = [pieces.get(position, word) for position, word in zip(positions, words, strict=True)]
    return target_tokenizer.decode(ids, words)


def _tokens(sentence, ids, tokenizer) -> tuple[str, ...]:
    """The vocabulary's entry of each id, and the words of temporary ones."""
    temporary = {token_id: word for word, token_id in sentence.words.items()}
    known = tokenizer.tokens(without_temporary_ids(tokenizer, ids))
    return tuple(temporary.get(token_id, token) for token_id, token in zip(ids, known, strict=True))
