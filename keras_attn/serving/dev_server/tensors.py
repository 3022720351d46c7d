"""Signatures: the dtypes and shapes of their tensors, and the checks of a request's arrays."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from keras_attn.serving.dev_server.errors import invalid

DEFAULT_SIGNATURE = "serving_default"


class Tensor(NamedTuple):
    """The dtype and shape of a tensor.

    Args:
        dtype: object for strings, whose elements are bytes.
        shape: None for an axis of any size; None instead of a tuple for any number of axes.
    """

    dtype: np.dtype
    shape: tuple[int | None, ...] | None

    def accepts(self, shape: tuple[int, ...]) -> bool:
        if self.shape is None:
            return True
        return len(self.shape) == len(shape) and all(
            size in (None, actual) for size, actual in zip(self.shape, shape, strict=True)
        )

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" of shape {written(self.shape)}"
        return f"{type_name(self.dtype)}{shape}"


class Signature(NamedTuple):
    """The inputs and outputs of one of a model's functions. `defaults` are the inputs that may be omitted."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    defaults: frozenset[str] = frozenset()

    @property
    def is_batched(self) -> bool:
        """Whether requests can be joined along axis 0, and their outputs split there."""
        tensors = [*self.inputs.values(), *self.outputs.values()]
        return all(tensor.shape and tensor.shape[0] is None for tensor in tensors)

    def check_names(self, names: Iterable[str]) -> None:
        """Checks that no input is unknown or missing.

        Raises:
            RequestError: INVALID_ARGUMENT, with the names of the inputs.
        """
        names, known = set(names), set(self.inputs)
        if names - known or known - names - self.defaults:
            raise invalid(f"Expected the inputs: {_listed(known)}. Received: {_listed(names) or 'none'}")

    def check(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Checks names, dtypes and shapes of arrays.

        Raises:
            RequestError: INVALID_ARGUMENT, with what was expected.
        """
        self.check_names(inputs)
        for name, array in inputs.items():
            tensor = self.inputs[name]
            if array.dtype != tensor.dtype or not tensor.accepts(array.shape):
                raise invalid(f"Expected {name} to be {tensor}. Received: {Tensor(array.dtype, array.shape)}")
        if self.is_batched and len({len(array) for array in inputs.values()}) > 1:
            counts = ", ".join(f"{name} {len(array)}" for name, array in sorted(inputs.items()))
            raise invalid(f"Expected as many rows of each input. Received: {counts}")

    def estimated_bytes(self, inputs: Mapping[str, np.ndarray]) -> int:
        """Returns about the most bytes that the outputs can have.

        An axis of any size is taken to be as long as the longest text, with a token for each of its bytes and its end.
        """
        rows = max((len(array) for array in inputs.values() if array.ndim), default=1)
        length = longest(inputs) + 1
        sizes = [tensor.dtype.itemsize * _elements(tensor, rows, length) for tensor in self.outputs.values()]
        return sum(sizes)


def longest(inputs: Mapping[str, np.ndarray]) -> int:
    """Returns the length of the longest text in bytes, or of the longest row of numbers."""
    sizes = [
        max(map(len, x.flat), default=0) if x.dtype.kind == "O" else math.prod(x.shape[1:]) for x in inputs.values()
    ]
    return max(sizes, default=0)


def least_bytes(outputs: Mapping[str, np.ndarray]) -> int:
    """Returns about the number of bytes of an answer, of which JSON needs more."""
    return sum(sum(map(len, x.flat)) + 2 * x.size if x.dtype.kind == "O" else x.nbytes for x in outputs.values())


def _elements(tensor: Tensor, rows: int, length: int) -> int:
    if not tensor.shape:
        return 1
    return (tensor.shape[0] or rows) * math.prod(length if size is None else size for size in tensor.shape[1:])


def type_name(dtype: np.dtype) -> str:
    return "string" if dtype.kind == "O" else str(dtype)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def written(shape: tuple[int | None, ...]) -> str:
    """A shape, for an error message."""
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"
