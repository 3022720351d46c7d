"""Reads and writes at known places against NumPy, eagerly and compiled."""

import numpy as np
import pytest
from keras import ops

from keras_attn.backend import put, take, take_in_rows
from tests.search.searching import MODES, compiled_tensors

X = np.random.default_rng(0).normal(size=(5, 7, 3)).astype("float32")
PLACES = {"scalar": np.array(4), "vector": np.array([3, 0, 3, 2]), "matrix": np.array([[1, 4], [0, 2], [2, 2]])}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rank", PLACES)
def test_take(rank, mode):
    places = PLACES[rank].astype("int32")
    for axis in (0, 1):
        found = compiled_tensors(lambda x, at, axis=axis: take(x, at, axis), mode)(X, places)
        np.testing.assert_array_equal(found, np.take(X, places, axis))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_take_in_rows(dtype, mode):
    places = np.array([[6, 0], [1, 1], [2, 5], [0, 6], [3, 3]], dtype)
    for x in (X[:, :, 0], (100 * X[:, :, 1]).astype("int32")):
        found = compiled_tensors(take_in_rows, mode)(x, places)
        np.testing.assert_array_equal(found, np.take_along_axis(x, places, 1))


@pytest.mark.parametrize("mode", MODES)
def test_put(mode):
    for place in (0, 4):
        update = np.full((7, 3), 9.0, "float32")
        found = compiled_tensors(put, mode)(X, np.array(place, "int32"), update)
        expected = X.copy()
        expected[place] = update
        np.testing.assert_array_equal(found, expected)
    assert not (X == 9).any()  # nothing was written in place


def test_places_keep_the_dtype_of_what_is_read():
    for dtype in ("int32", "float32", "bool", "float16"):
        x = ops.ones((3, 2), dtype=dtype)
        places = ops.zeros((3, 1), dtype="int32")
        for found in (take(x, places[:, 0]), take_in_rows(x, places), put(x, places[0, 0], x[1])):
            assert found.dtype == x.dtype
