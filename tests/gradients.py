"""The gradient of a scalar function of arrays, on whichever backend runs; compiled by XLA or not on TensorFlow."""

import keras
import numpy as np


def gradients(function, *arrays, jit_compile=False):
    """`d function(*tensors) / d arrays` as NumPy arrays; `function` returns a scalar tensor."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        run = jax.jit(jax.grad(function, argnums=tuple(range(len(arrays)))))
        return [np.asarray(g) for g in run(*[jax.numpy.asarray(a) for a in arrays])]
    if backend == "torch":
        import torch

        tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
        return [g.numpy() for g in torch.autograd.grad(function(*tensors), tensors)]
    import tensorflow as tf

    @tf.function(jit_compile=jit_compile)
    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = function(*tensors)
        return tape.gradient(result, tensors)

    return [g.numpy() for g in run(*[tf.constant(a) for a in arrays])]


def numeric_gradients(function, *arrays, eps=1e-3):
    """The same by central differences, one coordinate at a time; `function` maps arrays to a float."""
    result = []
    for i, array in enumerate(arrays):
        gradient = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            values = []
            for sign in (1, -1):
                moved = array.copy()
                moved[index] += sign * eps
                values.append(float(function(*arrays[:i], moved, *arrays[i + 1 :])))
            gradient[index] = (values[0] - values[1]) / (2 * eps)
        result.append(gradient)
    return result
