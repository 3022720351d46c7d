"""The input pipeline that Keras makes of a `PyDataset` on TensorFlow."""

from functools import cache

import keras


@cache
def disable_pipeline_autotuning() -> None:
    """Turns the autotuner of `tf.data` off, for which every epoch would wait at its end.

    Keras wraps a `PyDataset` in a `tf.data` pipeline. TensorFlow 2.21 often ends the iterator of such a pipeline only
    when its autotuner wakes, which it does 10 ms (2^k - 1) after the epoch's start, and later once a minute: epochs of
    85 s took 140 s. There is nothing to tune where a batch takes 0.1 ms to make.

    This changes the whole process (`tf.data.experimental.enable_debug_mode`, the one switch that reaches pipelines
    that Keras makes), so only programs call it: the commands, the recipes and the benchmarks. It does nothing on the
    other backends, and nothing with an accelerator, for which batches are copied ahead.
    """
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    if not (tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU")):
        tf.data.experimental.enable_debug_mode()
