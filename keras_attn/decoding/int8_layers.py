"""Keras' layers with products in int8."""

import keras
from keras import ops

from keras_attn.backend import Int8Weights, kernel_product


def int8_weights(model: keras.Model) -> Int8Weights:
    """A model's matrices in int8. Keras' layers in it become such as can multiply with them."""
    for layer in model._flatten_layers():
        if type(layer) in _INT8_LAYERS:
            layer.__class__ = _INT8_LAYERS[type(layer)]
    return Int8Weights(model)


# These have Keras' names because a file of weights names the layers of a model by their classes.
class Dense(keras.layers.Dense):
    def call(self, inputs, training=None):
        product = kernel_product(self.kernel)
        if product is None:
            return super().call(inputs, training=training)
        outputs = product(inputs)
        outputs = outputs if self.bias is None else outputs + self.bias
        return outputs if self.activation is None else self.activation(outputs)


class ReversibleEmbedding(keras.layers.ReversibleEmbedding):
    def call(self, inputs, reverse=False):
        product = kernel_product(self.embeddings, transpose=True) if reverse and self.tie_weights else None
        if product is None:
            return super().call(inputs, reverse=reverse)
        logits, cap = product(ops.cast(inputs, self.reverse_dtype or inputs.dtype)), self.logit_soft_cap
        return logits if cap is None else ops.tanh(logits / cap) * cap


_INT8_LAYERS = {keras.layers.Dense: Dense, keras.layers.ReversibleEmbedding: ReversibleEmbedding}
