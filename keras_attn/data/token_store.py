"""Rows of token ids end to end in one array, in memory or streamed from text into files that are mapped."""

import itertools
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from keras_attn.text import BLANKS, END_ID, PAD_ID, UNKNOWN_ID, Tokenizer, iterate_lines, unequal

_CHUNK = 10_000  # lines encoded at a time while streaming


class IdStore:
    """Rows of token ids end to end in one array, in memory or mapped from a file.

    Args:
        ids: int32 (N,), the ids of all rows, without start and end; a row may be empty.
        offsets: int64 (rows + 1,), row i is `ids[offsets[i]:offsets[i + 1]]`.
    """

    def __init__(self, ids: np.ndarray, offsets: np.ndarray):
        self.ids = ids  # (N,)
        self.offsets = offsets  # (rows + 1,)
        self.lengths = np.diff(offsets).astype(np.int32)  # (rows,)

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]]) -> "IdStore":
        """Raises ValueError for the ids of pad, start and end, which `ParallelDataset` itself adds."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int32, count=offsets[-1])
        reserved = (ids <= END_ID) & (ids != UNKNOWN_ID)
        if reserved.any():
            position = int(reserved.argmax())
            row = int(np.searchsorted(offsets, position, side="right")) - 1
            raise ValueError(
                f"Expected rows of {UNKNOWN_ID} and of ids above {END_ID}, without pad, start and end, "
                f"received {ids[position]} in row {row}."
            )
        return cls(ids, offsets)

    @classmethod
    def open(cls, prefix: Path) -> "IdStore":
        """Maps `<prefix>.ids` and `<prefix>.offsets`; the operating system reads what a batch touches."""
        offsets = np.memmap(f"{prefix}.offsets", np.int64, "r")
        # An empty file cannot be mapped.
        return cls(np.memmap(f"{prefix}.ids", np.int32, "r") if offsets[-1] else np.zeros(0, np.int32), offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    def pad(self, rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """Rows with their end and pads, int32 of `shape` (B, S); long ones are cut, missing ones all pad."""
        lengths = np.minimum(self.lengths[rows], shape[1] - 1)  # (rows,)
        columns = np.arange(shape[1])
        positions = self.offsets[rows][:, None] + columns  # (rows, S)
        found = self.ids.take(positions, mode="clip")  # (rows, S), past a row's end its neighbours' ids
        padded = np.full(shape, PAD_ID, np.int32)  # (B, S)
        padded[: len(rows)] = np.where(columns < lengths[:, None], found, PAD_ID)
        padded[np.arange(len(rows)), lengths] = END_ID
        return padded


def encode(lines: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Ids of lines; of a blank line none, though BPE has pieces for blanks."""
    return tokenizer.encode_batch([line if line.strip(BLANKS) else "" for line in lines])


def encode_files(paths: tuple[Path, Path], tokenizers: tuple[Tokenizer, Tokenizer], folder: Path) -> None:
    """Writes `source` and `target` as `.ids` and `.offsets` into a folder that appears when it is whole."""
    partial = folder.with_name(f".tmp-{folder.name}-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        counts = [
            _encode_file(path, tokenizer, partial / side)
            for path, tokenizer, side in zip(paths, tokenizers, ("source", "target"), strict=True)
        ]
        if counts[0] != counts[1]:
            raise unequal(*paths, *counts)
        if not folder.is_dir():  # another process may have been quicker
            os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _encode_file(path: Path, tokenizer: Tokenizer, prefix: Path) -> int:
    lines, total, count = iterate_lines(path), 0, 0
    with open(f"{prefix}.ids", "wb") as ids, open(f"{prefix}.offsets", "wb") as offsets:
        np.zeros(1, np.int64).tofile(offsets)
        while chunk := list(itertools.islice(lines, _CHUNK)):
            store = IdStore.from_lists(encode(chunk, tokenizer))
            store.ids.tofile(ids)
            (store.offsets[1:] + total).tofile(offsets)
            total, count = total + len(store.ids), count + len(chunk)
    return count
