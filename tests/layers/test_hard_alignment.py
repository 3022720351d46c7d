"""The forward-backward algorithm, in a case solved by hand; tests/contracts sums over every alignment."""

import numpy as np
from keras import ops

from keras_attn.layers import HardAlignment


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
