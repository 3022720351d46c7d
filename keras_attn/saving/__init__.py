"""Saving: presets, which hold a model, its two tokenizers and a manifest."""
