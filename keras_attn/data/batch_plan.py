"""The batches of a dataset: buckets, the plan that all epochs share, and the order of each epoch.

Buckets are the few rectangles (S, T) that batches are padded to, chosen so that few positions are padding. The plan has
the shapes of the batches and the pairs of each bucket.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_attn.data.token_store import TokenStore

_PART = 1 << 20  # pairs whose lengths are in memory at a time


class PlanOptions(NamedTuple):
    """The arguments of `ParallelDataset` that decide the plan."""

    batch_size: int | None
    tokens_per_batch: int | None
    bucket_boundaries: Any
    max_length: int | None
    on_too_long: str
    shards: int


class BatchPlan(NamedTuple):
    """The batches that all epochs of a dataset have in common.

    Attributes:
        shapes: list of (B, S, T), the shape of each bucket in one shard.
        batches: list of int, steps of each bucket.
        moves: list of int or None, the bucket that a bucket's leftover pairs move to.
        members: list of int (pairs,), the numbers of the pairs in each bucket, in order.
        report: dict, see `ParallelDataset.report`.
    """

    shapes: list[tuple[int, int, int]]
    batches: list[int]
    moves: list[int | None]
    members: list[np.ndarray]
    report: dict[str, int | float]


def batch_plan(sides: tuple[TokenStore, TokenStore], options: PlanOptions) -> BatchPlan:
    """Returns the plan for two sides.

    Raises:
        ValueError: If no pair is left, or tokens_per_batch is less than the longest row.
    """
    boundaries, count = checked_boundaries(options.bucket_boundaries)
    limit = np.array(boundaries[-1] if boundaries else (2**31 - 1,) * 2)
    limits = np.minimum(limit, options.max_length or limit)
    lengths, pairs, report = _histogram(sides, limits, options.on_too_long)
    buckets = boundaries or _choose(lengths, pairs, count, report["pairs"], options)
    steps = _step_rows(buckets, report["pairs"], options)
    counts = np.bincount(assign_buckets(lengths, buckets), pairs, len(buckets)).astype(np.int64)
    batches, moves, positions = plan_batches(counts, buckets, steps)
    tokens = report["source_tokens"] + report["target_tokens"]
    report |= {"padding": 1 - float(tokens / positions), "batches": sum(batches)}
    kind = np.int32 if len(sides[0]) < 2**31 else np.int64
    members: list[list[np.ndarray]] = [[np.zeros(0, kind)] for _ in buckets]
    for numbers, kept, _, _ in _parts(sides, limits, options.on_too_long):
        numbers, home = numbers.astype(kind), assign_buckets(kept, buckets)
        for bucket, found in enumerate(members):
            found.append(numbers[home == bucket])
    return BatchPlan(
        [(step // options.shards, *bucket) for step, bucket in zip(steps, buckets, strict=True)],
        batches,
        moves,
        [np.concatenate(found) for found in members],
        report,
    )


def _parts(
    sides: tuple[TokenStore, TokenStore], limits: np.ndarray, on_too_long: str
) -> Iterator[tuple[np.ndarray, np.ndarray, int, int]]:
    """Yields for some pairs at a time those to keep, and counts of the others.

    Returns:
        (numbers of the pairs to keep (n,), their lengths with the end (n, 2), number of blank pairs, number of pairs
        that are too long).
    """
    for start in range(0, len(sides[0]), _PART):
        part = np.stack([side.lengths(start, start + _PART) + side.ends for side in sides], axis=1)  # (n, 2)
        present = (part > [side.ends for side in sides]).all(axis=1)
        long = present & (part > limits).any(axis=1)
        kept = np.flatnonzero(present & ~long if on_too_long == "drop" else present)
        yield start + kept, np.minimum(part[kept], limits), len(part) - int(present.sum()), int(long.sum())


def _histogram(
    sides: tuple[TokenStore, TokenStore], limits: np.ndarray, on_too_long: str
) -> tuple[np.ndarray, np.ndarray, dict[str, int | float]]:
    """Returns the lengths (U, 2) that occur among the pairs to keep, how many pairs have each (U,), and the report."""
    codes, counts, blank, long = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0, 0
    for _, part, blank_here, long_here in _parts(sides, limits, on_too_long):
        part = part.astype(np.int64)
        found = np.unique(part[:, 0] << 32 | part[:, 1], return_counts=True)
        codes.append(found[0])
        counts.append(found[1])
        blank += blank_here
        long += long_here
    codes, places = np.unique(np.concatenate(codes), return_inverse=True)
    pairs = np.bincount(places, np.concatenate(counts), len(codes)).astype(np.int64)  # (U,)
    lengths = np.stack([codes >> 32, codes & (2**32 - 1)], axis=1)  # (U, 2)
    if not len(codes):
        raise ValueError(
            f"Expected at least one pair with text on both sides. Received: {len(sides[0]):,} pairs, of which "
            f"{blank:,} are blank and {long:,} longer than the limit"
        )
    return (
        lengths,
        pairs,
        {
            "pairs": int(pairs.sum()),
            "dropped_blank": blank,
            "dropped_too_long": long if on_too_long == "drop" else 0,
            "truncated": long if on_too_long == "truncate" else 0,
            "source_tokens": int(lengths[:, 0] @ pairs),
            "target_tokens": int(lengths[:, 1] @ pairs),
        },
    )


def _choose(
    lengths: np.ndarray, pairs: np.ndarray, most: int, total: int, options: PlanOptions
) -> list[tuple[int, int]]:
    """Returns buckets for these lengths, as many, up to `most`, as give the fewest positions."""
    plans = []
    for count in range(1, most + 1):
        buckets = choose_buckets(lengths, count, pairs)
        counts = np.bincount(assign_buckets(lengths, buckets), pairs, len(buckets))
        batches, _, positions = plan_batches(counts, buckets, _step_rows(buckets, total, options))
        used = [bucket for bucket, number in zip(buckets, batches, strict=True) if number]
        plans.append((positions, len(used), used))
    return min(plans)[-1]


def _step_rows(buckets: list[tuple[int, int]], pairs: int, options: PlanOptions) -> list[int]:
    """Returns the number of rows that one step of all shards together takes from each bucket."""
    count = options.shards
    most = -(-pairs // (8 * count)) * 8  # all pairs, rounded up
    if options.batch_size is not None:
        return [min(options.batch_size, most) * count] * len(buckets)
    longest = max(max(bucket) for bucket in buckets)
    if options.tokens_per_batch < longest:
        raise ValueError(
            f"Expected tokens_per_batch of at least {longest}, the length of the longest row; max_length drops or "
            f"truncates longer rows. Received: tokens_per_batch={options.tokens_per_batch}"
        )
    sizes = [min(options.tokens_per_batch // max(bucket), most) for bucket in buckets]
    return [(size if size < 8 else size - size % 8) * count for size in sizes]


def choose_buckets(lengths: np.ndarray, count: int, pairs: np.ndarray | None = None) -> list[tuple[int, int]]:
    """Chooses at most `count` rectangles (S, T) into which all pairs fit with little padding.

    All pairs fit into the first rectangle. The others are added one by one, each where it saves most given the rest,
    and then moved one by one to where they save most until none moves. Two-dimensional running sums give the exact
    saving of every place at once.

    Args:
        lengths: int (N, 2), the lengths of both sides of each pair.
        count: int of 1 or more.
        pairs: int (N,), the number of pairs of these lengths. None means 1.

    Returns:
        list of (S, T), smallest area first.
    """
    # At most 256 candidates per side, so that this takes milliseconds for sentences of any length.
    shares = np.linspace(0, 1, 256)
    pairs = np.ones(len(lengths), np.int64) if pairs is None else pairs
    grids = [np.unique(_quantiles(side, pairs, shares)) for side in lengths.T]
    cell = [np.searchsorted(grid, side) for grid, side in zip(grids, lengths.T, strict=True)]
    cost = grids[0][:, None] + grids[1]  # (S values, T values)
    places = cell[0] * cost.shape[1] + cell[1]
    pairs = np.bincount(places, pairs, cost.size).astype(np.int64).reshape(cost.shape)

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


def _quantiles(lengths: np.ndarray, pairs: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Returns `np.quantile(lengths, shares, method="higher")` of lengths that occur `pairs` times each."""
    order = lengths.argsort()
    last = pairs[order].cumsum()
    return lengths[order][last.searchsorted(np.ceil((last[-1] - 1) * shares), side="right")]


