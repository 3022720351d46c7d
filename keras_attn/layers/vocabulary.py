"""The layers that have a vector for each word, padded where a distribution divides their words among devices."""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn.backend import model_parallel, parts_of_axis
from keras_attn.layers.layer import Layer


def vocabulary_embedding(size: int, width: int, **options: Any) -> keras.layers.ReversibleEmbedding:
    """Returns a `keras.layers.ReversibleEmbedding` of ids in [0, size).

    Under `keras.distribution.ModelParallel` the matrix gets rows of zeros if its layout divides the rows among a number
    of devices that does not divide `size`. They are never looked up, and get no logits. Saved weights are without them.

    Args:
        size: V.
        width: E.
        options: Further arguments of `ReversibleEmbedding`.
    """
    return (ReversibleEmbedding if model_parallel() else keras.layers.ReversibleEmbedding)(size, width, **options)


def vocabulary_projection(size: int, **options: Any) -> keras.layers.Dense:
    """Returns a `keras.layers.Dense` from features to logits (..., size), padded as `vocabulary_embedding` is.

    Args:
        size: V.
        options: Further arguments of `Dense`.
    """
    return (Dense if model_parallel() else keras.layers.Dense)(size, **options)


@keras.saving.register_keras_serializable(package="keras_attn")
class OutputBias(Layer):
    """The bias of logits that a transposed embedding gives: logits + b.

    Call arguments: `inputs (..., V)`, the logits. Returns `(..., V)`.

    Example:
        >>> keras_attn.layers.OutputBias()(np.ones((2, 3, 37), "float32")).shape
        (2, 3, 37)
    """

    def build(self, inputs_shape):
        self.bias = self.add_weight(name="bias", shape=(inputs_shape[-1],), initializer="zeros")

    def call(self, inputs):
        return inputs + ops.cast(self.bias, inputs.dtype)


class _Padded:
    """Weights with zeros at the end of the vocabulary's axis, as many as it takes to divide them among devices.

    The zeros stay: nothing reads them, so that their gradients are zero, too.
    """

    axis: int  # of each weight

    def add_weight(self, *, shape, initializer, name, **options):
        size = shape[self.axis]
        parts = parts_of_axis(f"{self.path}/{name}", self.axis)
        if padding := -size % parts:
            initializer = _PaddedInitializer(keras.initializers.get(initializer), self._widths(shape, padding))
            shape = tuple(sum(widths) + whole for widths, whole in zip(initializer.widths, shape, strict=True))
        return super().add_weight(shape=shape, initializer=initializer, name=name, **options)

    @property
    def padded_parameters(self) -> int:
        """The number of zeros."""
        return sum(math.prod(w.shape) // w.shape[self.axis] * (w.shape[self.axis] - self._size) for w in self.weights)

    def save_own_variables(self, store) -> None:
        padded = {}
        super().save_own_variables(padded)
        for key, value in padded.items():
            store[key] = np.take(ops.convert_to_numpy(value), np.arange(self._size), axis=self.axis)

    def load_own_variables(self, store) -> None:
        values = {key: np.asarray(store[key]) for key in store.keys()}  # noqa: SIM118 - Keras' store has no iterator
        for key, variable in enumerate(self.weights):
            value = values.get(str(key))
            if value is not None and value.ndim == len(variable.shape) and value.shape[self.axis] == self._size:
                padding = variable.shape[self.axis] - self._size
                values[str(key)] = np.pad(value, self._widths(value.shape, padding))
        super().load_own_variables(values)

    def _widths(self, shape, padding: int) -> list[tuple[int, int]]:
        return [(0, padding if axis == self.axis % len(shape) else 0) for axis in range(len(shape))]


class _PaddedInitializer:
    """Another initializer's values for the vocabulary, then zeros."""

    def __init__(self, initializer, widths):
        self.initializer = initializer
        self.widths = widths

    def __call__(self, shape, dtype=None):
        whole = [size - sum(widths) for size, widths in zip(shape, self.widths, strict=True)]
        return ops.pad(self.initializer(tuple(whole), dtype=dtype), self.widths)


# These have Keras' names because a file of weights names the layers of a model by their classes.
class ReversibleEmbedding(_Padded, keras.layers.ReversibleEmbedding):
    axis = 0

    @property
    def _size(self) -> int:
        return self.input_dim

    def call(self, inputs, reverse=False):
        outputs = super().call(inputs, reverse=reverse)
        return outputs[..., : self.input_dim] if reverse else outputs


class Dense(_Padded, keras.layers.Dense):
    axis = -1

    @property
    def _size(self) -> int:
        return self.units

    def call(self, inputs, training=None):
        return super().call(inputs, training=training)[..., : self.units]
