"""Inference with a compiled model, by any number of threads at once."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops, tree


def inference_function(model: keras.Model) -> Callable[[Any], Any]:
    """Returns `inputs -> outputs`, both of NumPy arrays: `model` compiled, which several threads may call at once.

    On TensorFlow this is `keras.Model.predict_on_batch`. On JAX that method donates the weights to the compiled
    program, and assigns those that the program returns; until then no other thread can read them. Here the program only
    reads them. On torch, from Keras 3.16 on, that method waits for the other processes of a job. Here a process may run
    alone.

    Args:
        model: A compiled model whose `call` changes no variable.
    """
    if keras.backend.backend() == "tensorflow":
        return partial(keras.Model.predict_on_batch, model)
    if keras.backend.backend() == "torch":
        return partial(_run_on_torch, model)
    import jax

    @jax.jit
    def program(trainable, non_trainable, inputs):
        with _undivided():
            return model.stateless_call(trainable, non_trainable, inputs)[0]

    def run(inputs):
        groups = model.trainable_variables, model.non_trainable_variables
        values = ([variable.value for variable in group] for group in groups)
        return tree.map_structure(np.array, program(*values, inputs))

    return run


def _run_on_torch(model: keras.Model, inputs):
    import torch

    with torch.no_grad():
        outputs = model(tree.map_structure(ops.convert_to_tensor, inputs), training=False)
    return tree.map_structure(ops.convert_to_numpy, outputs)


@contextlib.contextmanager
def _undivided() -> Iterator[None]:
    """Inside, loops do not divide their rows among devices: each process has to have all of the result."""
    before = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(before)
