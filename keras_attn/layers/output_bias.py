"""The bias of logits that a transposed embedding gives."""

import keras

from keras_attn.layers.layer import Layer


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
        return inputs + keras.ops.cast(self.bias, inputs.dtype)
