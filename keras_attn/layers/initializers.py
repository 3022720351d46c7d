"""Initialisers for weights in half precision."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_attn")
class Float32Initializer(keras.initializers.Initializer):
    """Draws weights in float32 and casts them: torch and JAX have no orthogonal matrices in half precision.

    Args:
        initializer: Any Keras initialiser.

    Example:
        >>> keras_attn.layers.Float32Initializer("orthogonal")((3, 5), dtype="bfloat16").shape
        (3, 5)
    """

    def __init__(self, initializer):
        self.initializer = keras.initializers.get(initializer)

    def __call__(self, shape, dtype=None):
        return ops.cast(self.initializer(shape, dtype="float32"), dtype or keras.config.floatx())

    def get_config(self):
        return {"initializer": keras.initializers.serialize(self.initializer)}


def half_precision_safe(initializer, dtype=None):
    """Returns the initialiser itself, or one that draws in float32 where the weights of a dtype policy are half."""
    initializer = keras.initializers.get(initializer)
    half = keras.dtype_policies.get(dtype).variable_dtype in ("float16", "bfloat16")
    return Float32Initializer(initializer) if half else initializer
