"""Monotonic attention at its limits, and the functions on rows of scores; tests/contracts has the equations."""

import keras
import numpy as np
from keras import ops

import keras_attn as ka
from keras_attn.layers import hardmax, monotonic_alignment, safe_cumprod
from tests import oracles
from tests.gradients import gradients

B, T, S, H, M, A = 2, 3, 5, 7, 11, 13


def test_hardmax_takes_the_first_of_the_highest():
    rows = np.array([[1.0, 3.0, 3.0], [-1.0, -2.0, -3.0]], "float32")
    np.testing.assert_array_equal(ops.convert_to_numpy(hardmax(rows)), [[0, 1, 0], [1, 0, 0]])


def test_safe_cumprod():
    x = np.array([[0.5, 0.25, 0.0, 1.0], [1.0, 2.0, 0.5, 0.5]], "float32")
    np.testing.assert_allclose(
        ops.convert_to_numpy(safe_cumprod(x)), [[0.5, 0.125, 0, 0], [1, 1, 0.5, 0.25]], atol=1e-7
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(safe_cumprod(x, exclusive=True)), [[1, 0.5, 0.125, 0], [1, 1, 1, 0.5]], atol=1e-7
    )
    (gradient,) = gradients(lambda x: ops.sum(safe_cumprod(x)), x)
    assert np.isfinite(gradient).all()


def test_many_sure_steps_stay_finite(rng):
    """Probabilities of exactly 0 and 1, which the closed form divides by."""
    scores = (200 * rng.normal(size=(B, 40))).astype("float32")
    previous = np.eye(1, 40)[[0] * B].astype("float32")

    def loss(scores):
        alignment = ops.convert_to_tensor(previous)
        for _ in range(3):
            alignment = monotonic_alignment(ops.sigmoid(scores), alignment, "parallel")
        return ops.sum(alignment * ops.arange(40, dtype="float32"))

    (gradient,) = gradients(loss, scores)
    assert np.isfinite(gradient).all()


def test_training_and_the_rest_have_a_mode_each(rng):
    """A step of search is never training, also while a model trains."""
    inputs, values = (rng.normal(size=shape).astype("float32") for shape in ((B, T, H), (B, S, M)))
    attention = ka.BahdanauMonotonicAttention(A, inference_mode="hard")
    decoder = ka.AttentionDecoder(keras.layers.GRUCell(H), attention)

    class Model(keras.layers.Layer):
        def call(self, inputs, training=None):
            return decoder.step(inputs, decoder.memory(memory), decoder.initial_state(memory))[2]

    hard, soft = (ops.convert_to_numpy(decoder(inputs, values, training=mode)[2]) for mode in (False, True))
    assert {*hard.ravel()} <= {0.0, 1.0}
    attention.mode = "hard"
    np.testing.assert_array_equal(ops.convert_to_numpy(decoder(inputs, values, training=True)[2]), hard)
    attention.mode = "recursive"
    np.testing.assert_allclose(ops.convert_to_numpy(decoder(inputs, values, training=True)[2]), soft, atol=1e-5)
    memory = ops.convert_to_tensor(values)
    np.testing.assert_array_equal(ops.convert_to_numpy(Model()(inputs[:, 0], training=True)), hard[:, 0])


def test_noise_is_added_to_the_scores_times_its_deviation(rng):
    query, values, noise = (rng.normal(size=shape).astype("float32") for shape in ((B, T, H), (B, S, M), (B, T, S)))
    layer = ka.GeneralMonotonicAttention(mode="hard", sigmoid_noise=1e6)
    found = layer(query, values, noise=noise)
    previous = np.eye(1, S)[[0] * B]
    for t in range(T):
        previous = np.stack([oracles.hard_monotonic(n, p) for n, p in zip(noise[:, t], previous, strict=True)])
        np.testing.assert_array_equal(ops.convert_to_numpy(found[1][:, t]), previous)
