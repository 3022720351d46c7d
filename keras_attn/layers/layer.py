"""The base of every layer of this package: checked arguments, a config made of them, and one mask behaviour."""

import keras

from keras_attn.arguments import constructor_arguments, refuse_unknown_arguments


class Layer(keras.layers.Layer):
    """Base of the layers of this package.

    Subclasses keep each constructor argument as an attribute of its name: `get_config` reads them there. Names of
    arguments that are layers themselves stand in `_layer_arguments`, and `from_config` deserialises those.

    Raises:
        ValueError: for an unknown keyword argument. The message lists the valid ones.
    """

    _layer_arguments: tuple[str, ...] = ()

    def __init__(self, **kwargs):
        refuse_unknown_arguments(type(self), kwargs, base=Layer)
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_mask(self, *_):
        """Returns None so that Keras does not propagate the inputs' mask: in this package masks are arguments."""

    def get_config(self):
        names = constructor_arguments(type(self), base=Layer)
        if missing := [name for name in names if not hasattr(self, name)]:
            raise NotImplementedError(
                f"Expected {type(self).__name__} to keep every argument of its constructor as an attribute of that "
                f"name, or to define `get_config`. Received no attribute: {', '.join(missing)}"
            )
        own = {name: keras.saving.serialize_keras_object(getattr(self, name)) for name in names}
        autocast = {} if self.autocast else {"autocast": False}  # which Keras leaves out
        return {**super().get_config(), **autocast, **own}

    @classmethod
    def from_config(cls, config):
        layers = {name: config[name] for name in cls._layer_arguments if name in config}
        layers = {name: keras.saving.deserialize_keras_object(layer) for name, layer in layers.items()}
        return super().from_config({**config, **layers})
