"""Runs of few updates, which TensorFlow computes step by step: tracing would take longer."""

import keras
import pytest


@pytest.fixture(autouse=True, scope="package")
def _eagerly():
    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
