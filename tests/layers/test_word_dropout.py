"""Word dropout: whole words to zero, the others scaled, and nothing at rate 0 or outside a model's training."""

import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from tests.contracts.model_rows import make, some_inputs

B, E, RATE = 2000, 3, 0.25


def dropped(layer, token_ids, **kwargs):
    embeddings = np.ones((*token_ids.shape, E), "float32")
    return ops.convert_to_numpy(layer(embeddings, token_ids, training=True, **kwargs))


def test_words_are_dropped_whole_and_everywhere_in_their_sentence():
    token_ids = np.tile(np.array([[7, 5, 7, 9, 7]], "int32"), (B, 1))
    outputs = dropped(ka.WordDropout(RATE, seed=1), token_ids)
    scale = np.float32(1 / (1 - RATE))
    assert np.all((outputs == 0) | np.isclose(outputs, scale))
    assert np.all(outputs == outputs[:, :, :1]), "all of a word's embedding"
    masks = outputs[:, :, 0] == 0  # (B, S)
    np.testing.assert_array_equal(masks[:, [2, 4]], masks[:, [0, 0]])
    deviation = (RATE * (1 - RATE) / B) ** 0.5
    np.testing.assert_allclose(masks[:, [0, 1, 3]].mean(axis=0), RATE, atol=4 * deviation)
    joint = [(masks[:, i] & masks[:, j]).mean() for i, j in ((0, 1), (1, 3))]
    np.testing.assert_allclose(joint, RATE**2, atol=4 * (RATE**2 / B) ** 0.5)


def test_a_seed_repeats_its_draws_and_goes_on_and_rate_0_drops_nothing():
    token_ids = np.arange(40, dtype="int32").reshape(4, 10)
    first, second = (ka.WordDropout(RATE, seed=3) for _ in range(2))
    draws = [dropped(first, token_ids) for _ in range(2)]
    np.testing.assert_array_equal(dropped(second, token_ids), draws[0])
    assert (draws[0] != draws[1]).any()
    assert (dropped(ka.WordDropout(0.0), token_ids) == 1).all()


@pytest.mark.parametrize("name", ["rnnsearch", "transformer"])
def test_a_model_drops_words_of_both_sides_in_training_alone(name):
    if name == "transformer":
        pytest.importorskip("keras_hub")
    ids = some_inputs()
    plain, model = make(name), make(name, word_dropout=0.5)
    assert plain.word_dropout_layer is None, "at rate 0 it is the model without"
    assert model.get_config()["word_dropout"] == model.word_dropout == 0.5
    values = {weight.path: ops.convert_to_numpy(weight) for weight in plain.weights}
    for weight in model.weights:
        weight.assign(values[weight.path])
    np.testing.assert_array_equal(ops.convert_to_numpy(model(ids)), ops.convert_to_numpy(plain(ids)))
    seen = []
    inner = model.word_dropout_layer.call
    model.word_dropout_layer.call = lambda inputs, token_ids, training=None: (
        seen.append((ops.convert_to_numpy(token_ids), training)) or inner(inputs, token_ids, training=training)
    )
    trained = ops.convert_to_numpy(model(ids, training=True))
    assert (trained != ops.convert_to_numpy(plain(ids))).any()
    assert all(training for _, training in seen)
    for side, (token_ids, _) in zip(ids.values(), seen, strict=True):
        np.testing.assert_array_equal(token_ids, side)
