"""Checks of what a search of arrays is given, where no tokenizer says which ids there are; without Keras."""

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_attn.search.options import CommonOptions, check_constraints

_MOST_IDS = 2**31  # of int32, in a vocabulary of unknown size


def cast_input(name: str, array: np.ndarray, dtype: str | np.dtype) -> np.ndarray:
    """An input's array in the input's dtype.

    Args:
        name: The input's.
        array: Of any dtype.
        dtype: The input's.

    Raises:
        ValueError: for whole numbers that the dtype does not hold: NumPy would wrap them.
    """
    dtype = np.dtype(dtype)
    if dtype.kind in "iu" and array.dtype.kind in "iu" and array.size:
        limits, (lowest, highest) = np.iinfo(dtype), (int(array.min()), int(array.max()))
        if lowest < limits.min or highest > limits.max:
            received = lowest if lowest < limits.min else highest
            raise ValueError(f"Expected {name} of {dtype}, from {limits.min} to {limits.max}. Received: {received}")
    return array.astype(dtype, copy=False)


def check_in_vocabulary(name: str, ids: Any, size: int) -> None:
    """Raises ValueError for ids outside of a vocabulary.

    Args:
        name: What the ids are.
        ids: An array or a list; the lowest and the highest are enough.
        size: The vocabulary's.

    Raises:
        ValueError: unless all are from 0 to `size - 1`.
    """
    lowest, highest = np.min(ids), np.max(ids)
    if not (lowest >= 0 and highest < size):
        raise ValueError(
            f"Expected {name} from 0 to {size - 1}, the ids of the model's vocabulary. "
            f"Received: {highest if lowest >= 0 else lowest}"
        )


def banned_ids(tokens: Iterable[Any], vocabulary_size: int | None, end: int | None) -> list[int]:
    """The ids of banned tokens, as Python's whole numbers.

    Args:
        tokens: Ids.
        vocabulary_size: None: unknown.
        end: The end token's id, or None.

    Raises:
        ValueError: for what is no id of the vocabulary, and for the end token.
    """
    try:
        ids = [operator.index(token) for token in tokens]
    except TypeError:
        raise ValueError(f"Expected banned_tokens to be ids. Received: banned_tokens={tokens!r}") from None
    if ids:
        check_in_vocabulary("banned_tokens", ids, vocabulary_size or _MOST_IDS)
    check_constraints(None, None, ids, end)
    return ids


def limits_of_rows(
    options: CommonOptions, forced_prefix: Any, rows: int, vocabulary_size: int | None, end: int | None
) -> dict[str, np.ndarray]:
    """The limits of each row, by their names in a search: "forced_prefix" and "row_min_length", as far as given.

    Args:
        options: Of `for_arrays`.
        forced_prefix: Ids `(B, P)`, pad = free at that place, or None.
        rows: B.
        vocabulary_size, end: See `banned_ids`.

    Raises:
        ValueError: for a prefix of other ids than the vocabulary's, of other rows, or longer than `max_length`.
    """
    limits = {}
    if forced_prefix is not None:
        prefix = np.asarray(forced_prefix)
        if prefix.ndim != 2 or len(prefix) != rows or (prefix.size and prefix.dtype.kind not in "iu"):
            raise ValueError(
                f"Expected `forced_prefix` of ids (B, P), with the B={rows} rows of the source. "
                f"Received: {prefix.dtype} of shape {prefix.shape}"
            )
        if prefix.size:
            check_in_vocabulary("forced_prefix", prefix, vocabulary_size or _MOST_IDS)
        check_constraints(options.max_length, prefix, (), end)
        limits["forced_prefix"] = prefix.astype("int32")
    if options.min_length is not None:
        limits["row_min_length"] = np.full(rows, options.min_length, "int32")  # (B,)
    return limits
