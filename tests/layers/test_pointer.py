"""PointerGenerator where it only copies or only generates; tests/contracts has the paper's sum."""

import numpy as np
import pytest
from keras import ops

from keras_attn import PointerGenerator
from tests import oracles
from tests.gradients import gradients

B, T, S, E, H, M, V = 2, 3, 5, 7, 11, 13, 17
IDS = np.array([[V, 4, V, 4, V + 3], [5, V + 1, 3, 0, 0]], "int32")
MASK = np.array([[True] * S, [True, True, True, False, False]])


@pytest.fixture
def arrays(rng):
    """Logits, state, embedding, context and alignment, of all steps."""
    floats = [rng.normal(size=(B, T, n)).astype("float32") for n in (V, H, E, M)]
    weights = np.exp(rng.normal(size=(B, T, S))) * MASK[:, None]
    return [*floats, (weights / weights.sum(-1, keepdims=True)).astype("float32")]


@pytest.mark.parametrize("bias", [-1e4, 1e4])
def test_only_copies_and_no_copy_have_finite_losses_and_gradients(arrays, bias):
    layer = PointerGenerator()
    layer.build((B, V), (B, H), (B, E), (B, M))
    layer.bias.assign([bias])
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
