"""Quantized weights inside a graph: stored once, and converted to float32 once, when the graph is loaded.

All sums and products are computed in float32, so a request takes the same time as without quantization. The disk and
the download become smaller; memory holds both forms.
"""

import contextlib
import hashlib

import keras
import tensorflow as tf

from keras_attn.saving import QuantizedMatrix, is_quantized, quantize_matrix


class QuantizedWeights(tf.Module):
    """The quantized matrices of a model.

    Args:
        model: A `keras.Model`.
        quantize: "int8", "float16", or None for no quantized matrices.
    """

    def __init__(self, model: keras.Model, quantize: str | None):
        super().__init__(name="quantized_weights")
        weights = [weight for weight in model.weights if quantize and is_quantized(weight)]
        self.matrices = [_Dequantized(quantize_matrix(keras.ops.convert_to_numpy(w), quantize)) for w in weights]
        self.variables_of_matrices = [(matrix.values, matrix.scale) for matrix in self.matrices]  # to be saved
        # A function, because every variable that is an attribute of a module is saved.
        self._weights = lambda: weights

    def scope(self) -> contextlib.AbstractContextManager:
        """A scope in which the model computes with the quantized weights, for use inside a `tf.function`."""
        if not self.matrices:
            return contextlib.nullcontext()
        return keras.StatelessScope([(w, m.read()) for w, m in zip(self._weights(), self.matrices, strict=True)])


class _Dequantized(tf.saved_model.experimental.TrackableResource):
    """A float32 matrix that no checkpoint stores: it is computed from the quantized one when a graph is loaded."""

    def __init__(self, matrix: QuantizedMatrix):
        super().__init__()
        self.values = tf.Variable(matrix.values, trainable=False)
        self.scale = tf.Variable(matrix.scale, trainable=False)
        self._shape = matrix.values.shape
        # A loaded graph finds a resource by its name: with equal names, two matrices would both be the first.
        self._name = hashlib.sha256(matrix.values.tobytes() + matrix.scale.tobytes()).hexdigest()
        self._initialize()  # for this process; a loader calls it by itself

    def read(self) -> tf.Tensor:
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=tf.float32)
        return tf.ensure_shape(value, self._shape)

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=self._shape, shared_name=f"widened_{self._name}")

    def _initialize(self):
        value = tf.cast(self.values, tf.float32) * self.scale
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)
