"""What a signature says of its tensors, and which arrays it takes."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from keras_attn.serving.dev_server.errors import Refusal

DEFAULT_SIGNATURE = "serving_default"


class Tensor(NamedTuple):
    """A string's dtype is object, whose elements are bytes. None is any size, and any number of axes."""

    dtype: np.dtype
    shape: tuple[int | None, ...] | None

    def takes(self, shape: tuple[int, ...]) -> bool:
        if self.shape is None:
            return True
        return len(self.shape) == len(shape) and all(
            size in (None, found) for size, found in zip(self.shape, shape, strict=True)
        )

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" of shape {_written(self.shape)}"
        return f"{type_name(self.dtype)}{shape}"


class Signature(NamedTuple):
    """The inputs and outputs of one of a model's functions; `defaults` are inputs that may be left out."""

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    defaults: frozenset[str] = frozenset()

    @property
    def is_batched(self) -> bool:
        """Whether requests may be joined along axis 0, and their answers parted there."""
        tensors = [*self.inputs.values(), *self.outputs.values()]
        return all(tensor.shape and tensor.shape[0] is None for tensor in tensors)

    def check_names(self, names: Iterable[str]) -> None:
        """Refuses unknown and missing inputs."""
        names, known = set(names), set(self.inputs)
        if names - known or known - names - self.defaults:
            raise invalid(f"Expected the inputs: {_listed(known)}. Received: {_listed(names) or 'none'}")

    def check(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Refuses arrays that do not fit.

        Raises:
            Refusal: INVALID_ARGUMENT, with what was expected.
        """
        self.check_names(inputs)
        for name, array in inputs.items():
            tensor = self.inputs[name]
            if array.dtype != tensor.dtype or not tensor.takes(array.shape):
                raise invalid(f"Expected {name} to be {tensor}. Received: {Tensor(array.dtype, array.shape)}")
        if self.is_batched and len({len(array) for array in inputs.values()}) > 1:
            counts = ", ".join(f"{name} {len(array)}" for name, array in sorted(inputs.items()))
            raise invalid(f"Expected as many rows of each input. Received: {counts}")


def invalid(sentence: str) -> Refusal:
    return Refusal("INVALID_ARGUMENT", sentence)


def type_name(dtype: np.dtype) -> str:
    return "string" if dtype.kind == "O" else str(dtype)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _written(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"
