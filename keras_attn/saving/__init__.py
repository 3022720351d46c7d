"""Presets: folders with a model, its two tokenizers and a manifest; weights in fewer bits; weights from elsewhere."""

from keras_attn.saving.marian import from_marian
from keras_attn.saving.preset import load_preset, load_presets, save_preset
from keras_attn.saving.quantization import QuantizedMatrix, is_quantized, quantize_matrix, stored_size
from keras_attn.saving.rounding import rounded_model
from keras_attn.saving.tfa import from_tfa

__all__ = [
    "QuantizedMatrix",
    "from_marian",
    "from_tfa",
    "is_quantized",
    "load_preset",
    "load_presets",
    "quantize_matrix",
    "rounded_model",
    "save_preset",
    "stored_size",
]
