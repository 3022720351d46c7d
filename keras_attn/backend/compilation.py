"""Chooses `jit_compile`."""

import keras


def preferred_jit_compile() -> bool | str:
    """The value of `jit_compile` that is fastest for a model made of this package's loops.

    For TensorFlow on a CPU XLA is slower, and off here whatever "auto" means to a version of Keras: a training step of
    the 6 M parameters of `recipes/rnnsearch.py` took 0.75 s with XLA and 0.48 s without, on two cores, and a search
    step with 13 M parameters, 128 sentences and a beam of 5 took 132 ms and 91 ms.

    Returns:
        False for TensorFlow without an accelerator, else "auto".
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not (tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU")):
            return False
    return "auto"
