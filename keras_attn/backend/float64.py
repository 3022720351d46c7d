"""Operations that Keras computes in float32 on some backends, even where the tensors are float64.

Keras follows JAX's habit of having no float64: `tanh` does so on JAX, and most operations with two tensors on torch.
With every other dtype the functions here are those of `keras.ops`, or on torch faster ones (`torch_elementwise`).
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def matmul(x, y):
    """`keras.ops.matmul`; float64 if one of the two is."""
    return _run("matmul", (x, y))


def tanh(x):
    """`keras.ops.tanh`; float64 if x is."""
    return _elementwise("tanh", x)


def exp(x):
    """`keras.ops.exp`; float64 if x is."""
    return _elementwise("exp", x)


def maximum(x, y):
    """`keras.ops.maximum`; float64 if one of the two is."""
    return _run("maximum", (x, y))


def cumsum(x, axis: int):
    """`keras.ops.cumsum`; float64 if x is."""
    return _run("cumsum", (x,), axis)


def segment_sum(data, segment_ids, num_segments: int):
    """`keras.ops.segment_sum` of data `(N,)`; float64 if it is."""
    if keras.backend.backend() != "torch" or not _is_float64(data):
        return ops.segment_sum(data, segment_ids, num_segments=num_segments)
    data = ops.convert_to_tensor(data)
    return data.new_zeros(num_segments).index_add(0, ops.convert_to_tensor(segment_ids), data)


def keep_float64(activation: Callable) -> Callable:
    """An activation of Keras as one that is float64 where its input is: tanh, the only one that is not."""
    return tanh if activation is keras.activations.tanh else activation


def _elementwise(name: str, x):
    if keras.backend.backend() == "torch":
        from keras_attn.backend import torch_elementwise

        if torch_elementwise.is_served(x):
            return getattr(torch_elementwise, name)(x)
    return _run(name, (x,))


def _run(name: str, tensors: tuple[Any, ...], *others):
    if not any(_is_float64(x) for x in tensors):
        return getattr(ops, name)(*tensors, *others)
    if keras.backend.backend() == "jax":
        import jax.numpy as native
    elif keras.backend.backend() == "torch":
        import torch as native
    else:
        native = ops
    return getattr(native, name)(*(ops.convert_to_tensor(x, dtype="float64") for x in tensors), *others)


def _is_float64(x) -> bool:
    dtype = getattr(x, "dtype", None)
    return dtype is not None and keras.backend.standardize_dtype(dtype) == "float64"
