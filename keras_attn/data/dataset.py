"""Parallel text to batches of static shape: bucketing, shuffling, padding.

A bucket is one shape (B, S, T): every pair goes into the smallest that holds both of its sides, every batch
of a bucket has exactly its shape, and XLA compiles once a bucket. The rectangles (S, T) are chosen from the
data so that the fewest positions are padding.
"""

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attn.data.bucketing import assign, checked_boundaries, choose_buckets, plan
from keras_attn.data.token_store import IdStore, encode, encode_files
from keras_attn.text import END_ID, PAD_ID, START_ID, PathLike, Tokenizer


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
        boundaries, count = checked_boundaries(bucket_boundaries)
        limit = np.array(boundaries[-1] if boundaries else (2**31 - 1,) * 2)
        pairs, lengths = self._select(np.minimum(limit, max_length or limit), overlong)
        buckets = boundaries or self._choose(lengths, count)
        steps = self._step_rows(buckets)
        home = assign(lengths, buckets)
        counts = np.bincount(home, minlength=len(buckets))
        batches, self._moves, positions = plan(counts, buckets, steps)
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
            IdStore.from_lists(encode(source_lines, source_tokenizer)),
            IdStore.from_lists(encode(target_lines, target_tokenizer)),
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
            encode_files(paths, tokenizers, folder)
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
            counts = np.bincount(assign(lengths, buckets), minlength=len(buckets))
            batches, _, positions = plan(counts, buckets, self._step_rows(buckets))
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
