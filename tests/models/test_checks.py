"""Keras' own losses of logits; `tests/unit/models/test_checks.py` has the ones that are refused."""

import keras
import numpy as np
import pytest

from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch
from tests.search.searching import log_softmax

SOURCE, TARGET, B, S, T = 31, 37, 6, 5, 7


class Batches(keras.utils.PyDataset):
    """A dataset of the user's."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def compiled_model():
    sizes = {"units": 5, "embedding_size": 7, "readout_size": 11, "attention_units": 3, "decoder_units": 13}
    model = RNNSearch(SOURCE, TARGET, **sizes)
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
