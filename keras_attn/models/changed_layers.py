"""Serializes frozen and quantized layers, which a model's arguments do not have."""

import copy
from typing import Any

import keras
import numpy as np

from keras_attn.backend import all_layers

CHANGED_LAYERS = "changed_layers"  # in a model's config


def changed_layers(model: keras.Model) -> dict[str, Any]:
    """The entry of a model's config for its layers that are frozen or quantized; empty without any.

    Args:
        model: A model whose layers follow from its arguments, in the same order each time.

    Returns:
        A dict with a list under `CHANGED_LAYERS`: each layer's "index" among all, and what `make_model` does to it.
    """
    changed = []
    for i, layer in enumerate(all_layers(model)[1:]):
        change = {} if layer.trainable else {"trainable": False}
        if layer.quantization_mode:
            config = keras.saving.serialize_keras_object(getattr(layer, "quantization_config", None))
            change |= {"mode": layer.quantization_mode, "quantization_config": config}
        changed += [{"index": i, **change}] if change else []
    return {CHANGED_LAYERS: changed} if changed else {}


def make_model(cls: type, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> keras.Model:
    """A model from its config: constructs it, then quantizes and freezes the layers that `changed_layers` found.

    Args:
        cls: The model's class.
        config: Of `get_config`; values that are dicts or lists are deserialised.
        custom_objects: As in `keras.saving.deserialize_keras_object`.
    """

    def deserialized(value):
        if isinstance(value, list):
            return [deserialized(one) for one in value]
        if not isinstance(value, dict):
            return value
        # A copy: `from_config` of Keras' stacks and wrappers empties what it is given.
        return keras.saving.deserialize_keras_object(copy.deepcopy(value), custom_objects)

    arguments = {name: deserialized(value) for name, value in config.items()}
    changed = arguments.pop(CHANGED_LAYERS, [])
    model = cls(**arguments)
    by_index = {change["index"]: change for change in changed}
    frozen = any("trainable" in change for change in changed)
    for i, layer in enumerate(all_layers(model)[1:]):
        change = by_index.get(i, {})
        if "mode" in change and not layer.quantization_mode:
            with np.errstate(invalid="ignore"):  # its weights may be NaN until a file is read
                layer.quantize(change["mode"], type_check=False, config=change["quantization_config"])
        trainable = change.get("trainable", True)
        if frozen and layer.trainable != trainable:  # a layer comes after the one that it is a part of
            layer.trainable = trainable
    return model
