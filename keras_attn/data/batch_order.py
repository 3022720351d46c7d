"""Which pairs the batches of an epoch have, and in which order they come."""

import itertools
from typing import NamedTuple

import numpy as np

from keras_attn.data.batch_plan import BatchPlan


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


class BatchOrder:
    """The batches of each epoch: a pure function of a plan, the arguments of `ParallelDataset` and the epoch."""

    def __init__(
        self,
        plan: BatchPlan,
        *,
        shuffle: bool,
        curriculum_epochs: int,
        batches_per_epoch: int | None,
        seed: int,
        shard: tuple[int, int],
    ):
        self._plan = plan
        self._shuffle, self._curriculum_epochs = shuffle, curriculum_epochs
        self._batches_per_epoch = batches_per_epoch
        self._seed, self._shard = seed, shard

    def of_epoch(self, epoch: int) -> list[Batch]:
        """Returns the batches of an epoch, 0 or more."""
        return self._pass(epoch) if self._batches_per_epoch is None else self._part(epoch)

    def _part(self, epoch: int) -> list[Batch]:
        """Returns the batches of an epoch of `batches_per_epoch`."""
        size, length = self._batches_per_epoch, sum(self._plan.batches)
        first, last, batches = epoch * size, (epoch + 1) * size, []
        for number in range(first // length, -(-last // length)):
            start = number * length
            batches += self._pass(number)[max(0, first - start) : last - start]
        self._vary_first_two(batches)
        return batches

    def _pass(self, number: int) -> list[Batch]:
        """Returns the batches of a pass over the data for this shard."""
        random = np.random.default_rng((self._seed, number)) if self._shuffle else None
        index, count = self._shard
        pools, batches = list(self._plan.members), []
        for bucket, (size, _, _) in enumerate(self._plan.shapes):
            pool, step = pools[bucket], size * count
            if random is not None:
                pool = random.permutation(pool)
            whole = len(pool) if self._plan.moves[bucket] is None else len(pool) // step * step
            if whole < len(pool):
                larger = self._plan.moves[bucket]
                pools[larger] = np.concatenate([pools[larger], pool[whole:]])
            batches += [Batch(bucket, pool[i : i + step][index::count], number) for i in range(0, whole, step)]
        if random is not None and number >= self._curriculum_epochs:
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
        varying = {axis for axis in (1, 2) if len({self._plan.shapes[bucket][axis] for bucket in first}) > 1}
        for one, other in itertools.combinations(first, 2):
            if all(self._plan.shapes[one][axis] != self._plan.shapes[other][axis] for axis in varying):
                for place, position in enumerate(sorted((first[one], first[other]))):
                    batches[place], batches[position] = batches[position], batches[place]
                return
