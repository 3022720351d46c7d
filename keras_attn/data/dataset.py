"""Parallel text as batches of static shape: bucketing, shuffling, padding.

A bucket is one shape (B, S, T). Every pair goes into the smallest bucket that both of its sides fit into, and every
batch of a bucket has exactly its shape, so that XLA compiles once per bucket. The rectangles (S, T) are chosen from
the data so that as few positions as possible are padding.
"""

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attn.data.bucketing import assign_buckets, checked_boundaries, choose_buckets, plan_batches
from keras_attn.data.token_store import TokenStore, encode_files, encode_lines
from keras_attn.text import END_ID, PAD_ID, START_ID, PathLike, Tokenizer


class ParallelDataset(keras.utils.PyDataset):
    """Pairs of rows of token ids as length-bucketed batches for `fit` and `evaluate`, on every backend.

    Batch i is `({"encoder_token_ids": (B, S), "decoder_token_ids": (B, T)}, labels (B, T), weights (B, T))`, with
    int32 ids and float32 weights. A source row is its ids and the end id. The decoder ids are the start id and the
    target's ids, the labels are the target's ids and the end id, and the weights are 1 on labels and 0 on padding. If
    the last batch of a bucket lacks rows, it is filled with rows of an end id alone and a start id alone, of weight
    0. No batch has more rows than there are pairs, rounded up to a multiple of 8. Lengths include the start or end.

    The order of an epoch depends only on `seed` and `epoch`, and `on_epoch_end` moves to the next epoch. Keras calls it
    once more when `fit` begins, so call `set_epoch(initial_epoch)` before every `fit`: a resumed run then sees the same
    batches as an uninterrupted one. Do not pass `steps_per_epoch`: an epoch is one pass over the data.

    The workers of `PyDataset` are not offered. A batch takes 0.1 ms, and Keras 3.15 carries the batches that they have
    queued over into the next epoch, which then misses some pairs and sees others twice.

    Args:
        source, target: Rows of ids without start and end, as lists or as a `TokenStore`. A pair with an empty side is
            dropped and counted as blank.
        batch_size: int, sentences per batch. Give either this or `tokens_per_batch`.
        tokens_per_batch: int, upper limit of B * max(S, T). B is a multiple of 8 if it is 8 or more.
        bucket_boundaries: The lengths of the buckets, each an int for both sides or a pair (S, T), one of which is
            the longest on both sides; or an int, the maximum number of buckets to choose from the data. None means 8.
        max_length: int, length of the longest row to keep, its end included. None means no limit.
        on_too_long: "drop" pairs with a side that is too long, or "truncate" that side.
        shuffle: bool. False gives the same order in every epoch, short buckets first.
        curriculum_epochs: int, number of first epochs in which the shuffled batches are sorted by bucket, short ones
            first: attention is learnt on short sentences first, which is cheaper (SortaGrad: Amodei et al. 2016,
            arXiv:1512.02595, section 3.2).
        seed: int of 0 or more.
        shard: (index, count), the part of this process in data-parallel training with `count` processes. The pairs of
            the shards are disjoint, and at each step all shards have a batch of the same shape.

    Attributes:
        shapes: list of (B, S, T), the buckets in use.
        epoch: int, the epoch whose order is in use.

    Raises:
        ValueError: If the sides have different lengths, no pair is left, or an argument is out of range.

    Example:

    >>> dataset = keras_attn.ParallelDataset([[4, 5], [6]], [[7], [8, 9, 5]], batch_size=2)
    >>> inputs, labels, weights = dataset[0]
    >>> labels.shape
    (2, 4)
    """

    def __init__(
        self,
        source: Sequence[Sequence[int]] | TokenStore,
        target: Sequence[Sequence[int]] | TokenStore,
        *,
        batch_size: int | None = None,
        tokens_per_batch: int | None = None,
        bucket_boundaries: int | Sequence[int | tuple[int, int]] | None = None,
        max_length: int | None = None,
        on_too_long: str = "drop",
        shuffle: bool = True,
        curriculum_epochs: int = 0,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ):
        super().__init__()
        _check_options(batch_size, tokens_per_batch, max_length, on_too_long, curriculum_epochs, seed, shard)
        self._sides = tuple(
            side if isinstance(side, TokenStore) else TokenStore.from_lists(side) for side in (source, target)
        )
        if len(self._sides[0]) != len(self._sides[1]):
            raise ValueError(
                f"Expected as many source as target rows. Received: {len(self._sides[0]):,} and {len(self._sides[1]):,}"
            )
        self._batch_size, self._tokens_per_batch = batch_size, tokens_per_batch
        self._shuffle, self._curriculum_epochs = shuffle, curriculum_epochs
        self._seed, self._shard = seed, shard
        boundaries, count = checked_boundaries(bucket_boundaries)
        limit = np.array(boundaries[-1] if boundaries else (2**31 - 1,) * 2)
        pairs, lengths = self._select(np.minimum(limit, max_length or limit), on_too_long)
        buckets = boundaries or self._choose(lengths, count)
        steps = self._step_rows(buckets)
        home = assign_buckets(lengths, buckets)
        counts = np.bincount(home, minlength=len(buckets))
        batches, self._moves, positions = plan_batches(counts, buckets, steps)
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
        """Encodes two lists of lines. A pair with a blank line is dropped and counted."""
        return cls(
            TokenStore.from_lists(encode_lines(source_lines, source_tokenizer)),
            TokenStore.from_lists(encode_lines(target_lines, target_tokenizer)),
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
        """Encodes two text files into token files under `cache_dir` and memory-maps those.

        A pair takes a few dozen bytes of memory; the text and its ids stay on disk. The token files are reused as
        long as the text files (their size and modification time) and the tokenizers are the same, and the token files
        are as they were written (their SHA-256); else they are written anew.
        """
        paths = Path(source_path), Path(target_path)
        tokenizers = source_tokenizer, target_tokenizer
        identity = []
        for path, tokenizer in zip(paths, tokenizers, strict=True):
            if not path.is_file():
                raise FileNotFoundError(f"Expected a text file {path}. Received: a path that does not exist")
            identity += [path.stat().st_size, path.stat().st_mtime_ns, tokenizer.fingerprint]
        folder = Path(cache_dir) / hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
        encode_files(paths, tokenizers, folder)
        return cls(TokenStore.open(folder / "source"), TokenStore.open(folder / "target"), **kwargs)

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
        """Sets the order of the batches to that of `epoch`, 0 or more: a pure function of the seed and `epoch`."""
        # One assignment: on TensorFlow a prefetching thread may be reading the old order.
        self._order = self._arrange(epoch)
        self.epoch = epoch

    @property
    def largest_token_ids(self) -> tuple[int, int]:
        """The largest id of each side, which a model compares with the sizes of its vocabularies."""
        return tuple(side.largest_id for side in self._sides)

    def report(self) -> dict[str, int | float]:
        """Returns statistics of the data, over all shards.

        Returns:
            dict with the numbers of pairs: `pairs` (kept), `dropped_blank`, `dropped_too_long` and `truncated`;
            `source_tokens` and `target_tokens`, numbers of real positions, ends included; `padding`, the share of all
            positions of both sides that are padding; and `batches`, the number of batches of one shard.
        """
        return dict(self._report)

    def _select(self, limits: np.ndarray, on_too_long: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the pairs to keep (N,) and their lengths with the end, truncated to the limits (N, 2)."""
        lengths = np.stack([side.lengths + 1 for side in self._sides], axis=1)  # (pairs, 2)
        present = (lengths > 1).all(axis=1)
        long = present & (lengths > limits).any(axis=1)
        kept = present & ~long if on_too_long == "drop" else present
        if not kept.any():
            raise ValueError(
                f"Expected at least one pair with text on both sides. Received: {len(lengths):,} pairs, of which "
                f"{(~present).sum():,} are blank and {long.sum():,} longer than the limit"
            )
        lengths = np.minimum(lengths[kept], limits)
        self._report = {
            "pairs": int(kept.sum()),
            "dropped_blank": int((~present).sum()),
            "dropped_too_long": int(long.sum()) if on_too_long == "drop" else 0,
            "truncated": int(long.sum()) if on_too_long == "truncate" else 0,
            "source_tokens": int(lengths[:, 0].sum()),
            "target_tokens": int(lengths[:, 1].sum()),
        }
        return np.flatnonzero(kept), lengths

    def _step_rows(self, buckets: list[tuple[int, int]]) -> list[int]:
        """Returns the number of rows that one step of all shards together takes from each bucket."""
        count = self._shard[1]
        most = -(-self._report["pairs"] // (8 * count)) * 8  # all pairs, rounded up
        if self._batch_size is not None:
            return [min(self._batch_size, most) * count] * len(buckets)
        longest = max(max(bucket) for bucket in buckets)
        if self._tokens_per_batch < longest:
            raise ValueError(
                f"Expected tokens_per_batch of at least {longest}, the length of the longest row; max_length drops or "
                f"truncates longer rows. Received: tokens_per_batch={self._tokens_per_batch}"
            )
        sizes = [min(self._tokens_per_batch // max(bucket), most) for bucket in buckets]
        return [(size if size < 8 else size - size % 8) * count for size in sizes]

    def _choose(self, lengths: np.ndarray, most: int) -> list[tuple[int, int]]:
        """Returns buckets for these lengths, as many, up to `most`, as give the fewest positions."""
        plans = []
        for count in range(1, most + 1):
            buckets = choose_buckets(lengths, count)
            counts = np.bincount(assign_buckets(lengths, buckets), minlength=len(buckets))
            batches, _, positions = plan_batches(counts, buckets, self._step_rows(buckets))
            used = [bucket for bucket, number in zip(buckets, batches, strict=True) if number]
            plans.append((positions, len(used), used))
        return min(plans)[-1]

    def _arrange(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        """Returns the batches of an epoch for this shard: (bucket, pairs)."""
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

        Keras on TensorFlow assumes that an axis is static if the first two batches agree on it, and then fails at
        a later batch.
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


def _check_options(batch_size, tokens_per_batch, max_length, on_too_long, curriculum_epochs, seed, shard) -> None:
    optional = {"batch_size": batch_size, "tokens_per_batch": tokens_per_batch, "max_length": max_length}
    given = {name: number for name, number in optional.items() if number is not None}
    for name, number in (given | {"curriculum_epochs": curriculum_epochs, "seed": seed}).items():
        if not isinstance(number, (int, np.integer)):
            raise ValueError(f"Expected {name} to be a whole number. Received: {number!r}")
    if (batch_size is None) == (tokens_per_batch is None) or (batch_size or tokens_per_batch or 0) < 1:
        raise ValueError(
            f"Expected either batch_size or tokens_per_batch, of 1 or more. Received: batch_size={batch_size} "
            f"and tokens_per_batch={tokens_per_batch}"
        )
    if max_length is not None and max_length < 2:
        raise ValueError(f"Expected max_length of 2 (a token and the end) or more. Received: {max_length}")
    if on_too_long not in ("drop", "truncate"):
        raise ValueError(f"Expected on_too_long to be 'drop' or 'truncate'. Received: {on_too_long!r}")
    if curriculum_epochs < 0:
        raise ValueError(f"Expected curriculum_epochs of 0 or more. Received: {curriculum_epochs}")
    if seed < 0:
        raise ValueError(f"Expected seed of 0 or more. Received: {seed}")
    if not 0 <= shard[0] < shard[1]:
        raise ValueError(f"Expected shard (index, count) with 0 <= index < count. Received: {shard}")
