"""PointerGenerator against the paper's sum in NumPy, with words that repeat and words outside the vocabulary."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import PointerGenerator
from tests import oracles
from tests.gradients import gradients

pytestmark = pytest.mark.by_turns

B, T, S, E, H, M, V = 2, 3, 5, 7, 11, 13, 17
IDS = np.array([[V, 4, V, 4, V + 3], [5, V + 1, 3, 0, 0]], "int32")
MASK = np.array([[True] * S, [True, True, True, False, False]])


@pytest.fixture
def arrays(rng):
    """Logits, state, embedding, context and alignment, of all steps."""
    floats = [rng.normal(size=(B, T, n)).astype("float32") for n in (V, H, E, M)]
    weights = np.exp(rng.normal(size=(B, T, S))) * MASK[:, None]
    return [*floats, (weights / weights.sum(-1, keepdims=True)).astype("float32")]


def built(bias=0.3):
    layer = PointerGenerator()
    layer.build((B, V), (B, H), (B, E), (B, M))
    layer.bias.assign([bias])
    return layer


def expected(layer, arrays):
    logits, state, embedding, context, alignment = (x.astype("float64") for x in arrays)
    w_s, w_y, w_c, bias = (ops.convert_to_numpy(w).astype("float64") for w in layer.weights)
    p_gen = oracles.sigmoid(state @ w_s + embedding @ w_y + context @ w_c + bias)[..., 0]  # (B, T)
    rows = zip(logits, p_gen, alignment, IDS, MASK, strict=True)
    return np.array([oracles.pointer_generator(*row) for row in rows])


def test_all_steps_and_one_step_have_the_papers_probabilities(arrays):
    layer = built()
    whole = ops.convert_to_numpy(layer(*arrays, IDS, MASK))
    assert whole.shape == (B, T, V + S)
    np.testing.assert_allclose(np.exp(whole), expected(layer, arrays), atol=1e-6)
    np.testing.assert_allclose(np.exp(whole).sum(-1), 1, atol=1e-5)
    assert np.isneginf(whole[0, :, [V + 1, V + 2, V + 4]]).all()  # words that the source does not have
    for t in range(T):
        step = layer(*(x[:, t] for x in arrays), IDS, MASK)
        np.testing.assert_allclose(ops.convert_to_numpy(step), whole[:, t], atol=1e-5)


def test_a_case_solved_by_hand():
    """Half is generated, evenly over 4 words; of the other half word 1 has 0.2 + 0.3, and the unknown word 0.5."""
    zeros = [np.zeros((1, n), "float32") for n in (4, 1, 1, 1)]
    alignment = np.array([[0.2, 0.5, 0.3]], "float32")
    got = PointerGenerator()(*zeros, alignment, np.array([[1, 5, 1]]), np.ones((1, 3), bool))
    np.testing.assert_allclose(np.exp(ops.convert_to_numpy(got)), [[0.125, 0.375, 0.125, 0.125, 0, 0.25, 0]], atol=1e-6)


@pytest.mark.parametrize("bias", [-1e4, 1e4])
def test_only_copies_and_no_copy_have_finite_losses_and_gradients(arrays, bias):
    layer = built(bias)
    arrays[4][:, :, :2] = 0  # words of the source without any alignment
    labels = np.array([[V, 4, V + 3], [5, V + 1, 3]])

    def loss(*inputs):
        log_probs = layer(*inputs, IDS, MASK)
        return -ops.sum(ops.take_along_axis(log_probs, labels[..., None], axis=-1))

    found = gradients(loss, *arrays)
    assert np.isfinite(ops.convert_to_numpy(loss(*arrays)))
    assert all(np.isfinite(gradient).all() for gradient in found)
    log_probs = ops.convert_to_numpy(layer(*arrays, IDS, MASK))
    copied = np.zeros((B, V + S), bool)
    np.put_along_axis(copied, np.where(MASK, IDS, 3), True, axis=1)
    sums = np.exp(log_probs[:, :, :]) * copied[:, None]
    if bias < 0:
        np.testing.assert_allclose(sums.sum(-1), arrays[4].sum(-1), atol=1e-5)
    else:
        np.testing.assert_allclose(np.exp(log_probs[..., :V]), oracles.softmax(arrays[0]), atol=1e-5)


def test_gradients_are_those_of_the_papers_sum(arrays, rng):
    layer = built()
    possible = expected(layer, arrays) > 0
    weights = np.where(possible, rng.normal(size=(B, T, V + S)), 0)

    def loss(*inputs):
        log_probs = layer(*inputs, IDS, MASK)
        log_probs = ops.where(ops.convert_to_tensor(possible), log_probs, 0.0)
        return ops.sum(log_probs * ops.convert_to_tensor(weights.astype("float32")))

    def by_hand(inputs):
        probabilities = expected(layer, inputs)
        return (np.log(np.where(possible, probabilities, 1)) * weights).sum()

    found = gradients(loss, *arrays)
    for number, (x, gradient) in enumerate(zip(arrays, found, strict=True)):
        for place in [tuple(rng.integers(n) for n in x.shape) for _ in range(4)]:
            if number == 4 and not MASK[place[0], place[2]]:
                continue
            step = np.zeros(x.shape)
            step[place] = 1e-5
            up, down = (by_hand([*arrays[:number], x + sign * step, *arrays[number + 1 :]]) for sign in (1, -1))
            np.testing.assert_allclose(gradient[place], (up - down) / 2e-5, rtol=2e-3, atol=1e-4)


@pytest.mark.not_by_turns
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float64"])
def test_log_probabilities_are_float32_or_wider(arrays, dtype):
    if dtype == "float64" and keras.backend.backend() == "jax":
        pytest.skip("float64 is switched off for the whole process")
    layer = PointerGenerator(dtype=dtype)
    got = layer(*(x.astype("float64") if dtype == "float64" else x for x in arrays), IDS, MASK)
    assert keras.backend.standardize_dtype(got.dtype) == ("float64" if dtype == "float64" else "float32")
    tolerance = 1e-14 if dtype == "float64" else 0.02
    arrays = [x.astype("float64") for x in arrays]
    np.testing.assert_allclose(np.exp(ops.convert_to_numpy(got)), expected(layer, arrays), rtol=0, atol=tolerance)


def test_the_config_makes_the_same_layer():
    layer = PointerGenerator(kernel_initializer="he_normal", name="another")
    again = PointerGenerator.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    with pytest.raises(ValueError, match=r"Expected arguments among: .*kernel_initializer"):
        PointerGenerator(units=3)
