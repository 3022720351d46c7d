"""Translators that multiply in int8, and the int8 versions of Keras' layers."""

from copy import copy
from typing import TypeVar

import keras
from keras import ops

from keras_attn.backend import Int8Weights, all_layers, has_accelerator, kernel_product
from keras_attn.models import copy_model
from keras_attn.translation.text_search import TextSearch

_Translator = TypeVar("_Translator", bound=TextSearch)


def quantize(translator: _Translator, mode: str = "int8") -> _Translator:
    """Returns a translator that multiplies with the model's matrices in int8, for speed on a processor.

        y_rj = s_r t_j sum_i round(x_ri / s_r) round(w_ij / t_j),  s_r = max_i |x_ri| / 127,  t_j = max_i |w_ij| / 127

    The sums are whole numbers of 32 bits. So they are exact, and a translation still does not depend on its batch
    mates; but it may differ from that in float32. These stay in float32: matrices with a side below 32, biases, norms,
    the look-up of embeddings, attention's sums over the source, and Keras' layers other than `Dense` and
    `ReversibleEmbedding`. On TensorFlow XLA compiles each shape, which takes seconds. Torch has fast products
    only on processors with VNNI; on others it multiplies the same whole numbers in float32, which gains nothing.
    `save_to_preset` writes the weights in float32, and so does `export`, whose graph multiplies in int8 with
    `jit_compile=True` alone.

    Args:
        translator: A `keras_attn.Translator`. It stays as it is: the result has a copy of its model, whose matrices are
            read once, so that it cannot be trained.
        mode: "int8".

    Raises:
        ValueError: if the mode is another, or Keras computes on an accelerator, where this gains nothing.

    Example:
        >>> fast = keras_attn.quantize(translator)
        >>> fast.generate(["two dogs"])[0].text
        'deux chiens'

    Reference: Bhandare et al. Efficient 8-Bit Quantization of Transformer Neural Machine Language Translation Model.
    2019, arXiv:1906.00532. Here each row of the inputs has a scale of its own.
    """
    if mode != "int8":
        raise ValueError(f'Expected mode to be "int8". Received: mode={mode!r}')
    if has_accelerator():
        raise ValueError("Expected Keras to compute on a processor for products in int8. Received: an accelerator")
    quantized = copy(translator)
    quantized.model = copy_model(translator.model, translator.model.name)
    quantized.int8_weights = int8_weights(quantized.model)
    return quantized


def int8_weights(model: keras.Model) -> Int8Weights:
    """Returns a model's matrices in int8, and replaces its Dense and embedding layers by int8 versions."""
    for layer in all_layers(model):
        if type(layer) in _INT8_LAYERS:
            layer.__class__ = _INT8_LAYERS[type(layer)]
    model.quantized = True
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
