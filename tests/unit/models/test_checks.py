"""Ids outside the vocabulary and losses of probabilities are refused."""

import functools

import keras
import numpy as np
import pytest

import keras_attn
from keras_attn import ParallelDataset
from keras_attn.losses import SmoothedCrossentropy
from tests.contracts.model_rows import VS as SOURCE
from tests.contracts.model_rows import VT as TARGET
from tests.contracts.model_rows import make

B, S, T = 6, 5, 7


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


@pytest.fixture(scope="module")
def model():
    model = make("rnnsearch")
    model.compile(optimizer="sgd", loss=SmoothedCrossentropy())
    return model


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


def test_inputs_that_are_no_pair_are_refused(model):
    for x in (np.ones((2, 3), int), [np.ones((2, 3), int)], tuple(batch()[0].values()) * 2):
        with pytest.raises(ValueError, match="Expected inputs as a dict, or as a pair of source and target ids"):
            keras_attn.check_ids(x, model)


@pytest.mark.parametrize("rows", [np.ones((B, T)), np.arange(B)])
def test_labels_and_weights_of_one_output_may_be_lists_and_dicts(model, rows):
    x, y, _ = batch()
    expected = model.evaluate(x, y, sample_weight=rows, verbose=0)
    for given in ([y], [rows]), ({model.output_names[0]: y}, {model.output_names[0]: rows}):
        assert model.evaluate(x, given[0], sample_weight=given[1], verbose=0) == expected


@pytest.mark.parametrize("seed", [1.5, "a", None, True])
def test_a_seed_is_a_whole_number(model, seed):
    with pytest.raises(ValueError, match="Expected `seed` to be a whole number"):
        model.sample(np.array([[4, 3]]), max_length=2, seed=seed)


def test_weights_of_classes_are_refused(model):
    with pytest.raises(ValueError, match=r"weights of tokens \(B, T\) as `sample_weight`"):
        model.fit(*batch()[:2], class_weight={0: 0.0}, verbose=0)
    with pytest.raises(ValueError, match=r"weights of tokens \(B, T\) as `sample_weight`"):
        model.train_on_batch(*batch()[:2], class_weight={0: 0.0})
    assert set(model.train_on_batch(*batch(), return_dict=True)) == {"loss"}


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
        functools.partial(keras.losses.sparse_categorical_crossentropy, from_logits=True),
        lambda y_true, y_pred: keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True),
    ],
    ids=["partial", "lambda"],
)
def test_functions_of_logits_are_losses(model, loss):
    model.compile("sgd", loss)
    assert np.isfinite(model.test_on_batch(*batch()[:2]))
