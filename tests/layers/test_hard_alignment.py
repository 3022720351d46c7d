"""The forward-backward algorithm and the hard alignment's layers: a case solved by hand, dtypes, config."""

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


def test_configs_go_round():
    layer = HardAlignment(1, monotonic=False, window=3, kernel_initializer="he_normal", name="a")
    again = HardAlignment.from_config(layer.get_config())
    assert (again.order, again.monotonic, again.window, len(again.jumps)) == (1, False, 3, 7)
    assert again.get_config() == layer.get_config()
    readout = PairReadout.from_config(PairReadout(7, kernel_initializer="he_normal").get_config())
    assert (readout.units, type(readout.kernel_initializer).__name__) == (7, "HeNormal")
    with pytest.raises(ValueError, match="`units` to be a positive whole number"):
        PairReadout(0)
