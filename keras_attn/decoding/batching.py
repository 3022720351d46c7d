"""Sentences on their way into a model: limits of their own, batches of few shapes, arrays."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from keras_attn.text import END_ID, PAD_ID


@dataclass(frozen=True)
class Limits:
    """How long the translation of n source tokens may be, and must be. All lengths count the end token.

    At most `max_length` and at most `max_length_ratio * n + constant` tokens, rounded up; at least `min_length` and at
    least `min_length_ratio * n`, rounded up. A ratio of None is no limit.

    Raises:
        ValueError: for a limit out of range, or a `min_length` above `max_length`.
    """

    max_length: int | None = None
    max_length_ratio: float | None = None
    constant: float = 0.0
    min_length: int | None = None
    min_length_ratio: float | None = None

    def __post_init__(self):
        for name in ("max_length", "min_length"):
            if (length := getattr(self, name)) is not None:
                check_sizes(**{name: length})
        for name in ("max_length_ratio", "min_length_ratio"):
            ratio = getattr(self, name)
            if ratio is not None and not 0 < ratio < math.inf:
                raise ValueError(f"Expected {name} to be a number above 0. Received: {name}={ratio!r}")
        if self.max_length and self.min_length and self.min_length > self.max_length:
            raise ValueError(
                f"Expected min_length to be at most max_length={self.max_length}. "
                f"Received: min_length={self.min_length}"
            )

    def longest(self, source_length: int) -> int:
        longest = [] if self.max_length is None else [self.max_length]
        if self.max_length_ratio is not None:
            longest.append(math.ceil(self.max_length_ratio * source_length + self.constant))
        return max(1, min(longest))

    def shortest(self, source_length: int) -> int:
        return max(self.min_length or 1, math.ceil((self.min_length_ratio or 0) * source_length))


class Sentence(NamedTuple):
    """A source sentence and all that search is told of it: nothing here depends on any other."""

    text: str
    token_ids: list[int]  # with the end token; none for a blank sentence, which no model sees
    max_length: int = 1  # of the translation, end token included
    min_length: int = 1
    prefix: Sequence[int] = ()  # target ids that the translation begins with
    prefix_text: str = ""
    row_id: int = 0  # what tells its random draws from another's


def batches(lengths: list[int], batch_size: int, tokens_per_batch: int) -> Iterator[tuple[list[int], tuple[int, int]]]:
    """Yields (rows, (B, S)), longest sentences first; empty ones are in no batch.

    B is `batch_size` or a power of two below it and S a bucket, so that few shapes are ever compiled.
    """
    order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row])
    sizes = [2**n for n in range((batch_size - 1).bit_length())] + [batch_size]
    start = 0
    while start < len(order):
        width = bucket(lengths[order[start]])
        room = max(size for size in sizes if size == 1 or size * width <= tokens_per_batch)
        rows = order[start : start + room]
        yield rows, (min(size for size in sizes if size >= len(rows)), width)
        start += room


def bucket(length: int) -> int:
    """The smallest of 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, ... that is at least `length`."""
    step = max(4, 2 ** ((length - 1).bit_length() - 3))
    return -(-length // step) * step


def power_of_two(length: int) -> int:
    """The smallest of 32, 64, 128, ... that is at least `length`."""
    return max(32, 1 << (length - 1).bit_length())


def padded(rows: Sequence[Sequence[int]], shape: tuple[int, int]) -> np.ndarray:
    """Rows of ids as `(B, S)` int32, pad ids to their right; rows that only fill the batch hold an end token."""
    token_ids = np.full(shape, PAD_ID, "int32")
    token_ids[len(rows) :, 0] = END_ID
    for row, ids in enumerate(rows):
        token_ids[row, : len(ids)] = ids
    return token_ids


def search_inputs(
    sentences: Sequence[Sentence], shape: tuple[int, int], seed: int | None = None
) -> tuple[dict[str, np.ndarray], int]:
    """The inputs of a `SearchModel` (with draws if there is a seed), and the longest output L that it needs room for.

    L is only room, for search ends when its last row does: powers of two make few models to trace.
    """
    rows, _ = shape
    # A prefix prevails over the limit; after it there must be room for the end token, whatever the batch.
    limits = [max(s.max_length, len(s.prefix) + 1) for s in sentences]
    longest = power_of_two(max(limits))
    inputs = {
        "encoder_token_ids": padded([s.token_ids for s in sentences], shape),  # (B, S)
        "row_max_length": _column(limits, rows),  # (B,)
    }
    if any(s.min_length > 1 for s in sentences):
        inputs["row_min_length"] = _column([s.min_length for s in sentences], rows)  # (B,)
    if prefix := max(len(s.prefix) for s in sentences):
        forced = np.full((rows, bucket(prefix)), PAD_ID, "int32")
        for row, sentence in enumerate(sentences):
            forced[row, : len(sentence.prefix)] = sentence.prefix
        inputs["forced_prefix"] = forced  # (B, P)
    if seed is not None:  # inputs, not options: a new seed is then nothing new to compile
        inputs["seed"] = np.full(rows, seed & 0x7FFFFFFF, "int32")  # (B,)
        inputs["row_ids"] = _column([s.row_id & 0x7FFFFFFF for s in sentences], rows)  # (B,)
    return inputs, longest


def _column(values: Sequence[int], rows: int) -> np.ndarray:
    """`(B,)` int32; 1 for rows that only fill the batch."""
    column = np.ones(rows, "int32")
    column[: len(values)] = values
    return column


def check_sizes(**sizes) -> None:
    """Refuses what is not a whole number of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise ValueError(f"Expected {name} to be a whole number of at least 1. Received: {name}={size!r}")
