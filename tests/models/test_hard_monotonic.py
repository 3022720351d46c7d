"""HardMonotonicSeq2Seq: against every alignment enumerated, in all its kinds; a copy task; what it refuses."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import models
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.search import beam_search
from tests import hard_attention_oracle

pytestmark = pytest.mark.by_turns

B, S, T, VS, VT = 3, 5, 4, 31, 11
SIZES = {"units": 3, "num_layers": 2, "embedding_size": 7, "decoder_units": 5, "readout_size": 6}
KINDS = [{"order": order, "monotonic": monotonic} for order, monotonic in itertools.product((0, 1), (True, False))]


def make(**options):
    model = models.HardMonotonicSeq2Seq(VS, VT, **{**SIZES, **options}, initializer="glorot_uniform")
    for i, weight in enumerate(model.trainable_weights):
        weight.assign(keras.random.normal(weight.shape, stddev=0.7, seed=i))
    return model


@pytest.fixture
def inputs(rng):
    source, target = rng.integers(4, VS, (B, S)), rng.integers(4, VT, (B, T))
    source[1, 3:] = 0
    source[2, 1:] = 0
    return {"encoder_token_ids": source.astype("int32"), "decoder_token_ids": target.astype("int32")}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_sums_over_every_alignment(inputs, kind):
    model = make(**kind, window=2)
    weights = {weight.path: ops.convert_to_numpy(weight) for weight in model.trainable_weights}
    expected, posterior = hard_attention_oracle.transducer(
        weights, *inputs.values(), layers=SIZES["num_layers"], **kind, window=2
    )
    found = model.predict_on_batch(inputs)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(np.exp(found).sum(-1), 1, atol=1e-5)  # log-probabilities
    ids = [ops.convert_to_tensor(inputs[name]) for name in inputs]
    found = ops.convert_to_numpy(model.align_posterior(*ids))
    np.testing.assert_allclose(found, posterior, atol=1e-5)
    alone = ops.convert_to_numpy(model.align(*ids)[1])
    np.testing.assert_allclose(found[:, -1], alone[:, -1], atol=1e-5)  # nothing is known beyond
    assert np.abs(found[:2] - alone[:2]).max() > 0.01


@pytest.mark.parametrize("order", [0, 1])
def test_a_monotonic_alignment_never_goes_back(inputs, order):
    """Of every path with a probability, and for order 1 of jumps within the window."""
    model = make(order=order, window=1)
    memory, _ = model.encode(ops.convert_to_tensor(inputs["encoder_token_ids"]))
    states = ops.convert_to_tensor(np.random.default_rng(3).normal(size=(B, T, 5)).astype("float32"))
    probs = np.exp(ops.convert_to_numpy(model.alignment.log_transitions(states, memory["alignment"], memory["mask"])))
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-5)
    real = np.flatnonzero(inputs["encoder_token_ids"][1])
    for k in real:
        forbidden = [j for j in range(S) if j < k or j not in real or (order == 1 and j > k + 1)]
        np.testing.assert_array_equal(probs[1, :, k, forbidden], 0)
        assert (probs[1, :, k, k] > 0).all()


def test_gradients_are_finite_where_alignments_are_impossible(inputs):
    """Sources of one word, targets beyond the window, and rows of padding alone."""
    model = make(order=1, window=1)
    source = inputs["encoder_token_ids"].copy()
    source[2] = 0
    model.compile(keras.optimizers.SGD(1.0), SmoothedCrossentropy())
    batch = {**inputs, "encoder_token_ids": source}
    loss = model.train_on_batch(batch, inputs["decoder_token_ids"], sample_weight=np.ones((B, T), "float32"))
    assert np.isfinite(float(loss))
    assert all(np.isfinite(ops.convert_to_numpy(weight)).all() for weight in model.trainable_weights)


@pytest.mark.slow
@pytest.mark.parametrize("order", [0, 1])
def test_learns_to_read_each_symbol_once_or_twice(order):
    """Symbols below 8 are copied, those above twice; with order 0 the posterior finds which was read from which."""
    keras.utils.set_random_seed(7)
    random = np.random.default_rng(7)
    rows = [random.integers(4, VT, 4) for _ in range(256)]
    spelled = [[y for x in row for y in [x] * (1 + (x > 7))] for row in rows]
    source = np.array([[*row, 3] for row in rows], "int32")
    target, labels = (np.zeros((256, 9), "int32") for _ in range(2))
    for n, row in enumerate(spelled):
        target[n, : len(row) + 1], labels[n, : len(row) + 1] = [2, *row], [*row, 3]
    model = models.HardMonotonicSeq2Seq(
        VT, VT, units=16, num_layers=1, embedding_size=16, readout_size=24, order=order, initializer="glorot_uniform"
    )
    model.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy(0.0))
    batch = {"encoder_token_ids": source, "decoder_token_ids": target}
    model.fit(batch, labels, sample_weight=(labels > 0) * 1.0, batch_size=32, epochs=12, verbose=0)
    chosen = model.predict(batch, verbose=0).argmax(-1)
    assert (chosen == labels)[labels > 0].mean() > 0.98
    if order == 0:  # with order 1 the encoder may move a symbol to its neighbour's place, and all jumps with it
        ids = [ops.convert_to_tensor(array[:1]) for array in (source, target)]
        posterior = ops.convert_to_numpy(model.align_posterior(*ids))[0, : len(spelled[0])]
        read_from = [j for j, x in enumerate(rows[0]) for _ in range(1 + (x > 7))]
        assert (posterior.argmax(-1) == read_from).mean() > 0.7


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX has no float64 unless it is told so at its start")
@pytest.mark.parametrize("order", [0, 1])
def test_double_precision_computes_and_searches_alike(inputs, order):
    single, double = make(order=order), make(order=order, dtype="float64")
    double.set_weights(single.get_weights())
    np.testing.assert_allclose(double.predict_on_batch(inputs), single.predict_on_batch(inputs), atol=1e-5)
    source = ops.convert_to_tensor(inputs["encoder_token_ids"])
    best = [beam_search(m.step, *m.encode(source), beam_size=2, max_length=3) for m in (single, double)]
    np.testing.assert_array_equal(*[ops.convert_to_numpy(found.token_ids) for found in best])
    np.testing.assert_allclose(*[ops.convert_to_numpy(found.scores) for found in best], rtol=1e-5)


def test_refuses_what_it_does_not_have():
    with pytest.raises(ValueError, match=r"Expected `order` 0 or 1\. Received: order=2"):
        make(order=2)
    with pytest.raises(ValueError, match="`window` to be a positive whole number"):
        make(window=0)
    for name in ("scheduled_sampling", "coverage_loss", "pointer"):
        with pytest.raises(ValueError, match=f"Expected arguments among.*Received: {name}"):
            make(**{name: 0.5})


def test_guided_alignment_trains_the_alignment(inputs):
    model = make()
    links = np.zeros((B, T, S), "float32")
    links[:, :, 0] = 1
    model.compile(keras.optimizers.SGD(0.5), SmoothedCrossentropy())
    ids = [ops.convert_to_tensor(inputs[name]) for name in inputs]
    before = ops.convert_to_numpy(model.align(*ids)[1])[:2, 0, 0]
    for _ in range(3):
        model.train_on_batch({**inputs, "alignments": links}, inputs["decoder_token_ids"])
    assert (ops.convert_to_numpy(model.align(*ids)[1])[:2, 0, 0] > before).all()
