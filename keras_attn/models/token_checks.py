"""A check of the token ids that `fit`, `evaluate` and `predict` receive: they must be in the model's vocabularies.

The backends differ in what an id outside the vocabulary does: an error, NaN, or a wrong loss without a word. So ids
are checked where they are still arrays of NumPy, which takes microseconds a batch and nothing on the device:

* arrays and lists, before the first step;
* a `keras_attn.ParallelDataset`, or any dataset with the attribute `largest_token_ids`, once;
* every batch of another `keras.utils.PyDataset` and of a generator, as it is drawn.

Tensors of a backend, `tf.data` and torch's `DataLoader` are passed on unchecked.
"""

import contextlib
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import keras
import numpy as np


class TokenIdCheck:
    """Refuses ids outside the vocabularies of a model.

    Args:
        source_vocabulary_size, target_vocabulary_size: Sizes of the vocabularies.
        pointer: Whether a source of S words adds S temporary ids to them.
    """

    def __init__(self, source_vocabulary_size: int, target_vocabulary_size: int, pointer: bool = False):
        self.pointer = pointer
        self.sizes = {
            "encoder_token_ids": source_vocabulary_size,
            "decoder_token_ids": target_vocabulary_size,
            "labels": target_vocabulary_size,
        }
        self.error: ValueError | None = None  # of a batch, since TensorFlow reports its own in the place of it

    def data(self, x: Any, y: Any = None) -> Any:
        """Returns `x`, the first argument of `fit`, checked, or as a dataset whose batches are checked."""
        if (largest := getattr(x, "largest_token_ids", None)) is not None:
            for name, largest_id in zip(("encoder_token_ids", "labels"), largest, strict=True):
                self._refuse(name, 0, largest_id, max(source for _, source, _ in x.shapes) if self.pointer else 0)
            return x
        if isinstance(x, keras.utils.PyDataset):
            return _CheckedDataset(x, self)
        if isinstance(x, GeneratorType):
            return (self.batch(batch) for batch in x)
        self.batch((x, y))
        return x

    def validation_data(self, data: Any) -> Any:
        """Returns the `validation_data` of `fit`, as `data` does."""
        return self.batch(data) if isinstance(data, tuple) else self.data(data)

    def batch(self, batch: Any) -> Any:
        """Returns a batch, `(inputs, labels, ...)` or inputs alone, if its ids are in the vocabularies.

        Raises:
            ValueError: if an id is not.
        """
        inputs, labels, *_ = (*batch, None) if isinstance(batch, (tuple, list)) else (batch, None)
        names = [name for name in self.sizes if name != "labels"]
        if isinstance(inputs, (tuple, list)) and len(inputs) == len(names):
            inputs = dict(zip(names, inputs, strict=True))
        arrays = {name: inputs.get(name) for name in names} if isinstance(inputs, dict) else {}
        source = np.shape(arrays.get("encoder_token_ids"))[1:] if self.pointer else ()
        for name, array in (arrays | {"labels": labels}).items():
            if isinstance(array, list):
                array = np.asarray(array)
            if isinstance(array, np.ndarray) and array.dtype.kind in "iuf" and array.size:
                self._refuse(name, array.min(), array.max(), *source)
        return batch

    @contextlib.contextmanager
    def reported(self) -> Iterator[None]:
        """Raises the error of a batch instead of what a backend makes of it."""
        try:
            yield
        except Exception:
            if self.error is None:
                raise
            raise self.error from None

    def _refuse(self, name: str, lowest: float, highest: float, temporary: int = 0) -> None:
        size = self.sizes[name] + temporary
        if not (lowest >= 0 and highest < size):
            received = highest if lowest >= 0 else lowest
            self.error = ValueError(
                f"Expected {name} from 0 to {size - 1}, the ids of the model's vocabulary. Received: {received}"
            )
            raise self.error


class _CheckedDataset(keras.utils.PyDataset):
    """Another dataset whose batches are checked as they are drawn."""

    def __init__(self, dataset: keras.utils.PyDataset, check: TokenIdCheck):
        queue = {name: getattr(dataset, name) for name in ("workers", "use_multiprocessing", "max_queue_size")}
        super().__init__(**queue)
        self.dataset, self.check = dataset, check

    def __getitem__(self, index):
        return self.check.batch(self.dataset[index])

    @property
    def num_batches(self):
        return self.dataset.num_batches

    def on_epoch_begin(self):
        self.dataset.on_epoch_begin()

    def on_epoch_end(self):
        self.dataset.on_epoch_end()
