"""Tensors in any structure as NumPy arrays, and whether two structures hold the same."""

import keras
import numpy as np
from keras import ops


def numpy_of(structure):
    """A list of the leaves."""
    return [ops.convert_to_numpy(x) for x in keras.tree.flatten(structure)]


def same(found, expected, atol=1e-5):
    for one, other in zip(numpy_of(found), numpy_of(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=atol)
