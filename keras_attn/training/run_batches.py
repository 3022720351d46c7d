"""The batches of a run: the rows of one process, from the middle of an epoch on if it was interrupted there."""

import keras

from keras_attn import ParallelDataset


class RunBatches(keras.utils.PyDataset):
    """The rows that one process has of each batch of a dataset.

    All processes make the same batches and take contiguous rows of them, so that the batches of a run, their order and
    the place of each row do not depend on the number of processes.

    Args:
        dataset: The whole batches, whose rows divide among the processes.
        shard: (index, count), the part of this process.

    Attributes:
        first: int, the number of batches that are left out at the beginning of the epoch, see `start`.
    """

    def __init__(self, dataset: ParallelDataset, shard: tuple[int, int] = (0, 1)):
        super().__init__()
        self.dataset = dataset
        self.shard = shard
        self.start(0)

    def start(self, first: int) -> None:
        """Before each `fit`: sets `first`, which counts from `begin` on.

        Until then the batches are those of the whole epoch, because Keras on TensorFlow takes the first two for its
        view of the shapes, and `ParallelDataset` lets these vary.
        """
        self.first = first
        self._offset = 0

    def begin(self, epoch: int) -> None:
        """Begins an epoch."""
        self.dataset.set_epoch(epoch)
        self._offset = self.first

    def number(self, batch: int) -> int:
        """The number of batches of the whole run after the one that Keras numbers so in this epoch."""
        return self.dataset.epoch * len(self.dataset) + self.first + batch + 1

    def __len__(self) -> int:
        return len(self.dataset) - self.first

    def __getitem__(self, index: int):
        index_of_shard, count = self.shard
        inputs, labels, weights = self.dataset[self._offset + index]
        size = len(labels) // count
        rows = slice(index_of_shard * size, (index_of_shard + 1) * size)
        return {name: ids[rows] for name, ids in inputs.items()}, labels[rows], weights[rows]

    def on_epoch_end(self) -> None:
        self.dataset.on_epoch_end()
