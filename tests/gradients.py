"""Gradients of functions of arrays, on whichever backend runs, and float64 there."""

import contextlib

import keras
import numpy as np
from keras import ops


@contextlib.contextmanager
def wide():
    """float64, which JAX has to be asked for."""
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    with jax.enable_x64(True):
        yield


def differentiated(function, jit_compile=None):
    """`leaves -> (results, gradients)` of a function of leaves that returns a loss and results.

    Eager on TensorFlow where `jit_compile` is None; else compiled, by XLA or without it.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        compiled = jax.jit(jax.value_and_grad(function, has_aux=True))

        def differentiate(leaves):
            (loss, found), gradients = compiled(leaves)
            return {**found, "loss": loss}, gradients

    elif backend == "torch":
        import torch

        def differentiate(leaves):
            leaves = {name: x.detach().requires_grad_() for name, x in leaves.items()}
            loss, found = function(leaves)
            gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
            return {**found, "loss": loss}, dict(zip(leaves, gradients, strict=True))

    else:
        import tensorflow as tf

        def differentiate(leaves):
            with tf.GradientTape() as tape:
                tape.watch(leaves)
                loss, found = function(leaves)
            return {**found, "loss": loss}, tape.gradient(loss, leaves, unconnected_gradients="zero")

        if jit_compile is not None:
            differentiate = tf.function(differentiate, jit_compile=jit_compile)

    def run(leaves):
        found = differentiate({name: ops.convert_to_tensor(np.asarray(x)) for name, x in leaves.items()})
        return keras.tree.map_structure(ops.convert_to_numpy, found)

    return run


def gradients(function, *arrays, jit_compile=False):
    """`d function(*tensors) / d arrays` as NumPy arrays; `function` returns a scalar tensor.

    With `jit_compile` XLA compiles it on TensorFlow, too.
    """
    run = differentiated(lambda leaves: (function(*leaves.values()), {}), jit_compile)
    return list(run({str(i): array for i, array in enumerate(arrays)})[1].values())


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
