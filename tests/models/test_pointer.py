"""Models with `pointer=True`: unknown words, search over the extended vocabulary, training, and ensembles."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import models
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from keras_attn.search import beam_search, greedy_search, sample

V, S = 7, 4
SOURCE = np.array([[V, 4, V, 3], [5, V + 1, 3, 0]], "int32")  # an unknown word twice; another one once
TARGET = np.array([[2, V, 4, 6, V], [2, V + 1, 5, 0, 0]], "int32")
INPUTS = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}
LABELS = np.array([[V, 4, 6, V, 3], [V + 1, 5, 3, 0, 0]], "int32")
SIZES = {"units": 5, "embedding_size": 11, "readout_size": 11, "attention_units": 13}


def make(seed=0, pointer=True):
    model = models.RNNSearch(V, V, **SIZES, pointer=pointer, initializer="glorot_uniform")
    random = np.random.default_rng(seed)  # of NumPy: the same weights on every backend
    for weight in model.trainable_weights:
        weight.assign(random.normal(size=weight.shape))
    return model


def test_an_unknown_word_is_read_as_unknown():
    model = make()
    unknown = {name: np.where(ids < V, ids, 1) for name, ids in INPUTS.items()}
    got, expected = (np.exp(ops.convert_to_numpy(model(x))) for x in (INPUTS, unknown))
    np.testing.assert_allclose(got[..., [0, 2, 3, 4, 5, 6]], expected[..., [0, 2, 3, 4, 5, 6]], atol=1e-6)
    # What was copied as the unknown id is copied as itself.
    np.testing.assert_allclose(got[0][:, [1, V]].sum(-1), expected[0][:, 1], atol=1e-6)


def test_a_wide_beam_finds_the_best_of_all_sequences():
    model, longest = make(), 3
    options = {"max_length": longest, "length_penalty": 1.0, "normalization": "gnmt"}
    result = beam_search(model.step, *model.encode(SOURCE), beam_size=100, n_best=3, **options)
    for row, words in enumerate([[1, 4, 5, 6, V], [1, 4, 5, 6, V + 1]]):
        bodies = [body for n in range(longest) for body in itertools.product(words, repeat=n)]
        labels = np.array([[*body, 3, 0, 0][:longest] for body in bodies], "int32")
        inputs = np.where(labels == 3, 0, labels)[:, :-1]
        inputs = np.concatenate([np.full((len(bodies), 1), 2, "int32"), inputs], axis=1)
        source = np.repeat(SOURCE[row : row + 1], len(bodies), axis=0)
        log_probs = ops.convert_to_numpy(model({"encoder_token_ids": source, "decoder_token_ids": inputs}))
        chosen = np.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
        lengths = (labels > 0).sum(-1)
        scores = np.where(labels > 0, chosen, 0).sum(-1) / ((5 + lengths) / 6)
        order = np.argsort(-scores)[:3]
        np.testing.assert_array_equal(ops.convert_to_numpy(result.token_ids)[row], labels[order])
        np.testing.assert_allclose(ops.convert_to_numpy(result.scores)[row], scores[order], atol=1e-4)


def test_greedy_search_and_samples_write_only_words_that_exist():
    model = make()
    model.pointer_generator.bias.assign([-50.0])  # it copies
    memory, state = model.encode(SOURCE)
    results = [greedy_search(model.step, memory, state, max_length=6)]
    results += [sample(model.step, memory, state, max_length=6, seed=seed, num_samples=5) for seed in range(3)]
    for result in results:
        for row, ids in enumerate(ops.convert_to_numpy(result.token_ids)):
            assert set(ids.flat) <= {0, *SOURCE[row].tolist()}
    assert any(V in ops.convert_to_numpy(result.token_ids)[0] for result in results)


def test_it_trains_on_words_outside_the_vocabulary():
    model, smoothing = make(), 0.1
    loss = SmoothedCrossentropy(smoothing, vocabulary_size=V)
    log_probs = ops.convert_to_numpy(model(INPUTS))
    chosen = np.take_along_axis(log_probs, LABELS[..., None], axis=-1)[..., 0]
    losses = -(1 - smoothing) * chosen - smoothing * log_probs[..., :V].mean(-1)
    weights = (LABELS > 0).astype("float32")
    model.compile(keras.optimizers.Adam(0.05), loss, weighted_metrics=[Perplexity(), TokenAccuracy()])
    history = model.fit(INPUTS, LABELS, sample_weight=weights, epochs=12, verbose=0).history
    np.testing.assert_allclose(history["loss"][0], (losses * weights).sum() / weights.sum(), rtol=1e-4)
    np.testing.assert_allclose(history["perplexity"][0], np.exp(-(chosen * weights).sum() / weights.sum()), rtol=1e-4)
    assert history["loss"][-1] < 0.5 * history["loss"][0]


@pytest.mark.parametrize("average", ["probability", "log_probability"])
def test_an_ensemble_is_the_mean_of_its_members(average):
    members = [make(seed=seed) for seed in (1, 2)]
    ensemble = models.Ensemble(members, average=average)
    assert ensemble.pointer
    got = np.exp(ops.convert_to_numpy(ensemble(INPUTS)))
    one, two = (np.exp(ops.convert_to_numpy(member(INPUTS))) for member in members)
    np.testing.assert_allclose(got, (one + two) / 2 if average == "probability" else np.sqrt(one * two), atol=1e-5)
    best = beam_search(ensemble.step, *ensemble.encode(SOURCE), beam_size=3, max_length=4)
    assert np.isfinite(ops.convert_to_numpy(best.scores)).all()
