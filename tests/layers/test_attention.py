"""BahdanauAttention against the equations written out, a case solved by hand, and its contract."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import BahdanauAttention
from tests.oracles import additive_attention

pytestmark = pytest.mark.by_turns

B, T, S, H, M, A = 2, 3, 5, 7, 11, 13


@pytest.fixture
def arrays(rng):
    values = rng.normal(size=(B, S, M)).astype("float32")
    queries = rng.normal(size=(B, T, H)).astype("float32")
    mask = np.array([[True] * S, [True, False, True, True, False]])
    return queries, values, mask


def built(**options):
    layer = BahdanauAttention(A, **options)
    layer.build((B, H), (B, S, M))
    for i, weight in enumerate(layer.weights):  # zeros and ones would hide mistakes
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i, dtype="float32"))
    return layer


def call(layer, *args, **kwargs):
    context, alignment, state = layer(*args, **kwargs)
    return ops.convert_to_numpy(context), ops.convert_to_numpy(alignment), state


@pytest.mark.parametrize("options", [{}, {"use_bias": True}, {"normalize": True}], ids=str)
def test_follows_the_equations(arrays, options):
    queries, values, mask = arrays
    layer = built(**options)
    weights = {w.name: ops.convert_to_numpy(w).astype("float64") for w in layer.weights}
    v = weights["score_vector"]
    if "normalize" in options:
        v = weights["gain"] * v / np.linalg.norm(v)
    context, alignment, state = call(layer, queries[:, 0], values, mask=mask)
    expected = additive_attention(
        queries[:, 0], values, mask, weights["query_kernel"], weights["key_kernel"], v, weights.get("bias", 0.0)
    )
    np.testing.assert_allclose(context, expected[0], atol=1e-5)
    np.testing.assert_allclose(alignment, expected[1], atol=1e-6)
    assert state == ()


def test_a_case_solved_by_hand():
    """Scores tanh(0) = 0 and tanh(artanh(ln 3 / 2)) * 2 = ln 3: the alignment is (1/4, 3/4)."""
    layer = BahdanauAttention(1)
    layer.build((1, 1), (1, 2, 1))
    layer.query_kernel.assign([[1.0]])
    layer.key_kernel.assign([[1.0]])
    layer.score_vector.assign([2.0])
    values = np.array([[[-1.0], [np.arctanh(np.log(3) / 2) - 1.0]]], "float32")
    context, alignment, _ = call(layer, np.array([[1.0]], "float32"), values)
    np.testing.assert_allclose(alignment, [[0.25, 0.75]], atol=1e-6)
    np.testing.assert_allclose(context, [[0.25 * values[0, 0, 0] + 0.75 * values[0, 1, 0]]], atol=1e-6)


def test_all_steps_at_once_equal_one_at_a_time_with_keys_projected_once(arrays):
    queries, values, mask = arrays
    layer = built(use_bias=True)
    keys = layer.keys(ops.convert_to_tensor(values))
    contexts, alignments, _ = call(layer, queries, values, keys=keys, mask=mask)
    assert contexts.shape == (B, T, M)
    assert alignments.shape == (B, T, S)
    for t in range(T):
        context, alignment, _ = call(layer, queries[:, t], values, keys=keys, mask=mask)
        np.testing.assert_allclose(contexts[:, t], context, atol=1e-6)
        np.testing.assert_allclose(alignments[:, t], alignment, atol=1e-6)


def test_masked_positions_change_nothing_and_get_exactly_zero(arrays):
    queries, values, mask = arrays
    layer = built()
    context, alignment, _ = call(layer, queries[:, 0], values, mask=mask)
    noisy = np.where(mask[:, :, None], values, 1e3).astype("float32")
    again = call(layer, queries[:, 0], noisy, mask=mask)
    np.testing.assert_array_equal(alignment[~mask], 0)
    np.testing.assert_allclose(context, again[0], atol=1e-6)
    np.testing.assert_allclose(alignment, again[1], atol=1e-7)
    np.testing.assert_allclose(alignment.sum(-1), 1, atol=1e-6)


def test_a_fully_masked_row_gives_zeros_and_finite_gradients(arrays):
    from tests.gradients import gradients

    queries, values, mask = arrays
    mask = np.array([[False] * S, mask[1]])
    layer = built()
    context, alignment, _ = call(layer, queries[:, 0], values, mask=mask)
    np.testing.assert_array_equal(context[0], 0)
    np.testing.assert_array_equal(alignment[0], 0)
    tensor_mask = ops.convert_to_tensor(mask)
    for gradient in gradients(
        lambda q, v: ops.sum(ops.square(layer(q, v, mask=tensor_mask)[0])), queries[:, 0], values
    ):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_scores_stay_float32_under_mixed_precision(arrays, policy):
    queries, values, mask = arrays
    expected = call(built(), queries, values, mask=mask)
    keras.config.set_dtype_policy(policy)
    context, alignment, _ = built()(queries, values, mask=mask)
    assert keras.backend.standardize_dtype(alignment.dtype) == "float32"
    assert keras.backend.standardize_dtype(context.dtype) == policy.removeprefix("mixed_")
    np.testing.assert_allclose(ops.convert_to_numpy(alignment), expected[1], atol=0.05)


def test_gradients_reach_every_weight(arrays):
    queries, values, _mask = arrays
    query, memory = keras.Input((T, H)), keras.Input((S, M))
    layer = BahdanauAttention(A, normalize=True)
    context, _, _ = layer(query, memory)
    model = keras.Model([query, memory], context)
    model.compile("sgd", "mse")
    before = [ops.convert_to_numpy(w) for w in model.weights]
    model.train_on_batch([queries, values], np.ones((B, T, M), "float32"))
    assert len(before) == 5
    for old, new in zip(before, model.weights, strict=True):
        assert np.abs(old - ops.convert_to_numpy(new)).max() > 0, new.path


def test_config_round_trip():
    layer = BahdanauAttention(A, use_bias=True, score_initializer=keras.initializers.RandomNormal(stddev=0.5))
    again = BahdanauAttention.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@pytest.mark.parametrize("units", [0, -3, 2.5, "many"])
def test_sizes_that_cannot_be_are_refused(units):
    with pytest.raises(ValueError, match="positive whole number"):
        BahdanauAttention(units)


def test_keys_before_build_are_refused():
    with pytest.raises(ValueError, match="Expected a built layer"):
        BahdanauAttention(A).keys(np.ones((B, S, M), "float32"))
