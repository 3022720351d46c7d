"""Rows of token ids, concatenated in one array: in memory, or in memory-mapped files."""

import functools
import itertools
from collections.abc import Sequence
from operator import index
from pathlib import Path

import numpy as np

from keras_attn.text import DEFAULT_IDS, SpecialIds

SIDES = ("source", "target")  # the names of the two stores of a folder
MANIFEST = "files.json"  # there, the size and the SHA-256 of each token file
_PART = 1 << 20  # ids that are read at a time


class TokenStore:
    """Rows of token ids, concatenated in one array, in memory or memory-mapped.

    Args:
        token_ids: int32 (N,), the ids of all rows, without start and end. A row may be empty.
        offsets: int64 (rows + 1,), row i is `token_ids[offsets[i]:offsets[i + 1]]`.
        prefix: Path, where the files of a memory-mapped store are: `<prefix>.ids` and `<prefix>.offsets`.
        special_ids: `SpecialIds` of the vocabulary.
    """

    def __init__(
        self,
        token_ids: np.ndarray,
        offsets: np.ndarray,
        prefix: Path | None = None,
        special_ids: SpecialIds = DEFAULT_IDS,
    ):
        self.token_ids = token_ids  # (N,)
        self.offsets = offsets  # (rows + 1,)
        self.prefix = prefix
        self.special_ids = special_ids
        self.ends = len(special_ids.with_end([]))  # tokens that a row has beside its ids, 1 or 0

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]], special_ids: SpecialIds = DEFAULT_IDS) -> "TokenStore":
        """Makes a store of lists of ids.

        Raises:
            ValueError: If a row has pad, start or end ids, which `ParallelDataset` adds itself, or anything but ids.
        """
        offsets = np.zeros(len(rows) + 1, np.int64)
        try:
            np.cumsum([len(row) for row in rows], out=offsets[1:])
            ids = np.fromiter(map(index, itertools.chain.from_iterable(rows)), np.int32, count=offsets[-1])
        except (TypeError, OverflowError) as error:
            raise ValueError(f"Expected rows of token ids, whole numbers below 2**31. Received: {error}") from None
        reserved = (ids < 0) | np.isin(ids, list(special_ids.reserved))
        if reserved.any():
            position = int(reserved.argmax())
            row = int(np.searchsorted(offsets, position, side="right")) - 1
            raise ValueError(
                f"Expected rows of token ids without pad, start and end of {special_ids}. "
                f"Received: {ids[position]} in row {row}"
            )
        return cls(ids, offsets, special_ids=special_ids)

    @classmethod
    def of(cls, rows: "Sequence[Sequence[int]] | TokenStore", special_ids: SpecialIds = DEFAULT_IDS) -> "TokenStore":
        """Returns a store as it is, or one of lists of ids."""
        return rows if isinstance(rows, TokenStore) else cls.from_lists(rows, special_ids)

    @classmethod
    def open(cls, prefix: Path, special_ids: SpecialIds = DEFAULT_IDS) -> "TokenStore":
        """Memory-maps `<prefix>.ids` and `<prefix>.offsets`, so that only the rows of a batch are read."""
        offsets = np.memmap(f"{prefix}.offsets", np.int64, "r")
        # An empty file cannot be mapped.
        ids = np.memmap(f"{prefix}.ids", np.int32, "r") if offsets[-1] else np.zeros(0, np.int32)
        return cls(ids, offsets, prefix, special_ids)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, start: int, stop: int) -> np.ndarray:
        """Returns the lengths of the rows from `start` to `stop`, int32 (stop - start,)."""
        if self.prefix is None:
            offsets = self.offsets[start : stop + 1]
        else:  # read, not mapped: pages that a map has touched count as memory of this process
            count = min(stop, len(self)) + 1 - start
            offsets = np.fromfile(f"{self.prefix}.offsets", np.int64, count, offset=8 * start)
        return np.diff(offsets).astype(np.int32)

    @functools.cached_property
    def largest_id(self) -> int:
        """The largest id, special ones included, which padded rows have."""
        largest = max(self.special_ids.all)
        if self.prefix is None:
            return int(self.token_ids.max(initial=largest))
        with open(f"{self.prefix}.ids", "rb") as file:  # read, as in `lengths`
            while len(ids := np.fromfile(file, np.int32, _PART)):
                largest = max(largest, int(ids.max()))
        return largest

    def pad(self, rows: np.ndarray, shape: tuple[int, int], pass_number: int = 0) -> np.ndarray:
        """Returns rows with their end id and padding, int32 of `shape` (B, S), the same in every pass over the data.

        Rows that are too long are truncated; rows of the shape beyond those given are all padding.
        """
        starts = self.offsets[rows]  # (rows,)
        lengths = np.minimum(self.offsets[rows + 1] - starts, shape[1] - self.ends)  # (rows,)
        columns = np.arange(shape[1])
        positions = starts[:, None] + columns  # (rows, S)
        token_ids = self.token_ids.take(positions, mode="clip")  # (rows, S), neighbours' ids after a row's end
        pad, end = self.special_ids.pad, self.special_ids.end
        padded = np.full(shape, pad, np.int32)  # (B, S)
        padded[: len(rows)] = np.where(columns < lengths[:, None], token_ids, pad)
        if end is not None:
            padded[np.arange(len(rows)), lengths] = end
        return padded
