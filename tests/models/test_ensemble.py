"""Ensembles against NumPy on the members' own outputs; averages of weights; both through presets and export."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.models import Ensemble, RNNSearch, average_weights
from keras_attn.text import END_ID, START_ID, Tokenizer
from keras_attn.translation import Translator

pytestmark = pytest.mark.by_turns

B, S, T, VS, VT = 3, 7, 2, 31, 37
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


@pytest.fixture
def inputs():
    random = np.random.default_rng(7)
    sides = {"encoder_token_ids": (VS, S), "decoder_token_ids": (VT, T)}
    return {side: random.integers(4, size, (B, length)).astype("int32") for side, (size, length) in sides.items()}


def log_softmax(logits):
    logits = ops.convert_to_numpy(logits).astype("float64")
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_the_mean_of_log_probabilities(models, inputs):
    """That of probabilities is in the contract."""
    expected = log_softmax(np.mean([log_softmax(model(inputs)) for model in models], axis=0))
    ensemble = Ensemble(models, average="log_probability")
    np.testing.assert_allclose(log_softmax(ensemble(inputs)), expected, atol=1e-5)


def test_what_all_members_think_nearly_impossible_stays_finite(models):
    ensemble = Ensemble(models[:2])
    logits = np.zeros((1, VT), "float32")
    logits[0, 5] = -300.0  # e^-300 is 0 in float32
    found = ops.convert_to_numpy(ensemble._combine([ops.convert_to_tensor(logits)] * 2))
    np.testing.assert_allclose(found, log_softmax(logits), atol=1e-4)


def test_members_are_copies():
    models = [make(1), make(2)]
    models[0].compile("adam", "mse")
    names = [model.name for model in models]
    ensemble = Ensemble(models)
    before = ensemble.get_weights()
    for weight in models[0].weights:
        weight.assign(np.zeros(weight.shape))
    for old, now in zip(before, ensemble.get_weights(), strict=True):
        np.testing.assert_array_equal(old, now)
    assert [model.name for model in models] == names
    assert not ensemble.models[0].compiled


def test_an_ensemble_speaks_float32_under_every_policy(inputs):
    logits = Ensemble([make(1), make(2)], dtype="mixed_bfloat16")(inputs)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    np.testing.assert_allclose(np.exp(ops.convert_to_numpy(logits)).sum(-1), 1, atol=1e-5)


# The mean of weights.


def test_weights_are_averaged_into_a_new_model(models):
    first, second = models[:2]
    before = [w.copy() for w in first.get_weights()]
    average = average_weights([first, second, second])
    for a, b, found in zip(first.get_weights(), second.get_weights(), average.get_weights(), strict=True):
        np.testing.assert_allclose(found, (a.astype("float64") + 2 * b) / 3, atol=1e-6)
    for old, now in zip(before, first.get_weights(), strict=True):
        np.testing.assert_array_equal(old, now)
    assert average.get_config() == first.get_config()
    for old, now in zip(before, average_weights([first]).get_weights(), strict=True):
        np.testing.assert_array_equal(old, now)


def test_what_cannot_be_combined_is_refused(models):
    other = RNNSearch(VS + 1, VT, **SIZES)
    with pytest.raises(ValueError, match=r"with the same source_vocabulary_size\. Received: 31, 32"):
        Ensemble([models[0], other])
    with pytest.raises(ValueError, match="Received: 0 models"):
        Ensemble([])
    with pytest.raises(ValueError, match=r"probability, log_probability\. Received: average='mean'"):
        Ensemble(models, average="mean")
    with pytest.raises(ValueError, match="one class and one size"):
        average_weights([models[0], models[2]])
    with pytest.raises(ValueError, match="Received: none"):
        average_weights([])


# Text to text.


@pytest.fixture(scope="module")
def presets(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets")
    tokenizers = [Tokenizer.train([" ".join(f"{side}{i}" for i in range(n - 4))], level="word") for side, n in SIDES]
    for i, model in enumerate(models[:2]):
        Translator(model, *tokenizers, max_length_ratio=1.5, max_length_constant=3).save_to_preset(folder / str(i))
    return folder / "0", folder / "1"


SIDES = (("s", VS), ("t", VT))
LINES = ["s1 s2 s3", "s20 s4 s4", "s9 s11 s26"]


def greedy_by_hand(models, source_ids, limit, average):
    """The members one eager step at a time, without padding, combined in NumPy."""
    memories, states = zip(*(m.encode(ops.convert_to_tensor([source_ids], "int32")) for m in models), strict=True)
    tokens, states = [START_ID], list(states)
    while tokens[-1] != END_ID and len(tokens) < limit:
        log_probs = []
        for i, model in enumerate(models):
            token = ops.convert_to_tensor(tokens[-1:], "int32")
            logits, states[i], _ = model.step(token, memories[i], states[i])
            log_probs.append(log_softmax(logits)[0])
        p = np.exp(log_probs).mean(0) if average == "probability" else np.exp(np.mean(log_probs, 0))
        p[[0, START_ID]] = 0
        tokens.append(int(p.argmax()))
    return tokens[1:] if tokens[-1] == END_ID else [*tokens[1:], END_ID]


def test_presets_translate_together(models, presets, tmp_path):
    average = "log_probability"
    translator = Translator.from_presets(presets, average=average)
    found = translator.generate(LINES, beam_size=1)
    for line, translation in zip(LINES, found, strict=True):
        ids = [*translator.source_tokenizer.encode(line), END_ID]
        limit = translator.limits().longest(len(ids))
        assert list(translation.token_ids) == greedy_by_hand(models[:2], ids, limit, average)
    translator.save_to_preset(tmp_path / "together")
    again = Translator.from_preset(tmp_path / "together").model
    assert (type(again), again.average) == (Ensemble, average)
    for old, now in zip(translator.model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(old, now)
    assert len({t.text for t in found}) == len(LINES)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="others export in a process with TensorFlow")
@pytest.mark.slow
def test_an_ensemble_is_exported_as_one_model_is(presets, tmp_path):
    """`export` itself translates a few sentences in a process of its own and compares them with `generate`."""
    options = {"beam_size": 2, "max_source_length": 17, "banned_tokens": ["<unk>", 7]}
    folder = Translator.from_presets(presets).export(tmp_path, **options)
    record = json.loads((folder / "assets.extra" / "keras_attn.json").read_text())
    assert record["model"] == "Ensemble"
    assert record["options"]["banned_tokens"] == [1, 7]


def test_presets_average_into_one_model(models, presets):
    translator = Translator.from_presets(presets, average="weights")
    assert type(translator.model) is RNNSearch
    expected = average_weights(models[:2]).get_weights()
    for old, now in zip(expected, translator.model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, now)
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
