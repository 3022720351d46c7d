"""Inference with a compiled model, by any number of threads at once."""

import contextlib
import sys
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from keras_attn.backend.distribution import without_distribution
from keras_attn.backend.int8_products import Int8Weights, kernel_products

_PATIENCE = 1.0  # seconds of compiling in silence


def compiles_each_length() -> bool:
    """Returns True on JAX, where `inference_function` compiles each shape of its inputs, for a second or more."""
    return keras.backend.backend() == "jax"


def inference_function(
    model: keras.Model, int8_weights: Int8Weights | None = None, specs: dict[str, Any] | None = None
) -> Callable[[Any], Any]:
    """Returns `inputs -> outputs`, both of NumPy arrays: `model` compiled, which several threads may call at once.

    On TensorFlow without XLA one graph for each number of rows serves all lengths: to trace one takes half a second,
    and `keras.Model.predict_on_batch` would do it for each length. With XLA each shape has a program of its own. On JAX
    that method donates the weights to the compiled program, and assigns those that the program returns; until then no
    other thread can read them. Here the program only reads them. On torch, from Keras 3.16 on, that method waits for
    the other processes of a job. Here a process may run alone.

    Args:
        model: A compiled model whose `call` changes no variable.
        int8_weights: The matrices to multiply with in int8; None: none.
        specs: KerasTensors of inputs by name, whose static axes stay static; of others the rows alone are.
    """
    if keras.backend.backend() == "jax":
        return _inference_on_jax(model, int8_weights)
    if keras.backend.backend() == "torch":
        return _inference_on_torch(model, int8_weights)
    return _inference_on_tensorflow(model, int8_weights, specs or {})


def _inference_on_tensorflow(
    model: keras.Model, int8_weights: Int8Weights | None, specs: dict[str, Any]
) -> Callable[[Any], Any]:
    import tensorflow as tf

    # XLA alone multiplies int8 fast. A graph for several shapes fails in it.
    by_xla = int8_weights is not None
    if tf.distribute.has_strategy() or (model.jit_compile and not by_xla):
        return partial(keras.Model.predict_on_batch, model)

    @tf.function(jit_compile=by_xla, autograph=False)
    def program(inputs):
        with kernel_products(int8_weights and int8_weights.product):
            return model(inputs, training=False)

    def spec(array, known=None):
        # The number of rows is static: if it is unknown, search has three loops to trace, as for a large batch.
        axes = known.shape[1:] if known is not None and len(known.shape) == array.ndim else [None] * (array.ndim - 1)
        return tf.TensorSpec(array.shape if by_xla else [array.shape[0], *axes], array.dtype)

    def spec_of(name, value):
        return tree.map_structure(spec, value, *([specs[name]] if name in specs else []))

    announced = _Announced(model.name)

    def run(inputs):
        if isinstance(inputs, dict):
            given = {name: spec_of(name, value) for name, value in inputs.items()}
        else:
            given = tree.map_structure(spec, inputs)
        with announced.once(tuple(tree.flatten(given))):
            graph = program.get_concrete_function(given)
        return tree.map_structure(ops.convert_to_numpy, graph(tree.map_structure(tf.convert_to_tensor, inputs)))

    return run


def _inference_on_jax(model: keras.Model, int8_weights: Int8Weights | None) -> Callable[[Any], Any]:
    import jax

    def program(trainable, non_trainable, matrices, inputs):
        # Loops that divide their rows among devices would leave each process a part of the result.
        with without_distribution(), kernel_products(int8_weights and int8_weights.bound(matrices).product):
            return model.stateless_call(trainable, non_trainable, inputs)[0]

    compiled, announced = jax.jit(program), _Announced(model.name)
    is_first = True

    def run(inputs):
        nonlocal is_first
        groups = model.trainable_variables, model.non_trainable_variables
        values = [[variable.value for variable in group] for group in groups]
        if int8_weights and is_first:
            jax.eval_shape(program, *values, {}, inputs)  # makes the matrices
            is_first = False
        matrices = dict(int8_weights.matrices) if int8_weights else {}  # another thread may add one
        with announced.once(tuple(map(np.shape, tree.flatten(inputs)))):
            outputs = compiled(*values, matrices, inputs)
        return tree.map_structure(np.array, outputs)

    return run


def _inference_on_torch(model: keras.Model, int8_weights: Int8Weights | None) -> Callable[[Any], Any]:
    import torch

    # A weight that is made in inference mode cannot be trained, and the first call may make some. Later calls are a
    # tenth faster in that mode, for one sentence, because autograd records nothing of their tensors.
    mode = torch.no_grad

    def run(inputs):
        nonlocal mode
        with mode(), kernel_products(int8_weights and int8_weights.product):
            outputs = model(tree.map_structure(ops.convert_to_tensor, inputs), training=False)
        mode = torch.inference_mode
        return tree.map_structure(ops.convert_to_numpy, outputs)

    return run


class _Announced:
    """A line at a person's terminal or notebook where compiling takes longer than a second.

    Args:
        name: Of what is compiled.
    """

    def __init__(self, name: str):
        self._name = name
        self._known: set[Hashable] = set()

    def once(self, shapes: Hashable) -> contextlib.AbstractContextManager:
        """A context for the first call with these shapes, which compiles."""
        if shapes in self._known:
            return contextlib.nullcontext()
        self._known.add(shapes)
        return self._announcing() if sys.stderr is not None and sys.stderr.isatty() else contextlib.nullcontext()

    @contextlib.contextmanager
    def _announcing(self):
        line = f"keras_attn compiles the {self._name}; later batches of this shape start at once"
        timer = threading.Timer(_PATIENCE, print, [line], {"file": sys.stderr, "flush": True})
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
