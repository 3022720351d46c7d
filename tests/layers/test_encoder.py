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


def test_dropout_acts_between_layers_in_training_alone(rng):
    inputs = rng.normal(size=(B, S, E)).astype("float32")
    encoder = randomised(BiGRUEncoder(H, num_layers=2, dropout=0.5))
    still = [ops.convert_to_numpy(encoder(inputs)[0]) for _ in range(2)]
    moving = [ops.convert_to_numpy(encoder(inputs, training=True)[0]) for _ in range(2)]
    np.testing.assert_array_equal(*still)
    assert np.abs(moving[0] - moving[1]).max() > 1e-3


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_near_float32(rng, policy):
    inputs = rng.normal(size=(B, S, E)).astype("float32")
    mask = np.array(MASKS["right"], "bool")
    expected = ops.convert_to_numpy(randomised(BiGRUEncoder(H))(inputs, mask=mask)[0])
    keras.config.set_dtype_policy(policy)
    got = randomised(BiGRUEncoder(H))(inputs, mask=mask)[0]
    assert keras.backend.standardize_dtype(got.dtype) == policy.removeprefix("mixed_")
    np.testing.assert_allclose(ops.convert_to_numpy(ops.cast(got, "float32")), expected, atol=0.1)


def test_gradients_reach_every_weight_and_the_config_round_trips(rng):
    inputs = keras.Input((None, E))
    encoder = BiGRUEncoder(H, num_layers=2, reset_after=True, kernel_initializer="he_normal")
    values, forward, backward = encoder(inputs, mask=ops.any(ops.not_equal(inputs, 0.0), axis=-1))
    assert (values.shape, backward.shape) == ((None, None, 2 * H), (None, H))
    model = keras.Model(inputs, [values, forward + backward])
    model.compile("sgd", ["mse", "mse"])
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    x = rng.normal(size=(B, S, E)).astype("float32")
    model.train_on_batch(x, [np.ones((B, S, 2 * H), "float32"), np.ones((B, H), "float32")])
    assert len(before) == 12
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert np.abs(old - ops.convert_to_numpy(new)).max() > 0, new.path
    assert BiGRUEncoder.from_config(encoder.get_config()).get_config() == encoder.get_config()


def test_no_layers_are_refused():
    with pytest.raises(ValueError, match="`num_layers` to be a positive whole number"):
        BiGRUEncoder(H, num_layers=0)
