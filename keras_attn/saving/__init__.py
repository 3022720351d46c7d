"""Presets: folders with a model, its two tokenizers and a manifest; and weights from elsewhere."""

from keras_attn.saving.marian import from_marian
from keras_attn.saving.preset import load_preset, load_presets, save_preset
from keras_attn.saving.tfa import from_tfa

__all__ = ["from_marian", "from_tfa", "load_preset", "load_presets", "save_preset"]
