"""Buckets: the few rectangles (S, T) that batches are padded to, chosen so that few positions are padding."""

from typing import Any

import numpy as np


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
