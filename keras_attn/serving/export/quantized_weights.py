"""Weights in fewer bits inside a graph: stored once, and widened once, when the graph is loaded.

Sums and products are those of the whole width. So a request costs no more time than without, and what is saved
is disk and download; memory holds both.
"""

import contextlib
import hashlib

import keras
import tensorflow as tf

from keras_attn.serving.export.quantization import Stored, is_stored, stored


class StoredWeights(tf.Module):
    """The matrices of a model as they are stored.

    Arguments:
        model: A `keras.Model`.
        quantize: "int8", "float16", or None for a module that holds nothing.
    """

    def __init__(self, model: keras.Model, quantize: str | None):
        super().__init__(name="stored_weights")
        chosen = [weight for weight in model.weights if quantize and is_stored(weight)]
        self.matrices = [_Widened(stored(keras.ops.convert_to_numpy(weight), quantize)) for weight in chosen]
        self.variables_of_matrices = [(matrix.values, matrix.scale) for matrix in self.matrices]  # to be saved
        # Not the list itself: what a module holds is saved.
        self._chosen = lambda: chosen

    def scope(self) -> contextlib.AbstractContextManager:
        """In which the model computes with what is left of its matrices. For use inside a `tf.function`."""
        if not self.matrices:
            return contextlib.nullcontext()
        return keras.StatelessScope([(w, m.read()) for w, m in zip(self._chosen(), self.matrices, strict=True)])


class _Widened(tf.saved_model.experimental.TrackableResource):
    """A matrix in its whole width, which no checkpoint holds: it is made of the stored one when a graph is loaded."""

    def __init__(self, matrix: Stored):
        super().__init__()
        self.values = tf.Variable(matrix.values, trainable=False)
        self.scale = tf.Variable(matrix.scale, trainable=False)
        self._shape = matrix.values.shape
        # A loaded graph finds a resource by its name: two matrices of one name would both be the first.
        self._name = hashlib.sha256(matrix.values.tobytes() + matrix.scale.tobytes()).hexdigest()
        self._initialize()  # for use in this process; a loader does it by itself

    def read(self) -> tf.Tensor:
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=tf.float32)
        return tf.ensure_shape(value, self._shape)

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=self._shape, shared_name=f"widened_{self._name}")

    def _initialize(self):
        value = tf.cast(self.values, tf.float32) * self.scale
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)
