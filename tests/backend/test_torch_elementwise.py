"""tanh and exp by other functions of torch: their errors, gradients, and where Keras' own are used."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.backend import exp, tanh, torch_elementwise

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="the functions are torch's")


def test_errors_are_those_of_float32():
    x = np.linspace(-20, 20, 100_001, dtype="float32")
    exact = x.astype("float64")
    tensor = ops.convert_to_tensor(x)
    assert np.abs(tanh(tensor).numpy() - np.tanh(exact)).max() < 2.5e-7
    assert np.abs(exp(tensor).numpy() / np.exp(exact) - 1).max() < 2e-6


def test_ends_of_the_range():
    x = ops.convert_to_tensor(np.array([-np.inf, -1e30, 0, 1e30, np.inf, np.nan], "float32"))
    np.testing.assert_array_equal(tanh(x).numpy(), [-1, -1, 0, 1, 1, np.nan])
    np.testing.assert_array_equal(exp(x).numpy(), [0, 0, 1, np.inf, np.inf, np.nan])


def test_gradients_of_tanh_are_numpys(rng):
    """Of first and second order."""
    import torch

    x = rng.normal(size=50).astype("float32")
    tensor = torch.tensor(x, requires_grad=True)
    (first,) = torch.autograd.grad(tanh(tensor).sum(), tensor, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), tensor)
    y = np.tanh(x.astype("float64"))
    np.testing.assert_allclose(first.detach(), 1 - y**2, atol=1e-6)
    np.testing.assert_allclose(second, -2 * y * (1 - y**2), atol=2e-6)
    each = torch.func.vmap(torch.func.grad(tanh))(torch.tensor(x))
    np.testing.assert_allclose(each, 1 - y**2, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32"])
def test_other_dtypes_are_left_to_torch(dtype):
    x = ops.convert_to_tensor(np.arange(-3, 4), dtype=dtype)
    assert not torch_elementwise.is_served(x)
    for own, numpys in ((tanh, np.tanh), (exp, np.exp)):
        np.testing.assert_allclose(
            ops.convert_to_numpy(own(x)).astype("float64"), numpys(np.arange(-3.0, 4)), rtol=1e-2
        )
    assert keras.backend.standardize_dtype(tanh(x).dtype) == (dtype if dtype != "int32" else "float32")
