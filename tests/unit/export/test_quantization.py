"""Quantized weights: the rounding error; tests/export/test_quantization.py has the graph."""

import keras
import numpy as np
import pytest

from keras_attn.saving import quantization, rounded_model
from tests.export.small import build


@pytest.mark.parametrize("axis", [0, 1])
def test_int8_scales_along_the_axis_that_loses_least(rng, axis):
    """Rows or columns of very different size: with a scale of its own each loses half a step of 127 at most."""
    shape = (41, 43)
    sizes = np.append(np.logspace(0, -2, shape[axis] - 1), 0)
    matrix = (rng.normal(size=shape) * np.expand_dims(sizes, 1 - axis)).astype("float32")
    found = quantization.quantize_matrix(matrix, "int8")
    assert found.values.dtype == np.int8
    assert found.scale.shape == tuple(size if i == axis else 1 for i, size in enumerate(shape))
    largest = np.abs(matrix).max(axis=1 - axis, keepdims=True)
    assert (np.abs(quantization.dequantized(found) - matrix) <= largest / 254 * 1.001).all()


def test_float16_is_the_nearest_half(rng):
    matrix = rng.normal(size=(7, 5)).astype("float32")
    found = quantization.dequantized(quantization.quantize_matrix(matrix, "float16"))
    np.testing.assert_array_equal(found, matrix.astype("float16"))
    assert np.abs(found - matrix).max() > 0


def test_a_model_keeps_its_vectors_and_small_matrices(monkeypatch):
    translator = build("word")
    monkeypatch.setattr(quantization, "MIN_SIZE", 100)
    rounded = rounded_model(translator.model, "int8")
    changed = 0
    for old, new in zip(translator.model.weights, rounded.weights, strict=True):
        same = np.array_equal(keras.ops.convert_to_numpy(old), keras.ops.convert_to_numpy(new))
        assert same or (len(old.shape) > 1 and np.prod(old.shape) >= 100)
        changed += not same
    assert changed > 5
    assert rounded_model(translator.model, None) is translator.model
