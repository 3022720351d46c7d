"""The forward-backward algorithm and the hard alignment's layers: a case solved by hand, dtypes, config."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.layers import HardAlignment, PairReadout

pytestmark = pytest.mark.by_turns


def test_two_words_by_hand():
    """Equal scores: from the first word either of two with 1/2; the second is never left. Then y_1 = 0 is read."""
    emissions = np.array([[[3 / 4, 1 / 4], [1 / 4, 3 / 4]]] * 2)[None]  # (1, 2, 2, 2)
    states, values = np.ones((1, 2, 3), "float32"), np.ones((1, 2, 5), "float32")
    layer = HardAlignment(kernel_initializer="zeros")
    arguments = states, values, np.log(emissions).astype("float32"), np.array([[9, 0]], "int32")
    log_probs, log_alignments = layer(*arguments)
    # After y_1 = 0: 3/4 at the first word, 1/4 at the second. Then half of the first's goes on.
    np.testing.assert_allclose(np.exp(ops.convert_to_numpy(log_alignments)), [[[1 / 2, 1 / 2], [3 / 8, 5 / 8]]], 1e-6)
    np.testing.assert_allclose(np.exp(ops.convert_to_numpy(log_probs)), [[[1 / 2, 1 / 2], [7 / 16, 9 / 16]]], 1e-6)
    found = ops.convert_to_numpy(layer.posterior(*map(ops.convert_to_tensor, arguments)))
    np.testing.assert_allclose(found, [[[3 / 4, 1 / 4], [3 / 8, 5 / 8]]], 1e-6)


@pytest.mark.parametrize(("order", "monotonic"), [(0, True), (1, True), (1, False)])
def test_half_precision_sums_in_float32(order, monotonic):
    layer = HardAlignment(order, monotonic=monotonic, window=2, dtype="mixed_bfloat16")
    states, values = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 11), "float32")
    log_emissions = np.full((2, 3, 7, 13), np.log(1 / 13), "float32")
    mask = np.arange(7) < np.array([[7], [4]])
    results = layer(states, values, log_emissions, np.ones((2, 3), "int32"), mask=mask)
    assert [keras.backend.standardize_dtype(x.dtype) for x in results] == ["float32"] * 2
    log_probs, log_alignments = map(ops.convert_to_numpy, results)
    np.testing.assert_allclose(log_probs, np.log(1 / 13), rtol=1e-5)
    np.testing.assert_allclose(np.exp(log_alignments).sum(-1), 1, atol=0.01)
    assert np.exp(log_alignments)[1, :, 4:].max() == 0


def test_configs_go_round():
    layer = HardAlignment(1, monotonic=False, window=3, kernel_initializer="he_normal", name="a")
    again = HardAlignment.from_config(layer.get_config())
    assert (again.order, again.monotonic, again.window, len(again.jumps)) == (1, False, 3, 7)
    assert again.get_config() == layer.get_config()
    readout = PairReadout.from_config(PairReadout(7, kernel_initializer="he_normal").get_config())
    assert (readout.units, type(readout.kernel_initializer).__name__) == (7, "HeNormal")
    with pytest.raises(ValueError, match="`units` to be a positive whole number"):
        PairReadout(0)


def test_features_of_pairs_are_those_of_the_concatenation(rng):
    states, values = rng.normal(size=(2, 3, 5)).astype("float32"), rng.normal(size=(2, 7, 11)).astype("float32")
    layer = PairReadout(13)
    found = ops.convert_to_numpy(layer(states, values))
    kernel = np.concatenate([ops.convert_to_numpy(w) for w in (layer.state_kernel, layer.memory_kernel)])
    for i, j in ((0, 0), (2, 6), (1, 3)):
        expected = np.tanh(np.concatenate([states[1, i], values[1, j]]) @ kernel)
        np.testing.assert_allclose(found[1, i, j], expected, atol=1e-5)
