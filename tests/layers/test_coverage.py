"""Coverage in half precision, and the loss that reaches training; tests/contracts has the equations."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.models import LuongSeq2Seq, RNNSearch

B, T, S, H, M, A = 2, 3, 5, 7, 11, 13
SIZES = {"units": 5, "embedding_size": 7, "readout_size": 11}


def test_keras_does_not_round_the_state_of_an_attention_in_half_precision(rng):
    keras.config.set_dtype_policy("mixed_bfloat16")
    query, values = rng.normal(size=(B, H)).astype("float32"), rng.normal(size=(B, S, M)).astype("float32")
    state = ops.convert_to_tensor(np.full((B, S), 1.001, "float32"))  # of which bfloat16 makes 1
    heads, coverage = ka.MultiHeadAttention(1, score="coverage"), ka.CoverageAttention(A)
    for layer, given in ((heads, state[:, None]), (coverage, state)):
        _, alignment, after = layer(query, values, state=given)
        np.testing.assert_allclose(ops.convert_to_numpy(after - alignment), 1.001, atol=1e-5)
    certain = ka.BahdanauMonotonicAttention(A, mode="recursive", score_bias_initializer=keras.initializers.Constant(99))
    _, alignment, _ = certain(query, values, state=state)  # stops where the last step stopped
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (alignment, state)))


def coverage_loss(alignments, mask):
    """See 2017, eq. 12, step by step: the mean over real steps."""
    total, steps = 0.0, 0
    for alignment, real in zip(alignments.astype("float64"), mask, strict=True):
        covered = np.zeros(alignment.shape[-1])
        for row in alignment[real]:
            total += np.minimum(row, covered).sum()
            covered += row
            steps += 1
    return total / steps


def doubly_stochastic_loss(alignments, mask):
    """Xu 2015, eq. 14: the mean over places."""
    rows = zip(alignments.astype("float64"), mask, strict=True)
    return np.mean([(1 - alignment[real].sum(axis=0)) ** 2 for alignment, real in rows])


each_loss = pytest.mark.parametrize(
    ("loss_layer", "equation"),
    [(ka.CoverageLoss, coverage_loss), (ka.DoublyStochasticLoss, doubly_stochastic_loss)],
    ids=["coverage", "doubly stochastic"],
)


@each_loss
def test_the_loss_follows_the_equation_and_is_added_in_training_alone(rng, loss_layer, equation):
    alignments = rng.dirichlet(np.ones(S), (B, T)).astype("float32")
    mask = np.array([[True] * T, [True, True, False]])
    layer = loss_layer(0.5)
    inputs = np.ones((B, T, 2), "float32")
    np.testing.assert_array_equal(ops.convert_to_numpy(layer(inputs, alignments, mask=mask, training=True)), inputs)
    (loss,) = layer.losses
    np.testing.assert_allclose(ops.convert_to_numpy(loss), 0.5 * equation(alignments, mask), rtol=1e-5)
    layer(inputs, alignments, mask=mask)
    assert layer.losses == []
    layer(inputs, alignments, training=True)
    expected = 0.5 * equation(alignments, np.ones_like(mask))
    np.testing.assert_allclose(ops.convert_to_numpy(layer.losses[0]), expected, rtol=1e-5)
    half = loss_layer(0.5, dtype="mixed_bfloat16")  # alignments as they are
    assert keras.backend.standardize_dtype(half(inputs, alignments, training=True).dtype) == "bfloat16"
    np.testing.assert_allclose(ops.convert_to_numpy(half.losses[0]), expected, rtol=1e-5)


@each_loss
def test_the_loss_leaves_out_steps_that_the_inputs_mask(rng, loss_layer, equation):
    alignments = rng.dirichlet(np.ones(S), (B, T)).astype("float32")
    ids = np.array([[2, 3, 4], [5, 6, 0]])
    inputs = keras.layers.Embedding(7, 2, mask_zero=True)(ids)
    layer = loss_layer()
    layer(inputs, alignments, training=True)
    np.testing.assert_allclose(ops.convert_to_numpy(layer.losses[0]), equation(alignments, ids > 0), rtol=1e-5)
    with pytest.raises(ValueError, match=r"Expected a mask of shape \(B, S\)"):
        layer(inputs, alignments, mask=np.array([3, 2]), training=True)


@pytest.fixture
def batch(rng):
    """Three sentence pairs of different lengths, and a row that fills the batch: a start, no word, no weight."""
    source, labels = rng.integers(4, 31, (4, 6)).astype("int32"), rng.integers(4, 37, (4, 5)).astype("int32")
    for row, (s, t) in enumerate(((6, 5), (4, 3), (2, 4), (1, 0))):
        source[row, s:], labels[row, t:], labels[row, t - 1 : t] = 0, 0, 3
    target = np.concatenate([np.full((4, 1), 2), labels[:, :-1]], axis=1).astype("int32")
    return {"encoder_token_ids": source, "decoder_token_ids": target}, labels, (labels != 0).astype("float32")


def covered(weight, **options):
    return RNNSearch(31, 37, **SIZES, attention="coverage", coverage_loss=weight, **options)


def outside_the_loop(weight):
    heads = ka.MultiHeadAttention(1)
    return LuongSeq2Seq(31, 37, **SIZES, num_layers=1, attention=heads, input_feeding=False, coverage_loss=weight)


def compiled(model):
    for i, w in enumerate(model.trainable_weights):
        w.assign(keras.random.normal(w.shape, stddev=0.5, seed=i))
    jit_compile = keras.backend.backend() == "jax"  # XLA takes longer to compile than all else here
    model.compile(keras.optimizers.SGD(0.1), ka.losses.SmoothedCrossentropy(0.0), jit_compile=jit_compile)
    return model


def fitted(model, batch):
    inputs, labels, weights = batch
    return model.fit(inputs, labels, sample_weight=weights, batch_size=4, verbose=0).history["loss"][0]


@pytest.mark.parametrize("make", [covered, outside_the_loop])
def test_fit_adds_the_loss_over_real_target_tokens_to_the_crossentropy(batch, make):
    """Filled rows, padding of either side and `evaluate` have none of it; where no token counts, it alone is left."""
    inputs, labels, weights = batch
    model = compiled(make(2.0))
    alignments = model.align(*(ops.convert_to_tensor(x) for x in inputs.values()))[1]
    expected = coverage_loss(ops.convert_to_numpy(alignments), weights.astype("bool"))
    assert expected > 0.1
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    crossentropy = model.evaluate(inputs, labels, sample_weight=weights, batch_size=4, verbose=0)
    np.testing.assert_allclose(fitted(model, batch), crossentropy + 2.0 * expected, rtol=1e-4)
    for weight, value in zip(model.trainable_weights, before, strict=True):
        weight.assign(value)
    np.testing.assert_allclose(fitted(model, (inputs, labels, 0 * weights)), 2.0 * expected, rtol=1e-4)
    pairs = zip(model.trainable_weights, before, strict=True)
    moved = [new.path for new, old in pairs if np.abs(ops.convert_to_numpy(new) - old).max() > 0]
    assert any(path.endswith("query_kernel") for path in moved)


def test_with_scheduled_sampling_the_loss_is_added_and_dropout_acts(batch):
    """Then the model's layers are called one by one, which on JAX nothing but an argument tells that they train."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = compiled(covered(100.0, scheduled_sampling=0.0, output_dropout=0.5))
    model.optimizer.learning_rate = 0.0
    losses = [fitted(model, batch) for _ in range(2)]
    assert min(losses) > 15  # the cross-entropy is about 5
    assert losses[0] != losses[1]
