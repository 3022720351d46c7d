"""The base of every layer of this package: strict arguments, one mask behaviour, sub-layers restored from a config."""

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import keras


def constructor_arguments(cls: type, base: type) -> dict[str, inspect.Parameter]:
    """The arguments that `cls(...)` takes: its own, and through `**kwargs` those of its parents below `base`."""
    arguments = {}
    for parent in cls.__mro__:
        if parent is base:
            break
        if "__init__" not in vars(parent):
            continue
        parameters = list(inspect.signature(vars(parent)["__init__"]).parameters.values())[1:]
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        arguments |= {p.name: p for p in parameters if p.kind not in variadic and p.name not in arguments}
        if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            break
    return arguments


def layer_arguments() -> tuple[str, ...]:
    """What Keras' own `Layer` takes: "activity_regularizer", "trainable", "dtype", "autocast", "name"."""
    parameters = inspect.signature(keras.layers.Layer.__init__).parameters.values()
    return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


def refuse_unknown_arguments(
    cls: type, kwargs: Collection[str], base: type = keras.layers.Layer, also: Collection[str] | None = None
) -> None:
    """Refuses what a constructor received in its `**kwargs` and nothing takes.

    Args:
        cls: The class under construction, `type(self)`.
        kwargs: Names, or the keyword arguments themselves.
        base: The first parent whose constructor's arguments are not the user's to give.
        also: More valid names; None: what Keras' own `Layer` takes.

    Raises:
        ValueError: with the names of all valid arguments, if one of `kwargs` is none of them.
    """
    valid = [*constructor_arguments(cls, base), *(layer_arguments() if also is None else also)]
    if unknown := [name for name in kwargs if name not in valid]:
        raise ValueError(f"Expected arguments among: {', '.join(dict.fromkeys(valid))}. Received: {', '.join(unknown)}")


class Layer(keras.layers.Layer):
    """Base of the layers of this package.

    An unknown keyword argument is an error that lists the valid ones. Arguments that are layers themselves, named in
    `_layer_arguments`, are deserialised by `from_config`.
    """

    _layer_arguments: tuple[str, ...] = ()

    def __init__(self, **kwargs):
        refuse_unknown_arguments(type(self), kwargs, base=Layer)
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_mask(self, *_):
        """Returns None so that Keras does not propagate the source mask: masks are arguments in this package."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]):
        layers = {name: config[name] for name in cls._layer_arguments if name in config}
        layers = {name: keras.saving.deserialize_keras_object(layer) for name, layer in layers.items()}
        return super().from_config({**config, **layers})
