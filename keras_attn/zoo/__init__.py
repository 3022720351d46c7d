"""Trained presets: which there are, where their files are found, and the cards that describe them."""

from keras_attn.zoo.card import CARD, model_card, task_of
from keras_attn.zoo.hugging_face import PREFIX, upload
from keras_attn.zoo.registry import PresetEntry, add_preset, presets
from keras_attn.zoo.store import locate

__all__ = ["CARD", "PREFIX", "PresetEntry", "add_preset", "locate", "model_card", "presets", "task_of", "upload"]
