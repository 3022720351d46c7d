"""Models with `pointer=True`: steps, search over the extended vocabulary, training, files, ensembles, and refusals."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn
from keras_attn import ParallelDataset, models
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from keras_attn.search import beam_search, greedy_search, sample
from keras_attn.text import Tokenizer

pytestmark = pytest.mark.by_turns

V, S = 7, 4
SOURCE = np.array([[V, 4, V, 3], [5, V + 1, 3, 0]], "int32")  # an unknown word twice; another one once
TARGET = np.array([[2, V, 4, 6, V], [2, V + 1, 5, 0, 0]], "int32")
INPUTS = {"encoder_token_ids": SOURCE, "decoder_token_ids": TARGET}
LABELS = np.array([[V, 4, 6, V, 3], [V + 1, 5, 3, 0, 0]], "int32")
KINDS = {
    "rnnsearch": (models.RNNSearch, {"units": 5, "embedding_size": 11, "readout_size": 11, "attention_units": 13}),
    "luong": (models.LuongSeq2Seq, {"units": 6, "num_layers": 1, "embedding_size": 5, "readout_size": 7}),
    "luong, tied, not fed": (
        models.LuongSeq2Seq,
        {
            "units": 6,
            "num_layers": 1,
            "embedding_size": 5,
            "readout_size": 5,
            "tie_embeddings": "all",
            "input_feeding": False,
        },
    ),
    "gnmt": (models.GNMTSeq2Seq, {"units": 5, "embedding_size": 7, "encoder_layers": 2, "decoder_layers": 2}),
    "rnmt_plus": (
        models.RNMTPlusSeq2Seq,
        {"units": 6, "embedding_size": 7, "encoder_layers": 1, "decoder_layers": 2, "num_heads": 3},
    ),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind="rnnsearch", seed=0, **options):
    cls, sizes = KINDS[kind]
    model = cls(V, V, **{**sizes, "pointer": True, **options}, initializer="glorot_uniform")
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


@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_finds_the_best_of_all_sequences(seed):
    model, longest = make(seed=seed), 3
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


@pytest.mark.parametrize("smoothing", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
def test_it_trains_on_words_outside_the_vocabulary(smoothing):
    model = make()
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
    again = SmoothedCrossentropy.from_config(loss.get_config())
    assert again.get_config() == loss.get_config()


def test_batches_of_text_have_temporary_ids_and_every_model_trains_on_them():
    lines = ["ada met bo", "bo met ada and cy", "we met"], ["bo met ada", "cy and ada", "we met"]
    tokenizer = Tokenizer.train(["we met and"], level="word")
    assert tokenizer.vocabulary_size == V
    data = ParallelDataset.from_text(*lines, tokenizer, tokenizer, batch_size=2, pointer=True, shuffle=False)
    inputs, labels, _ = data[0]
    assert data.largest_token_ids == (V + 4, V + 4)
    assert (inputs["decoder_token_ids"][:, 1:] == np.where(labels == 3, 0, labels)[:, :-1]).all()
    model = make()
    model.compile("adam", SmoothedCrossentropy(0.0))
    assert np.isfinite(model.fit(data, verbose=0, validation_data=data).history["val_loss"]).all()
    plain = make(pointer=False)
    plain.compile("adam", SmoothedCrossentropy(0.0))
    with pytest.raises(ValueError, match=f"from 0 to {V - 1}, the ids of the model's vocabulary. Received: {V + 4}"):
        plain.fit(data, verbose=0)
    other = Tokenizer.train(["we met or"], level="word")
    with pytest.raises(ValueError, match="Expected the same tokenizer for source and target"):
        ParallelDataset.from_text(*lines, tokenizer, other, batch_size=2, pointer=True)
    with pytest.raises(ValueError, match="Expected on_too_long='drop' with `pointer=True`"):
        ParallelDataset.from_text(
            *lines, tokenizer, tokenizer, batch_size=2, pointer=True, max_length=4, on_too_long="truncate"
        )


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        ValueError, match=r"Expected one joint vocabulary with `pointer=True`.*target_vocabulary_size=8"
    ):
        models.RNNSearch(V, V + 1, **KINDS["rnnsearch"][1], pointer=True)
    model = make()
    model.compile("adam", SmoothedCrossentropy(0.1))
    with pytest.raises(ValueError, match=r"Expected `SmoothedCrossentropy\(0.1, vocabulary_size=7\)`"):
        model.fit(INPUTS, LABELS, verbose=0)
    beyond = {**INPUTS, "encoder_token_ids": SOURCE + S + 1}
    with pytest.raises(ValueError, match=f"Expected encoder_token_ids from 0 to {V + S - 1}"):
        keras_attn.check_ids((beyond, LABELS), model)
    with pytest.raises(ValueError, match=r"with the same pointer\. Received: True, False"):
        models.Ensemble([make(), make(pointer=False)])


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
