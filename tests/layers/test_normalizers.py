"""Hardmax and sparsemax where scores are equal or far apart; tests/contracts has the equations and gradients."""

import numpy as np
from keras import ops

from keras_attn.layers import hardmax


def test_hardmax_takes_the_first_of_the_highest():
    rows = np.array([[1.0, 3.0, 3.0], [-1.0, -2.0, -3.0]], "float32")
    np.testing.assert_array_equal(ops.convert_to_numpy(hardmax(rows)), [[0, 1, 0], [1, 0, 0]])
