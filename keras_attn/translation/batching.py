"""Batches of sentences in a bounded set of shapes, as arrays."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_attn.text import BLANKS, DEFAULT_IDS, SPECIAL_TOKENS, UNKNOWN_ID, SpecialIds, with_temporary_ids

if TYPE_CHECKING:
    from keras_attn.text import Tokenizer


class Sentence(NamedTuple):
    """A source sentence with everything that its search depends on: nothing depends on other sentences."""

    text: str
    token_ids: list[int]  # with the end token; empty for a blank sentence, which is not searched
    max_length: int = 1  # of the translation, end token included
    min_length: int = 1
    prefix: Sequence[int] = ()  # target ids with which the translation begins
    prefix_text: str = ""
    row_id: int = 0  # the number on which its random draws depend
    oov: Mapping[str, int] = MappingProxyType({})  # unknown words that may be copied: extended-vocabulary ids


def batches(
    lengths: list[int], batch_size: int, tokens_per_batch: int, least_alone: int | None = None
) -> Iterator[tuple[list[int], tuple[int, int]]]:
    """Yields (rows, (B, S)), longest sentences first, without the empty ones.

    B is `batch_size` or a power of two below it, and S a bucket, so that few shapes are ever compiled. With
    `least_alone` fewer yet: in a batch of one sentence S is `least_alone`, twice, four times as much and so on.
    """
    order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row])
    sizes = [2**n for n in range((batch_size - 1).bit_length())] + [batch_size]
    start = 0
    while start < len(order):
        width = bucket(lengths[order[start]])
        room = max(size for size in sizes if size == 1 or size * width <= tokens_per_batch)
        rows = order[start : start + room]
        if least_alone and len(rows) == 1:
            width = power_of_two(width, least_alone)
        yield rows, (min(size for size in sizes if size >= len(rows)), width)
        start += room


def bucket(length: int) -> int:
    """The smallest of 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, ... that is at least `length`."""
    step = max(4, 2 ** ((length - 1).bit_length() - 3))
    return -(-length // step) * step


def power_of_two(length: int, least: int) -> int:
    """The smallest power of two that is at least `length`, and `least`, which is one."""
    return max(least, 1 << (length - 1).bit_length())


def padded(rows: Sequence[Sequence[int]], shape: tuple[int, int], special_ids: SpecialIds = DEFAULT_IDS) -> np.ndarray:
    """Rows of ids as `(B, S)` int32, padded on the right; rows that only fill the batch have one token, the end."""
    token_ids = np.full(shape, special_ids.pad, "int32")
    token_ids[len(rows) :, 0] = special_ids.filler
    for row, ids in enumerate(rows):
        token_ids[row, : len(ids)] = ids
    return token_ids


def search_inputs(
    sentences: Sequence[Sentence],
    shape: tuple[int, int],
    seed: int | None = None,
    ids: tuple[SpecialIds, SpecialIds] = (DEFAULT_IDS, DEFAULT_IDS),
) -> tuple[dict[str, np.ndarray], int]:
    """The inputs of a `SearchModel`, and the longest output L that it must have room for.

    Search ends with its last row, so a larger L costs nothing but memory. Powers of two keep the number of models to
    trace small.

    Args:
        sentences: The sentences of a batch.
        shape: (B, S), from `batches`.
        seed: The seed of `sample`; None for the other searches.
        ids: The special ids of source and target.
    """
    rows, _ = shape
    # A prefix prevails over the limit, and must leave room for the end token in any batch.
    limits = [max(s.max_length, len(s.prefix) + 1) for s in sentences]
    longest = power_of_two(max(limits), 64)
    inputs = {
        "encoder_token_ids": padded([s.token_ids for s in sentences], shape, ids[0]),  # (B, S)
        "row_max_length": _column(limits, rows),  # (B,)
    }
    if any(s.min_length > 1 for s in sentences):
        inputs["row_min_length"] = _column([s.min_length for s in sentences], rows)  # (B,)
    if prefix := max(len(s.prefix) for s in sentences):
        forced = np.full((rows, bucket(prefix)), ids[1].pad, "int32")
        for row, sentence in enumerate(sentences):
            forced[row, : len(sentence.prefix)] = sentence.prefix
        inputs["forced_prefix"] = forced  # (B, P)
    if seed is not None:  # as inputs, so that a new seed does not compile a new model
        inputs["seed"] = np.full(rows, seed & 0x7FFFFFFF, "int32")  # (B,)
        inputs["row_ids"] = _column([s.row_id & 0x7FFFFFFF for s in sentences], rows)  # (B,)
    return inputs, longest


def encoded(tokenizer: "Tokenizer", texts: Sequence[str], oov: Sequence[Mapping[str, int]]) -> list[list[int]]:
    """The ids of each text, extended-vocabulary ids for its `oov`; none for a blank text."""
    rows = zip(texts, tokenizer.encode_batch(texts), oov, strict=True)
    return [with_temporary_ids(tokenizer, text, ids, own) if text.strip(BLANKS) else [] for text, ids, own in rows]


def _column(values: Sequence[int], rows: int) -> np.ndarray:
    """`(B,)` int32; 1 for rows that only fill the batch."""
    column = np.ones(rows, "int32")
    column[: len(values)] = values
    return column


def token_ids_of(tokenizer: "Tokenizer", tokens: Iterable[str | int]) -> list[int]:
    """The sorted ids of tokens, each given as an entry of the vocabulary or as an id.

    "<unk>" is the unknown token, whatever the vocabulary calls it.

    Raises:
        ValueError: if an entry is neither.
    """
    if isinstance(tokens, str):
        raise ValueError(f"Expected a list of tokens or ids. Received one string: {tokens!r}")
    ids, unknown = set(), SPECIAL_TOKENS[UNKNOWN_ID]
    for token in tokens:
        if token == unknown and token not in tokenizer.vocabulary and tokenizer.unknown_token is not None:
            token = tokenizer.unknown_token
        known = token in tokenizer.vocabulary if isinstance(token, str) else isinstance(token, (int, np.integer))
        if not known:
            raise ValueError(f"Expected tokens of the vocabulary, or ids. Received: {token!r}")
        ids.add(tokenizer.vocabulary.index(token) if isinstance(token, str) else int(token))
    tokenizer.tokens(ids)  # refuses ids out of range
    return sorted(ids)


def check_list(name: str, values: Iterable, count: int | None = None) -> list:
    """Returns `values` as a list; raises ValueError if they are a string, no iterable, or not `count` many."""
    if isinstance(values, str):
        raise ValueError(f"Expected `{name}` to be a list of strings. Received one string; put it into a list.")
    if not isinstance(values, Iterable):
        raise ValueError(f"Expected `{name}` to be a list. Received: {values!r}")
    values = list(values)
    if count is not None and len(values) != count:
        raise ValueError(f"Expected `{name}` to have an entry for each of {count} sentences. Received: {len(values)}")
    return values


def check_whole(**lists) -> None:
    """Raises ValueError if an entry of a list is no whole number."""
    for name, values in lists.items():
        wrong = [value for value in values if isinstance(value, bool) or not isinstance(value, (int, np.integer))]
        if wrong:
            raise ValueError(f"Expected `{name}` to be a whole number, or a list of them. Received: {wrong[0]!r}")
