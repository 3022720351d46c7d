"""Ensembles and averages of weights: members are copies, presets together, and what is refused."""

import keras
import numpy as np
import pytest

from keras_attn.layers import AttentionDecoder
from keras_attn.models import AttentionSeq2Seq, Ensemble, RNNSearch, average_weights
from keras_attn.text import Tokenizer
from keras_attn.translation import Translator

VS, VT = 31, 37
SIDES = (("s", VS), ("t", VT))
SIZES = {"units": 5, "embedding_size": 11, "readout_size": 11, "attention_units": 13, "decoder_units": 17}


def make(seed=1, **options):
    model = RNNSearch(VS, VT, **{**SIZES, **options})
    random = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        weight.assign(random.normal(0, 0.7, weight.shape))
    return model


@pytest.fixture(scope="module")
def models():
    """Two alike, and a third that has fewer weights."""
    return [make(1), make(2), make(3, tie_embeddings="target")]


def test_members_are_copies():
    models = [make(1), make(2)]
    models[0].compile("adam", "mse")
    names = [model.name for model in models]
    ensemble = Ensemble(models)
    before = ensemble.get_weights()
    for weight in models[0].weights:
        weight.assign(np.zeros(weight.shape))
    np.testing.assert_equal(ensemble.get_weights(), before)
    assert [model.name for model in models] == names
    assert not ensemble.models[0].compiled


def test_weights_are_averaged_into_a_new_model(models):
    first, second = models[:2]
    before = [w.copy() for w in first.get_weights()]
    average = average_weights([first, second, second])
    for a, b, found in zip(first.get_weights(), second.get_weights(), average.get_weights(), strict=True):
        np.testing.assert_allclose(found, (a.astype("float64") + 2 * b) / 3, atol=1e-6)
    np.testing.assert_equal(first.get_weights(), before)
    assert average.get_config() == first.get_config()
    np.testing.assert_equal(average_weights([first]).get_weights(), before)


def test_what_cannot_be_combined_is_refused(models):
    other = RNNSearch(VS + 1, VT, **SIZES)
    with pytest.raises(ValueError, match=r"with the same source_vocabulary_size\. Received: 31, 32"):
        Ensemble([models[0], other])
    with pytest.raises(ValueError, match="Received: 0 models"):
        Ensemble([])
    for other in (models[0], [models[0], keras.Sequential()]):
        with pytest.raises(ValueError, match=r"Expected a list of `Seq2Seq` models\. Received: "):
            Ensemble(other)
    frames = keras.Input((6, 3), name="encoder_inputs")
    halves = []
    for stride in (1, 2):
        decoder = AttentionDecoder(keras.layers.GRUCell(5), "general")
        parts = decoder, keras.layers.Embedding(VT, 7), keras.layers.Dense(VT)
        halves.append(AttentionSeq2Seq(keras.layers.Conv1D(5, 1, strides=stride), *parts, inputs=frames))
    with pytest.raises(ValueError, match=r"memories of a source have the same length\. Received: \[3, 6\]"):
        Ensemble(halves).generate(np.zeros((2, 6, 3), "float32"), max_length=2)
    with pytest.raises(ValueError, match=r"probability, log_probability\. Received: average='mean'"):
        Ensemble(models, average="mean")
    with pytest.raises(ValueError, match="one class and one size"):
        average_weights([models[0], models[2]])
    with pytest.raises(ValueError, match="Received: none"):
        average_weights([])


@pytest.fixture(scope="module")
def presets(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets")
    tokenizers = [Tokenizer.train([" ".join(f"{side}{i}" for i in range(n - 4))], level="word") for side, n in SIDES]
    for i, model in enumerate(models[:2]):
        Translator(model, *tokenizers, max_length_ratio=1.5, max_length_constant=3).save_to_preset(folder / str(i))
    return folder / "0", folder / "1"


def test_an_ensemble_of_presets(models, presets, tmp_path):
    translator = Translator.from_presets(presets, average="log_probability")
    translator.save_to_preset(tmp_path / "together")
    again = Translator.from_preset(tmp_path / "together").model
    assert (type(again), again.average) == (Ensemble, "log_probability")
    np.testing.assert_equal(again.get_weights(), Ensemble(models[:2]).get_weights())


def test_presets_average_into_one_model(models, presets):
    translator = Translator.from_presets(presets, average="weights")
    assert type(translator.model) is RNNSearch
    np.testing.assert_equal(translator.model.get_weights(), average_weights(models[:2]).get_weights())
    assert (translator.max_length_ratio, translator.max_length_constant) == (1.5, 3)


def test_presets_that_do_not_fit_are_refused(models, presets, tmp_path):
    source, target = (Tokenizer.load(presets[0] / f"{side}_tokenizer") for side in ("source", "target"))
    renamed = Tokenizer.train([" ".join(f"u{i}" for i in range(VT - 4))], level="word")
    assert renamed.vocabulary_size == target.vocabulary_size
    Translator(models[0], source, renamed).save_to_preset(tmp_path / "renamed")
    with pytest.raises(ValueError, match=r"renamed', with another target tokenizer"):
        Translator.from_presets([presets[0], tmp_path / "renamed"])
    with pytest.raises(ValueError, match="a list of presets"):
        Translator.from_presets([])
    with pytest.raises(ValueError, match="a list of presets"):
        Translator.from_presets(str(presets[0]))
