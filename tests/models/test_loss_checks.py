"""A model returns logits: losses of probabilities are refused before the first batch, with one sentence."""

import functools

import keras
import numpy as np
import pytest

from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch

pytestmark = pytest.mark.once

B, S, T, VS, VT = 3, 5, 2, 11, 7
OF_PROBABILITIES = [
    "sparse_categorical_crossentropy",
    "SparseCategoricalCrossentropy",
    "categorical_crossentropy",
    "crossentropy",
    "CE",
    ["sparse_categorical_crossentropy"],
    keras.losses.sparse_categorical_crossentropy,
    keras.losses.SparseCategoricalCrossentropy(),
    keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight", ignore_class=0),
]
OF_LOGITS = [
    keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
    functools.partial(keras.losses.sparse_categorical_crossentropy, from_logits=True),
    lambda y_true, y_pred: keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True),
    SmoothedCrossentropy(0.0),
]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(3)
    return RNNSearch(VS, VT, units=3, embedding_size=2, readout_size=3, attention_units=2, decoder_units=4)


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(1)
    inputs = {"encoder_token_ids": rng.integers(4, VS, (B, S)), "decoder_token_ids": rng.integers(4, VT, (B, T))}
    return inputs, rng.integers(4, VT, (B, T))


def name_of(loss):
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


@pytest.mark.parametrize("loss", OF_PROBABILITIES, ids=name_of)
def test_a_loss_of_probabilities_is_refused(model, batch, loss):
    model.compile("sgd", loss)
    name = name_of(*loss) if isinstance(loss, list) else name_of(loss)
    sentence = (
        r"^Expected a loss of logits, .*`keras\.losses\.SparseCategoricalCrossentropy\(from_logits=True\)`\. "
        rf"Received: a loss of probabilities, '{name}' without `from_logits=True`"
    )
    uses = (
        lambda: model.fit(*batch, verbose=0),
        lambda: model.evaluate(*batch, verbose=0),
        lambda: model.train_on_batch(*batch),
        lambda: model.test_on_batch(*batch),
    )
    for use in uses:
        with pytest.raises(ValueError, match=sentence):
            use()
    assert model.predict(batch[0], verbose=0).shape == (B, T, VT)  # for which the loss is nothing


@pytest.mark.parametrize("loss", OF_LOGITS, ids=name_of)
def test_a_loss_of_logits_has_the_value_that_numpy_has(model, batch, loss):
    model.compile("sgd", loss)
    inputs, labels = batch
    logits = np.asarray(model.predict(inputs, verbose=0), "float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_probs, labels[..., None], -1).mean()
    assert model.evaluate(inputs, labels, verbose=0) == pytest.approx(expected, rel=1e-5)


def test_what_keras_does_not_know_stays_its_error(model, batch):
    model.compile("sgd", "nosuch")
    with pytest.raises(ValueError, match="Could not interpret loss identifier: nosuch"):
        model.fit(*batch, verbose=0)
