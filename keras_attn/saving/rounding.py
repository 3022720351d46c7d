"""A model with the weights that it has after quantization."""

from keras_attn.backend import set_weights
from keras_attn.models import copy_model
from keras_attn.saving.quantization import dequantized, is_quantized, quantize_matrix


def rounded_model(model, quantize: str | None):
    """A copy of the model with the weights that it has after quantization; with None the model itself.

    Args:
        model: A `keras.Model`.
        quantize: "int8", "float16" or None.

    Example:
        >>> keras_attn.saving.rounded_model(model, None) is model
        True
    """
    if quantize is None:
        return model
    copy = copy_model(model, model.name)
    pairs = zip(copy.weights, copy.get_weights(), strict=True)
    set_weights(copy, [dequantized(quantize_matrix(w, quantize)) if is_quantized(v) else w for v, w in pairs])
    return copy
