"""Ids outside the vocabulary are refused with one sentence on every backend, whatever kind of data they come in."""

import keras
import numpy as np
import pytest

from keras_attn.data import ParallelDataset
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch

pytestmark = pytest.mark.by_turns

SOURCE, TARGET, B, S, T = 31, 37, 6, 5, 7


class Batches(keras.utils.PyDataset):
    """A dataset of the user's: a wrong id in its last batch."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches
        self.epochs = 0

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]

    def on_epoch_end(self):
        self.epochs += 1


@pytest.fixture(scope="module")
def model():
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


WRONG = [
    ("encoder_token_ids", SOURCE, SOURCE),
    ("encoder_token_ids", -1, SOURCE),
    ("decoder_token_ids", TARGET, TARGET),
    ("decoder_token_ids", 2**31 - 1, TARGET),
    ("labels", TARGET, TARGET),
    ("labels", -1, TARGET),
]


def refused(name, value, size):
    sentence = f"Expected {name} from 0 to {size - 1}, the ids of the model's vocabulary. Received: {value}$"
    return pytest.raises(ValueError, match=sentence)


@pytest.mark.parametrize(("name", "value", "size"), WRONG)
def test_ids_outside_the_vocabulary_are_refused(model, name, value, size):
    inputs, labels, weights = wrong = batch(**{name: value})
    good = batch()
    quiet = {"verbose": 0}
    uses = [
        lambda: model.fit(inputs, labels, sample_weight=weights, **quiet),
        lambda: model.fit(Batches([good, good, wrong]), **quiet),
        lambda: model.fit((one for one in [good, good, wrong]), steps_per_epoch=3, shuffle=False, **quiet),
        lambda: model.fit(*good[:2], validation_data=wrong, **quiet),
        lambda: model.fit(*good[:2], validation_data=Batches([wrong]), **quiet),
        lambda: model.evaluate(inputs, labels, **quiet),
        lambda: model.evaluate(Batches([good, wrong]), **quiet),
        lambda: model.train_on_batch(inputs, labels),
        lambda: model.test_on_batch(inputs, labels),
    ]
    if name != "labels":
        uses += [lambda: model.predict(inputs, **quiet), lambda: model.predict_on_batch(inputs)]
    for use in uses:
        with refused(name, value, size):
            use()


def test_a_dataset_of_other_tokenizers_is_refused(model):
    fits, source, target = ([[4, 5], [6]], [[7], [8, TARGET - 1]]), [[SOURCE], [5]], [[5], [TARGET]]
    model.fit(ParallelDataset(*fits, batch_size=2), verbose=0)
    with refused("encoder_token_ids", SOURCE, SOURCE):
        model.fit(ParallelDataset(source, fits[1], batch_size=2), verbose=0)
    with refused("labels", TARGET, TARGET):
        model.fit(ParallelDataset(*fits, batch_size=2), validation_data=ParallelDataset(fits[0], target, batch_size=2))


def test_what_is_right_passes_unchanged(model):
    inputs, labels, weights = batch()
    dataset = Batches([batch()] * 2)
    history = model.fit(dataset, epochs=2, validation_data=Batches([batch()]), verbose=0).history
    assert len(history["val_loss"]) == 2
    assert dataset.epochs >= 2  # Keras calls it once more as `fit` begins
    named = model.predict(inputs, verbose=0)
    np.testing.assert_array_equal(named, model.predict_on_batch(inputs))
    np.testing.assert_array_equal(named, model.predict(Batches([(inputs,)]), verbose=0))
    assert model.evaluate(inputs, labels, sample_weight=weights, verbose=0) > 0


def test_an_error_of_the_users_dataset_stays_what_it_is(model):
    class Broken(Batches):
        def __getitem__(self, index):
            raise KeyError("mine")

    with pytest.raises(Exception, match="mine"):
        model.fit(Broken([batch()]), verbose=0)
