"""Presets: folders with a model, its two tokenizers and a manifest; weights in fewer bits."""

from keras_attn.saving.preset import load_preset, load_presets, save_preset
from keras_attn.saving.quantization import QuantizedMatrix, is_quantized, quantize_matrix, stored_size
from keras_attn.saving.rounding import rounded_model

__all__ = [
    "QuantizedMatrix",
    "is_quantized",
    "load_preset",
    "load_presets",
    "quantize_matrix",
    "rounded_model",
    "save_preset",
    "stored_size",
]
