"""Weight quantization: a model's matrices stored in fewer bits, on any backend.

    int8:     w_ij ~ s_j q_ij,  s_j = max_i |w_ij| / 127,  q_ij = round(w_ij / s_j)
    float16:  w_ij ~ half(w_ij)

j runs along the axis that gives the smallest squared error, usually the tokens of an embedding and the outputs of a
projection. Vectors (biases, gains) are not quantized.
"""

from typing import NamedTuple

import numpy as np

from keras_attn.backend import set_weights
from keras_attn.models import copy_model

MIN_SIZE = 1024  # elements; quantizing smaller matrices gains nothing


class QuantizedMatrix(NamedTuple):
    """A quantized matrix. It stands for `values * scale` in float32, with broadcasting."""

    values: np.ndarray  # int8 or float16, in the matrix's shape
    scale: np.ndarray  # float32, of size 1 except along one axis


def is_quantized(weight) -> bool:
    """Returns True for the weights that are quantized: matrices of at least 1,024 numbers.

    Args:
        weight: A variable or an array.

    Example:
        >>> keras_attn.saving.is_quantized(np.zeros((32, 32))), keras_attn.saving.is_quantized(np.zeros(2000))
        (True, False)
    """
    return len(weight.shape) > 1 and int(np.prod(weight.shape)) >= MIN_SIZE and "float" in str(weight.dtype)


def quantize_matrix(matrix: np.ndarray, quantize: str) -> QuantizedMatrix:
    """Quantizes a matrix to "int8" or "float16".

    Args:
        matrix: A float32 array.
        quantize: "int8", with a scale for each row or column, or "float16".

    Returns:
        A `QuantizedMatrix`.

    Example:
        >>> matrix = np.random.default_rng(1).normal(size=(50, 30)).astype("float32")
        >>> values, scale = keras_attn.saving.quantize_matrix(matrix, "int8")
        >>> values.dtype.name, bool(np.abs(values * scale - matrix).max() < 0.02)
        ('int8', True)
    """
    matrix = np.asarray(matrix, "float32")
    if quantize == "float16":
        return QuantizedMatrix(matrix.astype("float16"), np.ones((1,) * matrix.ndim, "float32"))
    candidates = [_int8(matrix, axis) for axis in range(matrix.ndim)]
    return min(candidates, key=lambda candidate: float(np.square(dequantized(candidate) - matrix).sum()))


def dequantized(matrix: QuantizedMatrix) -> np.ndarray:
    """Returns the float32 matrix, computed with the same operations as in the graph."""
    return matrix.values.astype("float32") * matrix.scale


def rounded_model(model, quantize: str | None):
    """Returns a copy of a model with the weights that it has after quantization; with None the model itself.

    Args:
        model: A `keras.Model`.
        quantize: "int8", "float16" or None.

    Example:
        >>> keras_attn.saving.rounded_model(model, None) is model
        True
    """
    if quantize is None:
        return model
    copy = copy_model(model, model.name)
    pairs = zip(copy.weights, copy.get_weights(), strict=True)
    set_weights(copy, [dequantized(quantize_matrix(w, quantize)) if is_quantized(v) else w for v, w in pairs])
    return copy


def _int8(matrix: np.ndarray, axis: int) -> QuantizedMatrix:
    others = tuple(i for i in range(matrix.ndim) if i != axis)
    largest = np.abs(matrix).max(axis=others, keepdims=True)
    scale = np.where(largest > 0, largest / 127, 1).astype("float32")
    return QuantizedMatrix(np.clip(np.rint(matrix / scale), -127, 127).astype("int8"), scale)