def assign_buckets(lengths: np.ndarray, buckets: list[tuple[int, int]]) -> np.ndarray:
    """Returns for each pair the index of the smallest bucket that it fits into (N,)."""
    home = np.zeros(len(lengths), np.int32)
    for index in reversed(range(len(buckets))):
        home[(lengths <= buckets[index]).all(axis=1)] = index
    return home


def plan_batches(
    counts: np.ndarray, buckets: list[tuple[int, int]], steps: list[int]
) -> tuple[list[int], list[int | None], int]:
    """Plans the batches of an epoch.

    The rows of a bucket's last, incomplete step move to a larger bucket if that gives fewer positions than filling
    the step with empty rows.

    Args:
        counts: Number of pairs in each bucket.
        buckets: The rectangles (S, T), smallest first.
        steps: Rows of one step in each bucket.

    Returns:
        (number of steps in each bucket, index of the bucket that its leftover rows move to or None, number of
        positions of an epoch).
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


def checked_boundaries(boundaries: Any) -> tuple[list[tuple[int, int]] | None, int]:
    """Returns given boundaries as sorted pairs, or None and the number of buckets to choose."""
    whole = (int, np.integer)
    if boundaries is None or isinstance(boundaries, whole):
        count = 8 if boundaries is None else int(boundaries)
        if not 1 <= count <= 100:
            raise ValueError(f"Expected 1 to 100 buckets. Received: bucket_boundaries={count}")
        return None, count
    pairs = {(b, b) if isinstance(b, whole) else tuple(b) for b in boundaries}
    pairs = {tuple(int(b) if isinstance(b, whole) else b for b in pair) for pair in pairs}
    pairs = sorted(pairs, key=lambda pair: (sum(pair), pair))
    if not pairs or min(min(pair) for pair in pairs) < 2 or pairs[-1] != tuple(map(max, zip(*pairs, strict=True))):
        raise ValueError(
            "Expected bucket_boundaries of 2 or more, ints or pairs (S, T), one of them the longest on both sides. "
            f"Received: {boundaries!r}"
        )
    return pairs, len(pairs)


class Batch(NamedTuple):
    """A batch.

    Attributes:
        bucket: int, its bucket.
        rows: int (pairs,), the numbers of its pairs.
        pass_number: int, of the pass over the data that it belongs to.
    """

    bucket: int
    rows: np.ndarray
    pass_number: int


class BatchOrder(NamedTuple):
    """The batches of each epoch: a pure function of a plan, the arguments of `ParallelDataset` and the epoch."""

    plan: BatchPlan
    shuffle: bool
    curriculum_epochs: int
    batches_per_epoch: int | None
    seed: int
    shard: tuple[int, int]

    def of_epoch(self, epoch: int) -> list[Batch]:
        """Returns the batches of an epoch, 0 or more."""
        return self._pass(epoch) if self.batches_per_epoch is None else self._part(epoch)

    def _part(self, epoch: int) -> list[Batch]:
        """Returns the batches of an epoch of `batches_per_epoch`."""
        size, length = self.batches_per_epoch, sum(self.plan.batches)
        first, last, batches = epoch * size, (epoch + 1) * size, []
        for number in range(first // length, -(-last // length)):
            start = number * length
            batches += self._pass(number)[max(0, first - start) : last - start]
        self._vary_first_two(batches)
        return batches

    def _pass(self, number: int) -> list[Batch]:
        """Returns the batches of a pass over the data for this shard."""
        random = np.random.default_rng((self.seed, number)) if self.shuffle else None
        index, count = self.shard
        pools, batches = list(self.plan.members), []
        for bucket, (size, _, _) in enumerate(self.plan.shapes):
            pool, step = pools[bucket], size * count
            if random is not None:
                pool = random.permutation(pool)
            whole = len(pool) if self.plan.moves[bucket] is None else len(pool) // step * step
            if whole < len(pool):
                larger = self.plan.moves[bucket]
                pools[larger] = np.concatenate([pools[larger], pool[whole:]])
            batches += [Batch(bucket, pool[i : i + step][index::count], number) for i in range(0, whole, step)]
        if random is not None and number >= self.curriculum_epochs:
            batches = [batches[i] for i in random.permutation(len(batches))]
        self._vary_first_two(batches)
        return batches

    def _vary_first_two(self, batches: list[Batch]) -> None:
        """Moves two batches to the front that differ in S, if any do, and in T, if any do.

        Keras on TensorFlow assumes that an axis is static if the first two batches agree on it, and then fails at
        a later batch.
        """
        first = {}
        for position, batch in enumerate(batches):
            first.setdefault(batch.bucket, position)
        varying = {axis for axis in (1, 2) if len({self.plan.shapes[bucket][axis] for bucket in first}) > 1}
        for one, other in itertools.combinations(first, 2):
            if all(self.plan.shapes[one][axis] != self.plan.shapes[other][axis] for axis in varying):
                for place, position in enumerate(sorted((first[one], first[other]))):
                    batches[place], batches[position] = batches[position], batches[place]
                return
