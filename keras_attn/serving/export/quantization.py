"""A model's matrices in fewer bits, and what is then left of them, on any backend.

    int8:     w_ij ~ s_j q_ij,  s_j = max_i |w_ij| / 127,  q_ij = round(w_ij / s_j)
    float16:  w_ij ~ half(w_ij)

j runs along the axis, of all the matrix has, that leaves the smallest squared error: as a rule the tokens of an
embedding and the outputs of a projection. Vectors (biases, gains) stay as they are.
"""

from typing import NamedTuple

import numpy as np

LEAST = 1024  # elements: there is nothing to gain from smaller matrices


class Stored(NamedTuple):
    """A matrix in fewer bits. `values * scale` in float32, with broadcasting, is what is left of it."""

    values: np.ndarray  # int8 or float16, of the matrix's shape
    scale: np.ndarray  # float32, of size 1 but for one axis


def is_stored(weight) -> bool:
    """Whether a weight is stored in fewer bits at all."""
    return len(weight.shape) > 1 and int(np.prod(weight.shape)) >= LEAST and "float" in str(weight.dtype)


def stored(matrix: np.ndarray, quantize: str) -> Stored:
    """The matrix in fewer bits."""
    matrix = np.asarray(matrix, "float32")
    if quantize == "float16":
        return Stored(matrix.astype("float16"), np.ones((1,) * matrix.ndim, "float32"))
    candidates = [_int8(matrix, axis) for axis in range(matrix.ndim)]
    return min(candidates, key=lambda one: float(np.square(widened(one) - matrix).sum()))


def widened(one: Stored) -> np.ndarray:
    """Back to float32, by the operations that the graph uses."""
    return one.values.astype("float32") * one.scale


def rounded(model, quantize: str | None):
    """A copy of the model with the weights that are left of them; with None the model itself."""
    if quantize is None:
        return model
    copy = type(model).from_config(model.get_config())
    pairs = zip(model.weights, model.get_weights(), strict=True)
    copy.set_weights([widened(stored(w, quantize)) if is_stored(weight) else w for weight, w in pairs])
    return copy


def stored_size(model, quantize: str | None) -> int:
    """Bytes that the weights take in a SavedModel, on the TensorFlow backend."""
    size = 0
    for weight in model.weights:
        count = int(np.prod(weight.shape))
        if quantize and is_stored(weight):  # with the longest scale that it can have
            size += count * {"int8": 1, "float16": 2}[quantize] + 4 * max(weight.shape)
        else:
            size += count * weight.value.dtype.size
    return size


def _int8(matrix: np.ndarray, axis: int) -> Stored:
    others = tuple(i for i in range(matrix.ndim) if i != axis)
    largest = np.abs(matrix).max(axis=others, keepdims=True)
    scale = np.where(largest > 0, largest / 127, 1).astype("float32")
    return Stored(np.clip(np.rint(matrix / scale), -127, 127).astype("int8"), scale)
