"""Reads and writes at known places against NumPy, eagerly and compiled."""

import numpy as np
import pytest
from keras import ops

from keras_attn.backend import put, take, take_in_rows
from tests.search.searching import MODES, compiled_tensors

X = np.random.default_rng(0).normal(size=(5, 7, 3)).astype("float32")
PLACES = {"scalar": np.array(4), "vector": np.array([3, 0, 3, 2]), "matrix": np.array([[1, 4], [0, 2], [2, 2]])}
IN_ROWS = np.array([[6, 0], [1, 1], [2, 5], [0, 6], [3, 3]])
UPDATE = np.full((7, 3), 9.0, "float32")


@pytest.mark.parametrize("mode", MODES)
def test_places_are_read_and_written_as_by_numpy(mode):
    """Places of both integer types, at both ends; and in a tensor of integers."""

    def function(x, places, in_rows, update):
        found = {f"{name}, {axis}": take(x, at, axis) for name, at in places.items() for axis in (0, 1)}
        for n, at in enumerate(in_rows):
            found |= {f"rows, {n}": take_in_rows(x[:, :, 0], at), f"whole, {n}": take_in_rows(integers(x), at)}
        return found | {f"put, {n}": put(x, at, update) for n, at in (("4", places["scalar"]), ("0", in_rows[0][0, 1]))}

    def integers(x):
        return (100 * x[:, :, 1]).astype("int32") if isinstance(x, np.ndarray) else ops.cast(100 * x[:, :, 1], "int32")

    places = {name: at.astype("int32") for name, at in PLACES.items()}
    in_rows = [IN_ROWS.astype(dtype) for dtype in ("int32", "int64")]
    found = compiled_tensors(function, mode)(X.copy(), places, in_rows, UPDATE)
    expected = {f"{name}, {axis}": np.take(X, at, axis) for name, at in PLACES.items() for axis in (0, 1)}
    for n in range(len(in_rows)):
        expected[f"rows, {n}"] = np.take_along_axis(X[:, :, 0], IN_ROWS, 1)
        expected[f"whole, {n}"] = np.take_along_axis(integers(X), IN_ROWS, 1)
    for place in (0, 4):
        expected[f"put, {place}"] = np.concatenate([X[:place], UPDATE[None], X[place + 1 :]])
    for name, array in expected.items():
        one = ops.convert_to_numpy(found[name])
        np.testing.assert_array_equal(one, array, err_msg=name)
        assert one.dtype == array.dtype, name
