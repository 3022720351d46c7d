"""Hardmax, sparsemax and functions of one's own in the place of softmax."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.layers import hardmax, sparsemax
from tests import oracles
from tests.gradients import gradients, numeric_gradients

pytestmark = pytest.mark.by_turns

SHAPE = 3, 5, 7  # B, T, S
MASK = np.array([[True] * 7, [True, False, True, True, False, False, True], [False] * 7])


@pytest.fixture
def scores(rng):
    return rng.normal(size=SHAPE).astype("float32")


def test_sparsemax_is_the_nearest_point_of_the_simplex(scores):
    found = ops.convert_to_numpy(sparsemax(scores))
    expected = np.apply_along_axis(oracles.sparsemax, -1, scores.astype("float64"))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (found == 0).any()
    assert ((found > 0).sum(-1) > 1).any()


def test_sparsemax_by_hand():
    """0.1 apart: (1 + 0.1) / 2 and (1 - 0.1) / 2; more than 1 apart: hard; equal: uniform."""
    rows = np.array([[1.0, 0.9, -5.0], [3.0, 1.5, 1.0], [2.0, 2.0, 2.0]], "float32")
    np.testing.assert_allclose(
        ops.convert_to_numpy(sparsemax(rows)), [[0.55, 0.45, 0], [1, 0, 0], [1 / 3] * 3], atol=1e-6
    )


def test_sparsemax_has_the_gradient_of_the_paper(scores, rng):
    weights = rng.normal(size=SHAPE).astype("float32")
    (found,) = gradients(lambda x: ops.sum(sparsemax(x) * ops.convert_to_tensor(weights)), scores)
    support = ops.convert_to_numpy(sparsemax(scores)) > 0
    mean = (weights * support).sum(-1, keepdims=True) / support.sum(-1, keepdims=True)  # section 2.5, eq. 14
    np.testing.assert_allclose(found, support * (weights - mean), atol=1e-5)
    one = slice(0, 1)
    (numeric,) = numeric_gradients(
        lambda x: (np.apply_along_axis(oracles.sparsemax, -1, x) * weights[one, one]).sum(),
        scores[one, one].astype("float64"),
    )
    np.testing.assert_allclose(found[one, one], numeric, atol=1e-2)


def test_hardmax_takes_the_first_of_the_highest():
    rows = np.array([[1.0, 3.0, 3.0], [-1.0, -2.0, -3.0]], "float32")
    np.testing.assert_array_equal(ops.convert_to_numpy(hardmax(rows)), [[0, 1, 0], [1, 0, 0]])


@keras.saving.register_keras_serializable(package="tests")
def smooth(scores):
    """Chorowski 2015, section 2.3: a sigmoid in the place of the exponential."""
    shares = ops.sigmoid(scores)
    return shares / (ops.sum(shares, axis=-1, keepdims=True) + 1e-9)


@pytest.mark.parametrize("normalizer", ["hardmax", "sparsemax", smooth])
@pytest.mark.parametrize("cls", [ka.DotAttention, ka.LuongAttention, ka.LocalPredictiveAttention])
def test_a_layer_with_it_masks_saves_and_loads(normalizer, cls, rng, tmp_path):
    score = () if cls is ka.DotAttention else ("dot",)
    layer = cls(*score, normalizer=normalizer)
    query, values = (rng.normal(size=(3, n, 4)).astype("float32") for n in (5, 7))
    alignment = ops.convert_to_numpy(layer(query, values, mask=MASK)[1])
    np.testing.assert_array_equal(np.swapaxes(alignment, 1, 2)[~MASK], 0)
    if cls is not ka.LocalPredictiveAttention:
        np.testing.assert_allclose(alignment.sum(-1)[:2], 1, atol=1e-5)
    shared = keras.Input((5, 4)), keras.Input((7, 4))
    model = keras.Model(shared, layer(*shared)[:2])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.layers[-1].normalizer == normalizer
    found, expected = (ops.convert_to_numpy(m([query, values])[1]) for m in (again, model))
    np.testing.assert_array_equal(found, expected)
