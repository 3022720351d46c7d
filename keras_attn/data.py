"""Parallel text to batches of static shape: reading, bucketing, padding.

A bucket is one shape (B, S, T): every pair goes into the smallest that holds both of its sides, every batch
of a bucket has exactly its shape, and XLA compiles once a bucket. The rectangles (S, T) are chosen from the
data so that the fewest positions are padding.
"""

import gzip
import hashlib
import itertools
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attn.tokenizer import BLANKS, END_ID, PAD_ID, START_ID, UNKNOWN_ID, Tokenizer

PathLike = str | os.PathLike
_CHUNK = 10_000  # lines encoded at a time while streaming


def iterate_lines(path: PathLike) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or `.gz`, one by one. "\\n" alone ends a line, and is left out.

    Raises:
        FileNotFoundError: where there is no such file.
        ValueError: for an empty file, invalid UTF-8 (the sentence names the line) or a damaged `.gz`.
    """
    path, number = Path(path), 0
    if not path.is_file():
        raise FileNotFoundError(f"Expected a text file {path}, received a path where there is none.")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            for number, line in enumerate(file, 1):  # noqa: B007, the count is used after the loop
                yield line.removesuffix(b"\n").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Expected UTF-8 in {path}, received an invalid byte 0x{error.object[error.start]:02x} in line {number}."
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise ValueError(
            f"Expected {path} to be a whole gzip file, received one that is damaged after line {number}."
        ) from None
    if not number:
        raise ValueError(f"Expected lines of text in {path}, received an empty file.")


def read_lines(path: PathLike) -> list[str]:
    """`iterate_lines` as a list."""
    return list(iterate_lines(path))


def corpus_path(folder: PathLike, split: str, language: str) -> Path:
    """The file of one side of a corpus: `<split>.<language>` or the same with `.gz`.

    Raises:
        FileNotFoundError: where there is neither; the sentence lists what there is.
    """
    folder = Path(folder)
    for path in (folder / f"{split}.{language}", folder / f"{split}.{language}.gz"):
        if path.is_file():
            return path
    present = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    raise FileNotFoundError(
        f"Expected {split}.{language} or {split}.{language}.gz in {folder}, received "
        f"{', '.join(present) if present else 'an empty or missing folder'}."
    )


def read_parallel(folder: PathLike, split: str, source: str, target: str) -> tuple[list[str], list[str]]:
    """Both sides of a split, line by line each other's translation.

    Raises:
        FileNotFoundError, ValueError: as `corpus_path` and `iterate_lines`, and for sides of unequal length.
    """
    paths = [corpus_path(folder, split, language) for language in (source, target)]
    sides = [read_lines(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise _unequal(*paths, len(sides[0]), len(sides[1]))
    return sides[0], sides[1]


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


class ParallelDataset(keras.utils.PyDataset):
    """Pairs of id rows as length-bucketed batches for `fit` and `evaluate`, on every backend.

    Batch i is `({"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}, labels (B, T), weights (B, T))`,
    int32 and float32 weights. A source row is its ids and the end; decoder ids are the start and the target's
    ids; labels are the target's ids and the end; weights are 1 on labels and 0 on pads. Rows that a bucket's
    last batch lacks hold an end alone, a start alone, and weights of 0. Lengths count the start or end.

    The order of an epoch depends on `seed` and `epoch` alone, and `on_epoch_end` moves to the next. Keras
    calls that once more when a `fit` begins, so call `set_epoch(initial_epoch)` before every `fit`: a resumed
    run then sees what an uninterrupted one sees. Leave out `steps_per_epoch`: an epoch is one pass.
    `PyDataset`'s workers are not offered: a batch takes 0.1 ms, and Keras 3.15 carries what they have queued
    into the next epoch, which then misses some pairs and sees others twice.

    Args:
        source, target: rows of ids without start and end, lists or an `IdStore`. A pair with an empty side is
            dropped and counted as blank.
        batch_size: int, sentences a batch. Give this or `tokens_per_batch`.
        tokens_per_batch: int, B * max(S, T) at most; B is a multiple of 8 where it is 8 or more.
        bucket_boundaries: the lengths of the buckets, each an int for both sides or a pair (S, T), one of
            them as long as all others; or an int, the most buckets to choose from the data. None means 8.
        max_length: int, the longest row kept, its end included; None means any.
        overlong: "drop" pairs with a longer side, or "cut" the side.
        shuffle: bool; False gives the same order every epoch, short buckets first.
        curriculum_epochs: int, of the first epochs, whose shuffled batches are sorted by their bucket, short before
            long: attention is found on short sentences first, for less (SortaGrad: Amodei et al. 2016,
            arXiv:1512.02595, section 3.2).
        seed: int of 0 or more.
        shard: (index, count), this process' share of `count` in data-parallel training: pairs are disjoint,
            and at each step all shards have a batch of the same shape.

    Attributes:
        shapes: list of (B, S, T), the buckets in use.
        epoch: int, of the order in use.

    Raises:
        ValueError: for sides of unequal length, no pair left, or an argument out of its range.

    Example:

    ```python
    dataset = ParallelDataset([[4, 5], [6]], [[7], [8, 9, 5]], batch_size=2)
    inputs, labels, weights = dataset[0]
    ```
    """

    def __init__(
        self,
        source: Sequence[Sequence[int]] | IdStore,
        target: Sequence[Sequence[int]] | IdStore,
        *,
        batch_size: int | None = None,
        tokens_per_batch: int | None = None,
        bucket_boundaries: int | Sequence[int | tuple[int, int]] | None = None,
        max_length: int | None = None,
        overlong: str = "drop",
        shuffle: bool = True,
        curriculum_epochs: int = 0,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ):
        super().__init__()
        _check_options(batch_size, tokens_per_batch, max_length, overlong, curriculum_epochs, seed, shard)
        self._sides = tuple(
            side if isinstance(side, IdStore) else IdStore.from_lists(side) for side in (source, target)
        )
        if len(self._sides[0]) != len(self._sides[1]):
            raise ValueError(
                f"Expected as many source as target rows, received {len(self._sides[0]):,} and {len(self._sides[1]):,}."
            )
        self._batch_size, self._tokens_per_batch = batch_size, tokens_per_batch
        self._shuffle, self._curriculum_epochs = shuffle, curriculum_epochs
        self._seed, self._shard = seed, shard
        boundaries, count = _checked_boundaries(bucket_boundaries)
        limit = np.array(boundaries[-1] if boundaries else (2**31 - 1,) * 2)
        pairs, lengths = self._select(np.minimum(limit, max_length or limit), overlong)
        buckets = boundaries or self._choose(lengths, count)
        steps = self._step_rows(buckets)
        home = _assign(lengths, buckets)
        counts = np.bincount(home, minlength=len(buckets))
        batches, self._moves, positions = _plan(counts, buckets, steps)
        self._members = [pairs[home == bucket] for bucket in range(len(buckets))]
        self._shapes = [(step // shard[1], *bucket) for step, bucket in zip(steps, buckets, strict=True)]
        self.shapes = [shape for shape, number in zip(self._shapes, batches, strict=True) if number]
        self._report |= {"padding": 1 - float(lengths.sum() / positions), "batches": sum(batches)}
        self.set_epoch(0)

    @classmethod
    def from_text(
        cls,
        source_lines: Sequence[str],
        target_lines: Sequence[str],
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        **kwargs: Any,
    ) -> "ParallelDataset":
        """Encodes two lists of lines; a blank line is dropped with its partner and counted."""
        return cls(
            IdStore.from_lists(_encode(source_lines, source_tokenizer)),
            IdStore.from_lists(_encode(target_lines, target_tokenizer)),
            **kwargs,
        )

    @classmethod
    def from_files(
        cls,
        source_path: PathLike,
        target_path: PathLike,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        cache_dir: PathLike,
        **kwargs: Any,
    ) -> "ParallelDataset":
        """Streams two text files into id files under `cache_dir` and maps those.

        In memory stay a few dozen bytes a pair, not the text or its ids. The id files are reused while the
        text files (size and time of change) and the tokenizers stay the same.
        """
        paths = Path(source_path), Path(target_path)
        tokenizers = source_tokenizer, target_tokenizer
        identity = []
        for path, tokenizer in zip(paths, tokenizers, strict=True):
            if not path.is_file():
                raise FileNotFoundError(f"Expected a text file {path}, received a path where there is none.")
            identity += [path.stat().st_size, path.stat().st_mtime_ns, tokenizer.fingerprint]
        folder = Path(cache_dir) / hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
        if not folder.is_dir():
            _encode_files(paths, tokenizers, folder)
        return cls(IdStore.open(folder / "source"), IdStore.open(folder / "target"), **kwargs)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        bucket, rows = self._order[index]
        size, source_length, target_length = self._shapes[bucket]
        source = self._sides[0].pad(rows, (size, source_length))  # (B, S)
        source[len(rows) :, 0] = END_ID  # no row without a real token: cuDNN and softmax want none
        labels = self._sides[1].pad(rows, (size, target_length))  # (B, T)
        shifted = labels[:, :-1]  # (B, T - 1)
        decoder = np.full_like(labels, START_ID)  # (B, T)
        decoder[:, 1:] = np.where(shifted == END_ID, PAD_ID, shifted)
        weights = (labels != PAD_ID).astype(np.float32)  # (B, T)
        return {"encoder_token_ids": source, "decoder_token_ids": decoder}, labels, weights

    def on_epoch_end(self) -> None:
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Takes the order of epoch `epoch`, 0 or more: a pure function of the seed and this number."""
        # One assignment: on TensorFlow a prefetching thread may be reading the old order.
        self._order = self._arrange(epoch)
        self.epoch = epoch

    def report(self) -> dict[str, int | float]:
        """What became of the data, over all shards.

        Returns:
            pairs kept, dropped_blank, dropped_overlong and cut (pairs); source_tokens and target_tokens (real
            positions, ends included); padding (share of all positions, of both sides, that are no real
            token); batches (of one shard).
        """
        return dict(self._report)

    def _select(self, limits: np.ndarray, overlong: str) -> tuple[np.ndarray, np.ndarray]:
        """The pairs to keep (N,) and their lengths with the end, cut to the limits (N, 2)."""
        lengths = np.stack([side.lengths + 1 for side in self._sides], axis=1)  # (pairs, 2)
        present = (lengths > 1).all(axis=1)
        long = present & (lengths > limits).any(axis=1)
        kept = present & ~long if overlong == "drop" else present
        if not kept.any():
            raise ValueError(
                f"Expected at least one pair to train on, received {len(lengths):,}, of which "
                f"{(~present).sum():,} are blank and {long.sum():,} longer than the limit."
            )
        lengths = np.minimum(lengths[kept], limits)
        self._report = {
            "pairs": int(kept.sum()),
            "dropped_blank": int((~present).sum()),
            "dropped_overlong": int(long.sum()) if overlong == "drop" else 0,
            "cut": int(long.sum()) if overlong == "cut" else 0,
            "source_tokens": int(lengths[:, 0].sum()),
            "target_tokens": int(lengths[:, 1].sum()),
        }
        return np.flatnonzero(kept), lengths

    def _step_rows(self, buckets: list[tuple[int, int]]) -> list[int]:
        """Rows of all shards together that one step takes from each bucket."""
        if self._batch_size is not None:
            return [self._batch_size * self._shard[1]] * len(buckets)
        longest = max(max(bucket) for bucket in buckets)
        if self._tokens_per_batch < longest:
            raise ValueError(
                f"Expected tokens_per_batch of at least {longest}, the longest row, received "
                f"{self._tokens_per_batch}; max_length drops or cuts longer ones."
            )
        sizes = [self._tokens_per_batch // max(bucket) for bucket in buckets]
        return [(size if size < 8 else size - size % 8) * self._shard[1] for size in sizes]

    def _choose(self, lengths: np.ndarray, most: int) -> list[tuple[int, int]]:
        """Buckets for these lengths, as many up to `most` as make the fewest positions: few for few data."""
        plans = []
        for count in range(1, most + 1):
            buckets = choose_buckets(lengths, count)
            counts = np.bincount(_assign(lengths, buckets), minlength=len(buckets))
            batches, _, positions = _plan(counts, buckets, self._step_rows(buckets))
            used = [bucket for bucket, number in zip(buckets, batches, strict=True) if number]
            plans.append((positions, len(used), used))
        return min(plans)[-1]

    def _arrange(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        """The batches of an epoch for this shard: (bucket, pairs)."""
        random = np.random.default_rng((self._seed, epoch)) if self._shuffle else None
        index, count = self._shard
        pools, batches = list(self._members), []
        for bucket, (size, _, _) in enumerate(self._shapes):
            pool, step = pools[bucket], size * count
            if random is not None:
                pool = random.permutation(pool)
            whole = len(pool) if self._moves[bucket] is None else len(pool) // step * step
            if whole < len(pool):
                larger = self._moves[bucket]
                pools[larger] = np.concatenate([pools[larger], pool[whole:]])
            batches += [(bucket, pool[i : i + step][index::count]) for i in range(0, whole, step)]
        if random is not None and epoch >= self._curriculum_epochs:
            batches = [batches[i] for i in random.permutation(len(batches))]
        self._vary_first_two(batches)
        return batches

    def _vary_first_two(self, batches: list[tuple[int, np.ndarray]]) -> None:
        """Moves two batches to the front that differ in S, if any do, and in T, if any do.

        Keras on TensorFlow takes an axis for static when the first two batches agree on it, and fails at the
        third.
        """
        first = {}
        for position, (bucket, _) in enumerate(batches):
            first.setdefault(bucket, position)
        varying = {axis for axis in (1, 2) if len({self._shapes[bucket][axis] for bucket in first}) > 1}
        for one, other in itertools.combinations(first, 2):
            if all(self._shapes[one][axis] != self._shapes[other][axis] for axis in varying):
                for place, position in enumerate(sorted((first[one], first[other]))):
                    batches[place], batches[position] = batches[position], batches[place]
                return


def choose_buckets(lengths: np.ndarray, count: int) -> list[tuple[int, int]]:
    """At most `count` rectangles (S, T) that hold all pairs with few positions of padding.

    One rectangle holds everything. The others are added one by one, each where it saves most given the rest, then
    moved one by one to where they save most until none moves: what each saves is known exactly, for all places at
    once, from two-dimensional running sums.

    Args:
        lengths: int (N, 2).
        count: int of 1 or more.

    Returns:
        list of (S, T), smallest area first.
    """
    # At most 256 candidates a side keep this in milliseconds for sentences of any length.
    shares = np.linspace(0, 1, 256)
    grids = [np.unique(np.quantile(side, shares, method="higher")) for side in lengths.T]
    cell = [np.searchsorted(grid, side) for grid, side in zip(grids, lengths.T, strict=True)]
    cost = grids[0][:, None] + grids[1]  # (S values, T values)
    pairs = np.bincount(cell[0] * cost.shape[1] + cell[1], minlength=cost.size).reshape(cost.shape)

    def best_place(others: list[tuple[int, int]]) -> tuple[int, int]:
        paid = np.full(cost.shape, cost[-1, -1])
        for i, j in others:
            paid[: i + 1, : j + 1] = np.minimum(paid[: i + 1, : j + 1], cost[i, j])
        saved = np.zeros(cost.shape, np.int64)
        for price in np.unique(paid):
            inside = np.where(paid == price, pairs, 0).cumsum(axis=0).cumsum(axis=1)
            saved += inside * np.maximum(price - cost, 0)
        return np.unravel_index(saved.argmax(), cost.shape)

    places = [(cost.shape[0] - 1, cost.shape[1] - 1)]
    for _ in range(count - 1):
        places.append(best_place(places))
    for _ in range(10):
        before = list(places)
        for index in range(1, len(places)):
            places[index] = best_place(places[:index] + places[index + 1 :])
        if places == before:
            break
    buckets = {(int(grids[0][i]), int(grids[1][j])) for i, j in places}
    return sorted(buckets, key=lambda bucket: (sum(bucket), bucket))


def _assign(lengths: np.ndarray, buckets: list[tuple[int, int]]) -> np.ndarray:
    """The smallest bucket that holds each pair (N,)."""
    home = np.zeros(len(lengths), np.int8)
    for index in reversed(range(len(buckets))):
        home[(lengths <= buckets[index]).all(axis=1)] = index
    return home


def _plan(
    counts: np.ndarray, buckets: list[tuple[int, int]], steps: list[int]
) -> tuple[list[int], list[int | None], int]:
    """Steps a bucket, the larger bucket that takes the rows of its last, partial step, and all positions.

    They are handed on where that makes fewer positions than filling the step with empty rows.
    """
    counts, moves = [int(count) for count in counts], []
    for index, (bucket, step) in enumerate(zip(buckets, steps, strict=True)):
        rest = counts[index] % step
        later = range(index + 1, len(buckets))
        larger = next((i for i in later if np.greater_equal(buckets[i], bucket).all()), None)
        if larger is not None and rest * (sum(buckets[larger]) - sum(bucket)) >= (step - rest) * sum(bucket):
            larger = None
        if larger is not None:
            counts[index] -= rest
            counts[larger] += rest
        moves.append(larger)
    batches = [-(-count // step) for count, step in zip(counts, steps, strict=True)]
    positions = sum(n * step * sum(bucket) for n, step, bucket in zip(batches, steps, buckets, strict=True))
    return batches, moves, positions


def _checked_boundaries(boundaries: Any) -> tuple[list[tuple[int, int]] | None, int]:
    """Boundaries as sorted pairs and None as a number to choose, or the number."""
    if boundaries is None or isinstance(boundaries, int):
        count = 8 if boundaries is None else boundaries
        if not 1 <= count <= 100:
            raise ValueError(f"Expected 1 to 100 buckets, received bucket_boundaries={count}.")
        return None, count
    pairs = {(b, b) if isinstance(b, int) else tuple(b) for b in boundaries}
    pairs = sorted(pairs, key=lambda pair: (sum(pair), pair))
    if not pairs or min(min(pair) for pair in pairs) < 2 or pairs[-1] != tuple(map(max, zip(*pairs, strict=True))):
        raise ValueError(
            f"Expected bucket_boundaries of 2 or more, ints or pairs (S, T), one of them the longest on both "
            f"sides, received {boundaries!r}."
        )
    return pairs, len(pairs)


def _check_options(
    batch_size: int | None,
    tokens_per_batch: int | None,
    max_length: int | None,
    overlong: str,
    curriculum_epochs: int,
    seed: int,
    shard: tuple[int, int],
) -> None:
    if (batch_size is None) == (tokens_per_batch is None) or (batch_size or tokens_per_batch or 0) < 1:
        raise ValueError(
            f"Expected either batch_size or tokens_per_batch, of 1 or more, received batch_size={batch_size} "
            f"and tokens_per_batch={tokens_per_batch}."
        )
    if max_length is not None and max_length < 2:
        raise ValueError(f"Expected max_length of 2 (a token and the end) or more, received {max_length}.")
    if overlong not in ("drop", "cut"):
        raise ValueError(f"Expected overlong to be 'drop' or 'cut', received {overlong!r}.")
    if curriculum_epochs < 0:
        raise ValueError(f"Expected curriculum_epochs of 0 or more, received {curriculum_epochs}.")
    if seed < 0:
        raise ValueError(f"Expected a seed of 0 or more, received {seed}.")
    if not 0 <= shard[0] < shard[1]:
        raise ValueError(f"Expected shard (index, count) with 0 <= index < count, received {shard}.")


def _encode(lines: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Ids of lines; of a blank line none, though BPE has pieces for blanks."""
    return tokenizer.encode_batch([line if line.strip(BLANKS) else "" for line in lines])


def _encode_files(paths: tuple[Path, Path], tokenizers: tuple[Tokenizer, Tokenizer], folder: Path) -> None:
    """Writes `source` and `target` as `.ids` and `.offsets` into a folder that appears when it is whole."""
    partial = folder.with_name(f".tmp-{folder.name}-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        counts = [
            _encode_file(path, tokenizer, partial / side)
            for path, tokenizer, side in zip(paths, tokenizers, ("source", "target"), strict=True)
        ]
        if counts[0] != counts[1]:
            raise _unequal(*paths, *counts)
        if not folder.is_dir():  # another process may have been quicker
            os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _encode_file(path: Path, tokenizer: Tokenizer, prefix: Path) -> int:
    lines, total, count = iterate_lines(path), 0, 0
    with open(f"{prefix}.ids", "wb") as ids, open(f"{prefix}.offsets", "wb") as offsets:
        np.zeros(1, np.int64).tofile(offsets)
        while chunk := list(itertools.islice(lines, _CHUNK)):
            store = IdStore.from_lists(_encode(chunk, tokenizer))
            store.ids.tofile(ids)
            (store.offsets[1:] + total).tofile(offsets)
            total, count = total + len(store.ids), count + len(chunk)
    return count


def _unequal(source: Path, target: Path, source_count: int, target_count: int) -> ValueError:
    return ValueError(
        f"Expected as many lines in {source} as in {target}, received {source_count:,} and {target_count:,}."
    )
