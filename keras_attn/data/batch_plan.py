"""The plan of a dataset: the shapes of its batches and the pairs of each bucket, kept beside the token files."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_attn import files
from keras_attn.data.bucketing import assign_buckets, checked_boundaries, choose_buckets, plan_batches
from keras_attn.data.token_store import MANIFEST, SIDES, TokenStore
from keras_attn.text import DEFAULT_IDS

_FORMAT = 1  # of the files of plans
_MOST_PLANS = 8  # beside one pair of token files
_PART = 1 << 20  # pairs whose lengths are in memory at a time
_LONGEST_HEADER = 1 << 20  # bytes


class PlanOptions(NamedTuple):
    """The arguments of `ParallelDataset` that decide the plan."""

    batch_size: int | None
    tokens_per_batch: int | None
    bucket_boundaries: Any
    max_length: int | None
    on_too_long: str
    shards: int


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """What all epochs of a dataset have in common.

    Attributes:
        shapes: list of (B, S, T), the shape of each bucket in one shard.
        batches: list of int, steps of each bucket.
        moves: list of int or None, the bucket that a bucket's leftover pairs move to.
        members: list of int (pairs,), the numbers of the pairs in each bucket, in order.
        report: dict, see `ParallelDataset.report`.
        largest_token_ids: (int, int), the largest id of each side.
    """

    shapes: list[tuple[int, int, int]]
    batches: list[int]
    moves: list[int | None]
    members: list[np.ndarray]
    report: dict[str, int | float]
    largest_token_ids: tuple[int, int]


def batch_plan(sides: tuple[TokenStore, TokenStore], options: PlanOptions) -> BatchPlan:
    """Returns the plan for two sides: the one that is kept beside their files, or a new one, which is then kept.

    A plan that is damaged, or that belongs to other token files, is made anew.

    Raises:
        ValueError: If no pair is left, or tokens_per_batch is less than the longest row.
    """
    path = _path(sides, options)
    if path is None:
        return _make(sides, options)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        return _read(path)
    plan = _make(sides, options)
    with contextlib.suppress(OSError):  # without it the plan is made again at the next opening
        _write(plan, path)
    return plan


def _make(sides: tuple[TokenStore, TokenStore], options: PlanOptions) -> BatchPlan:
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
    for start, part, present, long in _parts(sides, limits):
        kept = present & ~long if options.on_too_long == "drop" else present
        numbers = (start + np.flatnonzero(kept)).astype(kind)
        home = assign_buckets(np.minimum(part[kept], limits), buckets)
        for bucket, found in enumerate(members):
            found.append(numbers[home == bucket])
    return BatchPlan(
        [(step // options.shards, *bucket) for step, bucket in zip(steps, buckets, strict=True)],
        batches,
        moves,
        [np.concatenate(found) for found in members],
        report,
        (sides[0].largest_id, sides[1].largest_id),
    )


def _parts(sides: tuple[TokenStore, TokenStore], limits: np.ndarray) -> Iterator[tuple[int, np.ndarray, ...]]:
    """Yields the lengths with the end (n, 2) of some pairs at a time, and which are present and which too long (n,)."""
    for start in range(0, len(sides[0]), _PART):
        part = np.stack([side.lengths(start, start + _PART) + side.ends for side in sides], axis=1)  # (n, 2)
        present = (part > [side.ends for side in sides]).all(axis=1)
        yield start, part, present, present & (part > limits).any(axis=1)


def _histogram(
    sides: tuple[TokenStore, TokenStore], limits: np.ndarray, on_too_long: str
) -> tuple[np.ndarray, np.ndarray, dict[str, int | float]]:
    """Returns the lengths (U, 2) that occur among the pairs to keep, how many pairs have each (U,), and the report."""
    codes, counts, present_count, long_count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0, 0
    for _, part, present, long in _parts(sides, limits):
        kept = present & ~long if on_too_long == "drop" else present
        part = np.minimum(part[kept], limits).astype(np.int64)
        found = np.unique(part[:, 0] << 32 | part[:, 1], return_counts=True)
        codes.append(found[0])
        counts.append(found[1])
        present_count += int(present.sum())
        long_count += int(long.sum())
    codes, places = np.unique(np.concatenate(codes), return_inverse=True)
    pairs = np.bincount(places, np.concatenate(counts), len(codes)).astype(np.int64)  # (U,)
    lengths = np.stack([codes >> 32, codes & (2**32 - 1)], axis=1)  # (U, 2)
    blank = len(sides[0]) - present_count
    if not len(codes):
        raise ValueError(
            f"Expected at least one pair with text on both sides. Received: {len(sides[0]):,} pairs, of which "
            f"{blank:,} are blank and {long_count:,} longer than the limit"
        )
    return (
        lengths,
        pairs,
        {
            "pairs": int(pairs.sum()),
            "dropped_blank": blank,
            "dropped_too_long": long_count if on_too_long == "drop" else 0,
            "truncated": long_count if on_too_long == "truncate" else 0,
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


def _path(sides: tuple[TokenStore, TokenStore], options: PlanOptions) -> Path | None:
    """Returns the file of a plan; None where the sides are not the two of one folder."""
    prefixes = [side.prefix for side in sides]
    if None in prefixes or prefixes != [prefixes[0].with_name(side) for side in SIDES]:
        return None
    folder = prefixes[0].parent
    checked = checked_boundaries(options.bucket_boundaries)
    identity = [_FORMAT, files.sha256(folder / MANIFEST), checked, options._replace(bucket_boundaries=checked)]
    special = [side.special_ids for side in sides]
    if special != [DEFAULT_IDS, DEFAULT_IDS]:  # else the names are those of plans that were made without them
        identity += [ids.get_config() for ids in special]
    name = hashlib.sha256(json.dumps(identity, default=int).encode()).hexdigest()[:16]
    return folder / f"{name}.plan"


def _write(plan: BatchPlan, path: Path) -> None:
    """A line with the SHA-256 of the next, a line of JSON with the rest and the SHA-256 of the pairs, and the pairs."""
    pairs = np.concatenate(plan.members)
    header = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    header |= {"members": [len(members) for members in plan.members], "dtype": pairs.dtype.str}
    header |= {"sha256": hashlib.sha256(pairs).hexdigest()}
    line = json.dumps(header).encode()
    line += b" " * (-(64 + 1 + len(line) + 1) % pairs.itemsize) + b"\n"  # so that the pairs are aligned
    with files.replacing(path) as new:
        new.write_bytes(hashlib.sha256(line).hexdigest().encode() + b"\n" + line + pairs.tobytes())
    plans = sorted(path.parent.glob("*.plan"), key=lambda one: one.stat().st_mtime_ns)
    for old in plans[:-_MOST_PLANS]:
        old.unlink(missing_ok=True)


def _read(path: Path) -> BatchPlan:
    if not path.is_file():
        raise ValueError(f"Expected {path} to be a file.")
    with path.open("rb") as file:
        digest, line = file.readline(65).decode().strip(), file.readline(_LONGEST_HEADER)
        start = file.tell()
        if hashlib.sha256(line).hexdigest() != digest:
            raise ValueError(f"Expected {path} as it was written.")
        header = json.loads(line)
        size = sum(header["members"]) * np.dtype(header["dtype"]).itemsize
        is_whole = path.stat().st_size == start + size
        if not is_whole or hashlib.file_digest(file, "sha256").hexdigest() != header.pop("sha256"):
            raise ValueError(f"Expected {path} as it was written.")
    counts = header.pop("members")
    pairs = np.asarray(np.memmap(path, header.pop("dtype"), "r", start))
    return BatchPlan(
        [tuple(shape) for shape in header.pop("shapes")],
        largest_token_ids=tuple(header.pop("largest_token_ids")),
        members=np.split(pairs, np.cumsum(counts)[:-1]),
        **header,
    )


def check_options(optional, on_too_long, curriculum_epochs, seed, shard) -> None:
    """Raises ValueError for arguments of `ParallelDataset` that are out of range."""
    batch_size, tokens_per_batch, max_length, batches_per_epoch = optional.values()
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
    if batches_per_epoch is not None and batches_per_epoch < 1:
        raise ValueError(f"Expected batches_per_epoch of 1 or more. Received: {batches_per_epoch}")
    if on_too_long not in ("drop", "truncate"):
        raise ValueError(f"Expected on_too_long to be 'drop' or 'truncate'. Received: {on_too_long!r}")
    if curriculum_epochs < 0:
        raise ValueError(f"Expected curriculum_epochs of 0 or more. Received: {curriculum_epochs}")
    if seed < 0:
        raise ValueError(f"Expected seed of 0 or more. Received: {seed}")
    if isinstance(shard, str) or not 0 <= shard[0] < shard[1]:
        raise ValueError(f"Expected shard 'auto', or (index, count) with 0 <= index < count. Received: {shard!r}")
