"""BiGRUEncoder against a GRU written out row by row."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import BiGRUEncoder
from tests.oracles import bidirectional_gru

pytestmark = pytest.mark.by_turns

B, S, E, H = 3, 5, 7, 11
MASKS = {
    "right": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]],
    "left": [[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1]],
    "anywhere, and an empty row": [[1, 0, 1, 1, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]],
}


def randomised(encoder):
    encoder.build((B, S, E))
    for i, weight in enumerate(encoder.weights):
        if "seed" not in weight.path:
            weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i))
    return encoder


def numpy_weights(cell):
    return [ops.convert_to_numpy(w).astype("float64") for w in (cell.kernel, cell.recurrent_kernel, cell.bias)]


@pytest.mark.parametrize("padding", MASKS)
@pytest.mark.parametrize("reset_after", [False, True])
def test_follows_the_equations_wherever_the_padding_stands(rng, reset_after, padding):
    inputs = rng.normal(size=(B, S, E)).astype("float32")
    mask = np.array(MASKS[padding], "bool")
    encoder = randomised(BiGRUEncoder(H, reset_after=reset_after))
    got = encoder(inputs, mask=mask)
    weights = [numpy_weights(cells[0]) for cells in (encoder.forward_cells, encoder.backward_cells)]
    expected = bidirectional_gru(inputs, mask, *weights, reset_after)
    for value, oracle in zip(got, expected, strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(value), oracle, atol=1e-5)


def test_two_layers_read_the_first_one_whole(rng):
    inputs = rng.normal(size=(B, S, E)).astype("float32")
    mask = np.array(MASKS["right"], "bool")
    encoder = randomised(BiGRUEncoder(H, num_layers=2))
    values, _, backward = encoder(inputs, mask=mask)
    layers = list(zip(encoder.forward_cells, encoder.backward_cells, strict=True))
    first, _, _ = bidirectional_gru(inputs, mask, *map(numpy_weights, layers[0]), False)
    second, _, final = bidirectional_gru(first, mask, *map(numpy_weights, layers[1]), False)
    np.testing.assert_allclose(ops.convert_to_numpy(values), second, atol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(backward), final, atol=1e-5)


def test_agrees_with_keras_bidirectional(rng):
    inputs = rng.normal(size=(B, S, E)).astype("float32")
    encoder = randomised(BiGRUEncoder(H, reset_after=True))
    peer = keras.layers.Bidirectional(keras.layers.GRU(H, return_sequences=True, return_state=True))
    peer.build((B, S, E))
    cells = [encoder.forward_cells[0], encoder.backward_cells[0]]
    peer.set_weights([ops.convert_to_numpy(w) for c in cells for w in (c.kernel, c.recurrent_kernel, c.bias)])
    for got, expected in zip(encoder(inputs), peer(inputs), strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(got), ops.convert_to_numpy(expected), atol=1e-5)


def test_no_layers_are_refused():
    with pytest.raises(ValueError, match="`num_layers` to be a positive whole number"):
        BiGRUEncoder(H, num_layers=0)
