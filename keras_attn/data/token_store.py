"""Rows of token ids: of lists, of text files that are encoded once, or drawn anew in each pass; and rows of arrays.

Token files are in a folder of the cache whose name is a hash of what they depend on: `source` and `target` as `.ids`
and `.offsets`, with their sizes and SHA-256 in `files.json`. They are written in a folder `<name>.part` beside it; its
name is a hash of the names of the text files and the tokenizers. It is locked, so that another process that wants the
same token files waits, and has a line in a journal for each block of text that is done. If the writer is killed, the
next one checks these and goes on after them; after a change of the text, it goes on where the change begins.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Sequence
from operator import index
from pathlib import Path
from typing import Any, BinaryIO

import keras
import numpy as np

from keras_attn import files
from keras_attn.text import (
    BLANKS,
    DEFAULT_IDS,
    BPEDropout,
    SpecialIds,
    Tokenizer,
    block_lines,
    encode_lines,
    iterate_blocks,
    unequal_lengths_error,
)

_SIDES = ("source", "target")
_TOKEN_FILES = [f"{side}.{kind}" for side in _SIDES for kind in ("ids", "offsets")]
_MANIFEST = "files.json"
_LARGEST_MANIFEST = 1 << 20  # bytes
_BLOCK = 1 << 20  # bytes of text that are encoded at a time
_LINE = re.compile(rb"(?P<text>[0-9a-f]{64}) (?P<ids>\d{1,15}) (?P<tokens>[0-9a-f]{64})\n")  # of a journal
_LONGEST_LINE = 256  # bytes
_MOST_TOKENS = 16  # of a byte of text, which normalization may make longer
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
        stored = self.token_ids if len(self.token_ids) else np.zeros(1, np.int32)  # all rows may be empty
        token_ids = stored.take(positions, mode="clip")  # (rows, S), neighbours' ids after a row's end
        pad, end = self.special_ids.pad, self.special_ids.end
        padded = np.full(shape, pad, np.int32)  # (B, S)
        padded[: len(rows)] = np.where(columns < lengths[:, None], token_ids, pad)
        if end is not None:
            padded[np.arange(len(rows)), lengths] = end
        return padded

    def inputs(self, rows: np.ndarray, shape: tuple[int, int], pass_number: int = 0) -> dict[str, np.ndarray]:
        """Returns the source of a batch of `shape` (B, S), as inputs of a model; beyond `rows` the rows are fillers."""
        token_ids = self.pad(rows, shape, pass_number)  # (B, S)
        token_ids[len(rows) :, 0] = self.special_ids.filler  # no row without a real token: cuDNN and softmax want none
        return {"encoder_token_ids": token_ids}


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
    kinds, limits = {"f": keras.config.floatx(), "i": "int32", "u": "int32"}, np.iinfo("int32")
    is_wide = array.dtype.kind in "iu" and not np.can_cast(array.dtype, "int32")
    if is_wide and array.size and not limits.min <= array.min() <= array.max() <= limits.max:
        raise ValueError(f"Expected whole numbers of int32. Received: {array.min()} to {array.max()}")
    return array.astype(kinds[array.dtype.kind]) if array.dtype.kind in kinds and array.dtype != "uint8" else array


def encode_files(
    paths: tuple[list[Path], list[Path]],
    tokenizers: tuple[Tokenizer, Tokenizer],
    cache: Path,
    threads: int | None = None,
) -> tuple[TokenStore, TokenStore]:
    """Returns the rows of both sides of a text, memory-mapped, and encodes them unless the cache has them.

    A folder of token files appears only when it is complete. One process encodes at a time; the others wait for it.

    Args:
        paths: The files of each side.
        tokenizers: The tokenizer of each side.
        cache: The folder with the folders of token files.
        threads: See `Tokenizer.encode_batch`.

    Raises:
        ValueError: If the sides have different numbers of files or lines, or as `iterate_lines`.
        OSError: If the folder cannot be written, or the disk is full.
    """
    if len(paths[0]) != len(paths[1]):
        raise ValueError(
            f"Expected as many source files as target files. Received: {len(paths[0])} and {len(paths[1])}"
        )
    identity = ["lines without \\r\\n", "text without a byte order mark"]  # how text is read
    for side, tokenizer in zip(paths, tokenizers, strict=True):
        for path in side:
            identity += [path.stat().st_size, path.stat().st_mtime_ns]
        identity += [tokenizer.fingerprint]
    names = [[str(path.resolve()) for path in side] for side in paths]
    names += [tokenizer.fingerprint for tokenizer in tokenizers]
    folder, part = cache / _hash(identity), cache / f"{_hash(names)}.part"
    if part.exists() or not _is_whole(folder):
        with files.locked(part, wait=True), files.needs_room(cache):
            try:
                if not _is_whole(folder):  # else another process was faster, or was killed after its last step
                    _encode(paths, tokenizers, part, threads)
                    _publish(part, folder)
            except (ValueError, OSError):
                _clear(part)
                raise
            _clear(part)
        with contextlib.suppress(OSError):  # another process has it now
            part.rmdir()
    source, target = (
        TokenStore.open(folder / side, tokenizer.special_ids)
        for side, tokenizer in zip(_SIDES, tokenizers, strict=True)
    )
    return source, target


def _hash(identity: list) -> str:
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def _is_whole(folder: Path) -> bool:
    """Returns True if token files are as they were written."""
    try:
        recorded = json.loads(files.read_bounded(folder / _MANIFEST, _LARGEST_MANIFEST))
        for name in _TOKEN_FILES:
            files.check(folder, name, recorded[name]["size"], recorded[name]["sha256"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False
    return True


def _publish(part: Path, folder: Path) -> None:
    encoded = part / "encoded"
    (encoded / _MANIFEST).unlink(missing_ok=True)  # of a process that was killed before it published
    (encoded / _MANIFEST).write_text(json.dumps(files.digests(encoded)))
    if folder.exists():
        os.rename(folder, part / "damaged")
    files.publish(encoded, folder)


def _clear(part: Path) -> None:
    """Removes what is in the folder but its lock, which `files.locked` removes."""
    for path in part.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != files.LOCK:
            path.unlink(missing_ok=True)


def _encode(paths: tuple[list[Path], ...], tokenizers: tuple[Tokenizer, ...], part: Path, threads: int | None) -> None:
    (part / "encoded").mkdir(exist_ok=True)
    counts = [
        _encode_side(side, tokenizer, part / "encoded" / name, part / f"{name}.journal", threads)
        for side, tokenizer, name in zip(paths, tokenizers, _SIDES, strict=True)
    ]
    for pair, numbers in zip(zip(*paths, strict=True), zip(*counts, strict=True), strict=True):
        if numbers[0] != numbers[1]:
            raise unequal_lengths_error(*pair, *numbers)


def _encode_side(
    paths: list[Path], tokenizer: Tokenizer, prefix: Path, journal: Path, threads: int | None
) -> list[int]:
    """Writes the ids of all lines, in order; blocks of text that the journal has are compared and kept.

    Returns:
        The number of lines of each file.
    """
    with _changed(f"{prefix}.ids") as ids, _changed(f"{prefix}.offsets") as offsets, _changed(journal) as done:
        if np.fromfile(offsets, np.int64, 1).tolist() != [0]:
            offsets.seek(0)
            offsets.write(np.zeros(1, np.int64))
        parts, counts, is_resumed = (ids, offsets, done), [], True
        places = [file.tell() for file in parts]  # the end of what is kept
        for path in paths:
            counts.append(0)
            for number, text in iterate_blocks(path, _BLOCK):
                counts[-1] = number + _count_lines(text)
                if is_resumed:
                    is_resumed = _is_done(done.readline(_LONGEST_LINE), text, ids, offsets)
                    if is_resumed:
                        places = [file.tell() for file in parts]
                        continue
                    _truncate(parts, places)
                rows = encode_lines(block_lines(text, path, number), tokenizer, threads)
                lengths = np.fromiter(map(len, rows), np.int64, len(rows))  # (lines,)
                token_ids = np.fromiter(itertools.chain.from_iterable(rows), np.int32, lengths.sum())  # (N,)
                ends = ids.tell() // token_ids.itemsize + np.cumsum(lengths)  # (lines,)
                line = f"{hashlib.sha256(text).hexdigest()} {len(token_ids)} {_digest(token_ids, ends)}\n".encode()
                for file, content in zip(parts, (token_ids, ends, line), strict=True):  # the journal's comes last
                    file.write(content)
                    file.flush()
        if is_resumed:
            _truncate(parts, places)
    return counts


def _changed(path: Path | str) -> BinaryIO:
    """Opens a file for reading and writing, and makes it if it is missing, or a link, a pipe or a device."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            os.unlink(path)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")


def _truncate(parts: Sequence[BinaryIO], places: Sequence[int]) -> None:
    for file, place in zip(parts, places, strict=True):
        file.seek(place)
        file.truncate()


def _count_lines(text: bytes) -> int:
    return text.count(b"\n") + (not text.endswith(b"\n"))


def _is_done(line: bytes, text: bytes, ids: BinaryIO, offsets: BinaryIO) -> bool:
    """Returns True if a line of a journal is that of this text, and the next ids and offsets are those it names."""
    found = _LINE.fullmatch(line)
    if found is None or found["text"].decode() != hashlib.sha256(text).hexdigest():
        return False
    count = int(found["ids"])
    if 4 * count > os.fstat(ids.fileno()).st_size or count > _MOST_TOKENS * (len(text) + 1):
        return False
    token_ids, ends = np.fromfile(ids, np.int32, count), np.fromfile(offsets, np.int64, _count_lines(text))
    return found["tokens"].decode() == _digest(token_ids, ends)


def _digest(token_ids: np.ndarray, ends: np.ndarray) -> str:
    digest = hashlib.sha256(token_ids)
    digest.update(ends)
    return digest.hexdigest()
