"""Sources that are not text: images, features, series, frames of speech."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_attn.data.token_store import TokenStore
from keras_attn.text import SpecialIds


class ArrayStore(TokenStore):
    """Rows of one array, or of a structure of them.

    Args:
        source: A leaf, or a dict or tuple of leaves, nested as one likes. A leaf is an array `(N, ...)`, or a list of N
            arrays `(S_i, ...)` that differ in length alone; these are padded with zeros.

    Raises:
        ValueError: If leaves have different numbers of rows, or the rows of one differ in more than their length.
    """

    def __init__(self, source: Any):
        self._source = _map(_leaf, source)
        leaves: list[Any] = []
        _map(leaves.append, self._source)
        if len({len(leaf) for leaf in leaves}) != 1:
            raise ValueError(f"Expected arrays of one number of rows. Received: {[len(leaf) for leaf in leaves]}")
        longest = np.ones(len(leaves[0]), np.int64)
        sequences = [[len(row) for row in leaf] for leaf in leaves if isinstance(leaf, list)]
        longest = np.max(sequences, axis=0) if sequences else longest  # (rows,)
        super().__init__(
            np.zeros(0, np.int32), np.append(0, np.cumsum(longest)), special_ids=SpecialIds(start=None, end=None)
        )

    def inputs(self, rows: np.ndarray, shape: tuple[int, int], pass_number: int = 0) -> dict[str, Any]:
        """Returns the source of a batch of `shape` (B, S), as inputs of a model; its rows are repeated as fillers."""
        rows = np.resize(rows if len(rows) else 0, shape[0])  # (B,)

        def batch(leaf):
            if not isinstance(leaf, list):
                return leaf[rows]
            padded = np.zeros((*shape, *leaf[0].shape[1:]), leaf[0].dtype)  # (B, S, ...)
            for one, row in zip(padded, rows, strict=True):
                one[: len(leaf[row])] = leaf[row][: shape[1]]
            return padded

        source = _map(batch, self._source)
        return source if isinstance(source, dict) else {"encoder_inputs": source}


def _map(function: Callable, source: Any) -> Any:
    """Applies a function to each leaf: `keras.tree` would take the rows of a list for leaves."""
    if isinstance(source, dict):
        return {name: _map(function, one) for name, one in source.items()}
    return tuple(_map(function, one) for one in source) if isinstance(source, tuple) else function(source)


def _leaf(rows: Sequence | np.ndarray) -> list[np.ndarray] | np.ndarray:
    """An array, or a list of arrays that differ in length, in dtypes that every backend has."""
    if not isinstance(rows, list) or not rows or np.ndim(rows[0]) == 0:
        return _narrow(np.asarray(rows))
    arrays = [_narrow(np.asarray(row)) for row in rows]
    if len({(row.shape[1:], row.dtype) for row in arrays}) > 1:
        raise ValueError(
            "Expected a list of arrays (S, ...) that differ in S alone. Received: shapes such as "
            f"{sorted({row.shape for row in arrays})[:4]}"
        )
    return arrays


def _narrow(array: np.ndarray) -> np.ndarray:
    kinds = {"f": keras.config.floatx(), "i": "int32", "u": "int32"}
    return array.astype(kinds[array.dtype.kind]) if array.dtype.kind in kinds and array.dtype != "uint8" else array
