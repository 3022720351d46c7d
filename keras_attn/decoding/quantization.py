"""Translators that multiply in int8."""

from copy import copy

from keras_attn.backend import has_accelerator
from keras_attn.decoding.engine import Engine
from keras_attn.decoding.int8_layers import int8_weights
from keras_attn.models import copy_model


def quantize(translator: Engine, mode: str = "int8") -> Engine:
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
            read once, so that it is not for further training.
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
