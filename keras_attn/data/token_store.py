"""Rows of token ids, concatenated in one array: in memory, or in memory-mapped files."""

import functools
import itertools
import json
import os
from collections.abc import Iterable, Sequence
from operator import index
from pathlib import Path

import numpy as np

from keras_attn import files
from keras_attn.text import BLANKS, END_ID, PAD_ID, UNKNOWN_ID, Tokenizer, iterate_lines, unequal_lengths_error

_CHUNK = 10_000  # lines encoded at a time while streaming
_MANIFEST = "files.json"  # the size and the SHA-256 of each other file


class TokenStore:
    """Rows of token ids, concatenated in one array, in memory or memory-mapped.

    Args:
        token_ids: int32 (N,), the ids of all rows, without start and end. A row may be empty.
        offsets: int64 (rows + 1,), row i is `token_ids[offsets[i]:offsets[i + 1]]`.
    """

    def __init__(self, token_ids: np.ndarray, offsets: np.ndarray):
        self.token_ids = token_ids  # (N,)
        self.offsets = offsets  # (rows + 1,)
        self.lengths = np.diff(offsets).astype(np.int32)  # (rows,)

    @classmethod
    def from_lists(cls, rows: Sequence[Sequence[int]]) -> "TokenStore":
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
        reserved = (ids <= END_ID) & (ids != UNKNOWN_ID)
        if reserved.any():
            position = int(reserved.argmax())
            row = int(np.searchsorted(offsets, position, side="right")) - 1
            raise ValueError(
                f"Expected rows of {UNKNOWN_ID} and of ids above {END_ID}, without pad, start and end. "
                f"Received: {ids[position]} in row {row}"
            )
        return cls(ids, offsets)

    @classmethod
    def open(cls, prefix: Path) -> "TokenStore":
        """Memory-maps `<prefix>.ids` and `<prefix>.offsets`, so that only the rows of a batch are read."""
        offsets = np.memmap(f"{prefix}.offsets", np.int64, "r")
        # An empty file cannot be mapped.
        return cls(np.memmap(f"{prefix}.ids", np.int32, "r") if offsets[-1] else np.zeros(0, np.int32), offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    @functools.cached_property
    def largest_id(self) -> int:
        """The largest id, at least that of the end, which every padded row has."""
        return int(self.token_ids.max(initial=END_ID))

    def pad(self, rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """Returns rows with their end id and padding, int32 of `shape` (B, S).

        Rows that are too long are truncated; rows of the shape beyond those given are all padding.
        """
        lengths = np.minimum(self.lengths[rows], shape[1] - 1)  # (rows,)
        columns = np.arange(shape[1])
        positions = self.offsets[rows][:, None] + columns  # (rows, S)
        token_ids = self.token_ids.take(positions, mode="clip")  # (rows, S), neighbours' ids after a row's end
        padded = np.full(shape, PAD_ID, np.int32)  # (B, S)
        padded[: len(rows)] = np.where(columns < lengths[:, None], token_ids, PAD_ID)
        padded[np.arange(len(rows)), lengths] = END_ID
        return padded


def encode_lines(lines: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Returns the ids of each line: none for a blank line, although BPE has pieces for blanks."""
    return tokenizer.encode_batch([line if line.strip(BLANKS) else "" for line in lines])


def encode_files(paths: tuple[Path, Path], tokenizers: tuple[Tokenizer, Tokenizer], folder: Path) -> None:
    """Writes `source` and `target` as `.ids` and `.offsets` into a folder, unless it has them as they were written.

    The folder appears only when it is complete.
    """
    if _is_whole(folder):
        files.remove_leftovers(folder.parent)
        return
    with files.staging(folder.parent) as temporary:
        encoded = temporary / "encoded"
        encoded.mkdir()
        counts = [
            _encode_file(path, tokenizer, encoded / side)
            for path, tokenizer, side in zip(paths, tokenizers, ("source", "target"), strict=True)
        ]
        if counts[0] != counts[1]:
            raise unequal_lengths_error(*paths, *counts)
        (encoded / _MANIFEST).write_text(json.dumps(files.digests(encoded)))
        if folder.exists() and not _is_whole(folder):
            os.rename(folder, temporary / "damaged")
        files.publish(encoded, folder)  # unless another process was faster


def _is_whole(folder: Path) -> bool:
    try:
        recorded = json.loads((folder / _MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return False
    found = files.digests(folder)
    del found[_MANIFEST]
    return sorted(found) == ["source.ids", "source.offsets", "target.ids", "target.offsets"] and found == recorded


def _encode_file(path: Path, tokenizer: Tokenizer, prefix: Path) -> int:
    lines, total, count = iterate_lines(path), 0, 0
    with open(f"{prefix}.ids", "wb") as ids, open(f"{prefix}.offsets", "wb") as offsets:
        np.zeros(1, np.int64).tofile(offsets)
        while chunk := list(itertools.islice(lines, _CHUNK)):
            store = TokenStore.from_lists(encode_lines(chunk, tokenizer))
            store.token_ids.tofile(ids)
            (store.offsets[1:] + total).tofile(offsets)
            total, count = total + len(store.token_ids), count + len(chunk)
    return count
