"""Hardmax and sparsemax where scores are equal or far apart; tests/contracts has the equations and gradients."""

import numpy as np
from keras import ops

from keras_attn.layers import hardmax, sparsemax


def test_sparsemax_by_hand():
    """0.1 apart: (1 + 0.1) / 2 and (1 - 0.1) / 2; more than 1 apart: hard; equal: uniform."""
    rows = np.array([[1.0, 0.9, -5.0], [3.0, 1.5, 1.0], [2.0, 2.0, 2.0]], "float32")
    found = ops.convert_to_numpy(sparsemax(rows))
    np.testing.assert_allclose(found, [[0.55, 0.45, 0], [1, 0, 0], [1 / 3] * 3], atol=1e-6)


def test_hardmax_takes_the_first_of_the_highest():
    rows = np.array([[1.0, 3.0, 3.0], [-1.0, -2.0, -3.0]], "float32")
    np.testing.assert_array_equal(ops.convert_to_numpy(hardmax(rows)), [[0, 1, 0], [1, 0, 0]])
