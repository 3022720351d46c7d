"""What a model refuses to be trained with: ids outside its vocabulary, and losses of probabilities."""

import functools

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


def refused(name, value, size):
    sentence = f"Expected {name} from 0 to {size - 1}, the ids of the model's vocabulary. Received: {value}$"
    return pytest.raises(ValueError, match=sentence)


@pytest.mark.parametrize(
    ("name", "value", "size"),
    [("encoder_token_ids", SOURCE, SOURCE), ("decoder_token_ids", 2**31 - 1, TARGET), ("labels", -1, TARGET)],
)
def test_ids_outside_the_vocabulary_are_refused(model, name, value, size):
    for wrong in ({}, {name: value}):
        inputs, labels, weights = batch(**wrong)
        given = [(inputs, labels), (inputs, labels, weights), [tuple(inputs.values()), labels.tolist()]]
        if name != "labels":
            given += [inputs, (inputs,), tuple(inputs.values())]
        for x in given:
            if not wrong:
                keras_attn.check_ids(x, model)
                continue
            with refused(name, value, size):
                keras_attn.check_ids(x, model)


def test_a_dataset_of_other_tokenizers_is_refused(model):
    fits, source, target = ([[4, 5], [6]], [[7], [8, TARGET - 1]]), [[SOURCE], [5]], [[5], [TARGET]]
    model.fit(ParallelDataset(*fits, batch_size=2), verbose=0)
    with refused("encoder_token_ids", SOURCE, SOURCE):
        model.fit(ParallelDataset(source, fits[1], batch_size=2), verbose=0)
    with refused("labels", TARGET, TARGET):
        model.fit(ParallelDataset(*fits, batch_size=2), validation_data=ParallelDataset(fits[0], target, batch_size=2))


def name_of(loss):
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        "SparseCategoricalCrossentropy",
        "CE",
        keras.losses.sparse_categorical_crossentropy,
        keras.losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight", ignore_class=0),
    ],
    ids=name_of,
)
def test_a_loss_of_probabilities_is_refused(model, loss):
    inputs, labels, _ = batch()
    for given in (loss, [loss]):
        model.compile("sgd", given)
        sentence = (
            r"^Expected a loss of logits, .*`keras\.losses\.SparseCategoricalCrossentropy\(from_logits=True\)`\. "
            rf"Received: a loss of probabilities, '{name_of(loss)}' without `from_logits=True`"
        )
        for use in (model.train_on_batch, model.test_on_batch):
            with pytest.raises(ValueError, match=sentence):
                use(inputs, labels)


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
        functools.partial(keras.losses.sparse_categorical_crossentropy, from_logits=True),
        lambda y_true, y_pred: keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True),
    ],
    ids=["class", "partial", "lambda"],
)
def test_a_loss_of_logits_has_the_value_that_numpy_has(model, loss):
    model.compile("sgd", loss)
    inputs, labels, _ = batch()
    logits = np.asarray(model.predict(inputs, verbose=0), "float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_probs, labels[..., None], -1).mean()
    assert model.evaluate(inputs, labels, verbose=0) == pytest.approx(expected, rel=1e-5)
