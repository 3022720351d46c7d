"""Ids outside the vocabulary are refused, in arrays and in a `ParallelDataset`."""

import keras
import numpy as np
import pytest

import keras_attn
from keras_attn import ParallelDataset
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch

pytestmark = pytest.mark.once

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
    inputs, labels, weights = batch(**{name: value})
    given = [(inputs, labels), (inputs, labels, weights), [tuple(inputs.values()), labels.tolist()]]
    if name != "labels":
        given += [inputs, (inputs,), tuple(inputs.values())]
    for x in given:
        with refused(name, value, size):
            keras_attn.check_ids(x, model)


def test_a_dataset_of_other_tokenizers_is_refused(model):
    fits, source, target = ([[4, 5], [6]], [[7], [8, TARGET - 1]]), [[SOURCE], [5]], [[5], [TARGET]]
    model.fit(ParallelDataset(*fits, batch_size=2), verbose=0)
    with refused("encoder_token_ids", SOURCE, SOURCE):
        model.fit(ParallelDataset(source, fits[1], batch_size=2), verbose=0)
    with refused("labels", TARGET, TARGET):
        model.fit(ParallelDataset(*fits, batch_size=2), validation_data=ParallelDataset(fits[0], target, batch_size=2))


def test_what_is_right_is_accepted(model):
    inputs, *others = batch()
    for x in (inputs, (inputs, *others), tuple(inputs.values()), ParallelDataset([[4]], [[5]], batch_size=1)):
        keras_attn.check_ids(x, model)
