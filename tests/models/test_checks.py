"""Keras' own losses of logits; `tests/unit/models/test_checks.py` has the ones that are refused."""

import keras
import numpy as np
import pytest

from keras_attn.losses import SmoothedCrossentropy
from tests.contracts.model_rows import VS as SOURCE
from tests.contracts.model_rows import VT as TARGET
from tests.contracts.model_rows import make
from tests.search.searching import log_softmax

B, S, T = 6, 5, 7


def compiled_model():
    model = make("rnnsearch")
    model.compile(optimizer="sgd", loss=SmoothedCrossentropy())
    return model


def batch(**wrong):
    rng = np.random.default_rng(0)
    arrays = {
        "encoder_token_ids": rng.integers(4, SOURCE, (B, S)),
        "decoder_token_ids": rng.integers(4, TARGET, (B, T)),
        "labels": rng.integers(4, TARGET, (B, T)),
    }
    for name, value in wrong.items():
        arrays[name][2, 3] = value
    labels = arrays.pop("labels")
    return arrays, labels, np.ones((B, T), "float32")


def test_keras_own_loss_of_logits_has_the_value_that_numpy_has():
    model = compiled_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    model.compile("sgd", loss)
    inputs, labels, _ = batch()
    log_probs = log_softmax(model.predict_on_batch(inputs))
    expected = -np.take_along_axis(log_probs, labels[..., None], -1).mean()
    assert model.test_on_batch(inputs, labels) == pytest.approx(expected, rel=1e-5)
