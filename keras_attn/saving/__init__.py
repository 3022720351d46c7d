"""Presets: folders with a model, its two tokenizers and a manifest."""

from keras_attn.saving.preset import load_preset, load_presets, save_preset

__all__ = ["load_preset", "load_presets", "save_preset"]
