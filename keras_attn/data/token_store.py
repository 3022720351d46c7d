"""Rows of token ids: in one array, in memory or memory-mapped; or drawn anew in each pass over the data."""

import functools
import itertools
from collections.abc import Sequence
from operator import index
from pathlib import Path

import numpy as np

from keras_attn.text import BLANKS, DEFAULT_IDS, BPEDropout, SpecialIds, Tokenizer

SIDES = ("source", "target")  # the names of the two stores of a folder
MANIFEST = "files.json"  # there, the size and the SHA-256 of each token file
_PART = 1 << 20  # ids that are read at a time
_DRAWS = 4  # whose longest is the planned length of a row
_ATTEMPTS = 3  # to draw a row that is no longer than its bucket


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


class DrawnStore(TokenStore):
    """Rows whose ids BPE-dropout draws when a batch asks for them: a pure function of the seed, the pass and the batch.

    The shapes and the pairs of the batches stay as they are planned, so the length of a row, on which the plan is made,
    is the longest of its plain segmentation and of four that are drawn beforehand. A row that turns out longer than its
    bucket is drawn again, at last segmented plainly.

    Args:
        plain: The ids of the lines without dropout.
        lines: The lines.
        tokenizer: A tokenizer of level "bpe".
        rate: The probability that a merge is left out.
        seed: Whole numbers of 0 or more.

    Raises:
        ValueError: For a tokenizer of another level, or a rate out of range.
    """

    def __init__(self, plain: TokenStore, lines: Sequence[str], tokenizer: Tokenizer, rate: float, seed: Sequence[int]):
        super().__init__(plain.token_ids, plain.offsets, special_ids=plain.special_ids)
        self._lines = [line if line.strip(BLANKS) else "" for line in lines]
        self._dropout, self._seed = BPEDropout(tokenizer, rate), tuple(seed)
        self.largest_id = tokenizer.vocabulary_size - 1  # any piece may be drawn
        draws = [[len(ids) for ids in self._draw(self._lines, n, 0)] for n in range(_DRAWS)]
        self._longest = np.max([np.diff(plain.offsets), *draws], axis=0).astype(np.int32)  # (rows,)

    def lengths(self, start: int, stop: int) -> np.ndarray:
        return self._longest[start:stop]

    def pad(self, rows: np.ndarray, shape: tuple[int, int], pass_number: int = 0) -> np.ndarray:
        room, batch = shape[1] - self.ends, rows[:1].tolist()  # a pair is in one batch of a pass
        drawn, waiting = {}, list(range(len(rows)))
        for attempt in range(_ATTEMPTS):
            draws = self._draw([self._lines[rows[n]] for n in waiting], attempt, 1 + pass_number, *batch)
            drawn |= {n: ids for n, ids in zip(waiting, draws, strict=True) if len(ids) <= room}
            waiting = [n for n in waiting if n not in drawn]
        drawn |= {n: self.token_ids[slice(*self.offsets[rows[n] : rows[n] + 2])] for n in waiting}
        ids = [drawn[n] for n in range(len(rows))]
        return TokenStore.from_lists(ids, self.special_ids).pad(np.arange(len(rows)), shape)

    def _draw(self, lines: Sequence[str], *key: int) -> list[list[int]]:
        seed = np.random.SeedSequence((*self._seed, *key)).generate_state(1)[0]
        return self._dropout.encode(lines, int(seed) >> 1)
