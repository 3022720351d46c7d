"""Temporary ids: the words of one source sentence that are not in the vocabulary, for models that copy words.

A `PointerGenerator` reads and writes ids of an extended vocabulary: id V + n is the unknown word whose first place in
the source is n (V is the size of the vocabulary, which both sides share). It has this id wherever it occurs in the
source and in the target of this sentence, and means nothing in others. A target word that is in neither the vocabulary
nor the source stays unknown.

The levels "word", "symbol" and "character" have unknown words. Level "bpe" has none: with its byte fallback every text
is made of pieces in the vocabulary, which are copied one by one; without it, unknown characters stay unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_attn.text.tokenizer import Tokenizer


def temporary_ids(tokenizer: "Tokenizer", text: str) -> dict[str, int]:
    """The temporary id of each unknown word of a source text.

    Example:
        >>> tokenizer = keras_attn.Tokenizer.train(["we met in"], level="word")
        >>> tokenizer.vocabulary_size, keras_attn.text.temporary_ids(tokenizer, "Ada met Bo , Ada")
        (7, {'Ada': 7, 'Bo': 9, ',': 10})
    """
    if tokenizer.level == "bpe":
        return {}
    ids, first, unknown = {}, tokenizer.vocabulary_size, tokenizer.special_ids.unknown
    for place, (token_id, piece) in enumerate(zip(tokenizer.encode(text), tokenizer.pieces(text), strict=True)):
        if token_id == unknown:
            ids.setdefault(piece, first + place)
    return ids


def with_temporary_ids(
    tokenizer: "Tokenizer", text: str, token_ids: Sequence[int], words: Mapping[str, int]
) -> list[int]:
    """The ids of a text of either side, with the temporary ids of a source's `words` in the place of unknown ones."""
    unknown = tokenizer.special_ids.unknown
    if not words or unknown not in token_ids:
        return list(token_ids)
    pairs = zip(token_ids, tokenizer.pieces(text), strict=True)
    return [words.get(piece, unknown) if token_id == unknown else token_id for token_id, piece in pairs]


def without_temporary_ids(tokenizer: "Tokenizer", token_ids: Iterable[int]) -> list[int]:
    """The ids with the unknown id in the place of temporary ones."""
    size, unknown = tokenizer.vocabulary_size, tokenizer.special_ids.unknown
    return [token_id if token_id < size else unknown for token_id in token_ids]


def check_joint(source_tokenizer: "Tokenizer", target_tokenizer: "Tokenizer") -> None:
    """Raises ValueError unless both sides have the same vocabulary: what is copied are ids."""
    if source_tokenizer.fingerprint != target_tokenizer.fingerprint:
        raise ValueError(
            "Expected the same tokenizer for source and target, trained on the lines of both, with `pointer=True`. "
            "Received: two that differ"
        )


def add_temporary_ids(
    tokenizers: tuple["Tokenizer", "Tokenizer"], lines: Sequence[Sequence[str]], rows: Sequence[list[list[int]]]
) -> None:
    """Puts temporary ids into `rows`, the ids of pairs of lines: those of the source and those of the target."""
    check_joint(*tokenizers)
    tokenizer, _ = tokenizers
    for pair, (source, target) in enumerate(zip(*lines, strict=False)):
        if tokenizer.special_ids.unknown in rows[0][pair]:
            words = temporary_ids(tokenizer, source)
            rows[0][pair] = with_temporary_ids(tokenizer, source, rows[0][pair], words)
            rows[1][pair] = with_temporary_ids(tokenizer, target, rows[1][pair], words)
