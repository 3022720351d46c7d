"""Monotonic, chunkwise and location-sensitive attention against the equations, step after step."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.layers import monotonic_alignment, safe_cumprod
from tests import oracles
from tests.gradients import gradients, numeric_gradients

pytestmark = pytest.mark.by_turns

B, T, S, H, M, A, E = 2, 3, 5, 7, 11, 13, 17
MASK = np.array([[True] * S, [True, True, False, True, False]])


def built(layer, seed=0):
    layer.build((B, H), (B, S, M))
    for i, weight in enumerate(layer.weights):  # zeros and ones would hide mistakes
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=seed + i, dtype="float32"))
    return layer


def numpy_weights(layer):
    return {w.path.split("/", 1)[-1]: ops.convert_to_numpy(w).astype("float64") for w in layer.weights}


def additive(w, prefix, s, h, bias=0.0):
    W, U, v = (w[f"{prefix}{name}"] for name in ("query_kernel", "key_kernel", "score_vector"))
    return np.array([v @ np.tanh(W.T @ s + U.T @ word + bias) for word in h])


@pytest.fixture
def arrays(rng):
    return [rng.normal(size=shape).astype("float32") for shape in ((B, T, H), (B, S, M), (B, T, S))]


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("mode", ["recursive", "parallel", "hard"])
def test_additive_monotonic_follows_the_equations(arrays, mode, chunk_size):
    queries, values, noise = arrays
    layer = built(ka.BahdanauMonotonicAttention(A, mode=mode, sigmoid_noise=0.7, chunk_size=chunk_size))
    w, state, previous = numpy_weights(layer), (), np.eye(1, S)[[0] * B].astype("float64")
    found, _, last = layer(queries, values, mask=MASK, noise=noise)
    for t in range(T):
        context, alignment, state = layer(queries[:, t], values, mask=MASK, state=state, noise=noise[:, t])
        for b in range(B):
            scores = additive(w, "", queries[b, t], values[b]) + w["score_bias"] + 0.7 * noise[b, t]
            if mode == "hard":
                previous[b] = oracles.hard_monotonic(np.where(MASK[b], scores, -1), previous[b])
            else:
                previous[b] = oracles.expected_monotonic(oracles.sigmoid(scores) * MASK[b], previous[b])
            expected = previous[b]
            if chunk_size:
                energies = additive(w, "chunk_score/", queries[b, t], values[b], w["chunk_score/bias"])
                expected = oracles.chunkwise(expected, energies, MASK[b], chunk_size)
            np.testing.assert_allclose(ops.convert_to_numpy(alignment)[b], expected, atol=1e-5)
            np.testing.assert_allclose(ops.convert_to_numpy(context)[b], expected @ values[b], atol=1e-5)
            np.testing.assert_allclose(ops.convert_to_numpy(found)[b, t], expected @ values[b], atol=1e-5)
        np.testing.assert_allclose(ops.convert_to_numpy(state), previous, atol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(last), previous, atol=1e-5)


@pytest.mark.parametrize("cumulative", [True, False])
def test_location_sensitive_follows_the_equations(arrays, cumulative):
    queries, values, _ = arrays
    layer = built(ka.LocationSensitiveAttention(A, filters=2, kernel_size=3, cumulative=cumulative))
    w, state, before = numpy_weights(layer), (), np.zeros((B, S))
    for t in range(T):
        _, alignment, state = layer(queries[:, t], values, mask=MASK, state=state)
        for b in range(B):
            places = oracles.location_features(before[b], w["filter_kernel"]) @ w["location_kernel"] + w["bias"]
            scores = np.array(
                [
                    w["score_vector"] @ np.tanh(w["query_kernel"].T @ queries[b, t] + w["key_kernel"].T @ h + place)
                    for h, place in zip(values[b], places, strict=True)
                ]
            )
            expected = np.zeros(S)
            expected[MASK[b]] = oracles.softmax(scores[MASK[b]])
            np.testing.assert_allclose(ops.convert_to_numpy(alignment)[b], expected, atol=1e-5)
            before[b] = before[b] + expected if cumulative else expected
        np.testing.assert_allclose(ops.convert_to_numpy(state), before, atol=1e-5)


def test_closed_form_and_recurrence_have_the_same_gradients(rng):
    chosen = rng.uniform(0.05, 0.95, (B, S)).astype("float32")
    previous = rng.dirichlet(np.ones(S), B).astype("float32")
    weights = rng.normal(size=(B, S)).astype("float32")

    def loss(mode):
        return lambda p, a: ops.sum(monotonic_alignment(p, a, mode) * ops.convert_to_tensor(weights))

    parallel, recursive = (gradients(loss(mode), chosen, previous) for mode in ("parallel", "recursive"))
    numeric = numeric_gradients(
        lambda p, a: sum(oracles.expected_monotonic(x, y) @ z for x, y, z in zip(p, a, weights, strict=True)),
        *(x.astype("float64") for x in (chosen, previous)),
    )
    for one, other, expected in zip(parallel, recursive, numeric, strict=True):
        np.testing.assert_allclose(one, expected, atol=1e-4)
        np.testing.assert_allclose(other, expected, atol=1e-4)


def test_by_hand():
    """p = 1/2 everywhere: 1/2, 1/4, 1/8; nothing goes back before place 1; the hard mode chooses the first, or none."""

    def align(*args):
        return ops.convert_to_numpy(monotonic_alignment(*args))

    half, first, second = (np.array([row], "float32") for row in ([0.5] * 3, [1, 0, 0], [0, 1, 0]))
    for mode in ("recursive", "parallel"):
        np.testing.assert_allclose(align(half, first, mode), [[0.5, 0.25, 0.125]], atol=1e-7)
        np.testing.assert_allclose(align(half, second, mode), [[0, 0.5, 0.25]], atol=1e-7)
    np.testing.assert_array_equal(align(np.array([[1, 0, 1.0]], "float32"), second, "hard"), [[0, 0, 1]])
    np.testing.assert_array_equal(align(0 * half, first, "hard"), [[0, 0, 0]])


def test_probabilities_of_0_and_1_make_the_expectation_the_hard_choice(rng):
    """Some words that are passed have p = 1, and in row 1 of the last step none is chosen, nor ever after."""
    steps, chosen = 6, rng.integers(0, 2, (4, 6, 17)).astype("float32")  # (B, T, S)
    chosen[1, 3] = 0
    hard = recursive = np.eye(1, 17, dtype="float32")[[0] * 4]
    for t in range(steps):
        hard = ops.convert_to_numpy(monotonic_alignment(chosen[:, t], hard, "hard"))
        recursive = ops.convert_to_numpy(monotonic_alignment(chosen[:, t], recursive, "recursive"))
        np.testing.assert_array_equal(recursive, hard)
    np.testing.assert_array_equal(hard.sum(axis=1) > 0, [True, False, True, True])


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


@pytest.fixture
def decoder():
    attention = ka.BahdanauMonotonicAttention(
        A, sigmoid_noise=2.0, inference_mode="hard", score_bias_initializer=keras.initializers.Constant(-1.0)
    )
    located = ka.LocationSensitiveAttention(A, filters=2, kernel_size=3)
    return ka.AttentionDecoder(keras.layers.GRUCell(H), [attention, located])


def test_noise_in_training_alone_and_another_mode_outside_of_it(decoder, arrays):
    inputs, values = arrays[0], arrays[1]
    still, again = (ops.convert_to_numpy(decoder(inputs, values, mask=MASK)[0]) for _ in range(2))
    np.testing.assert_array_equal(still, again)
    noisy = [ops.convert_to_numpy(decoder(inputs, values, mask=MASK, training=True)[0]) for _ in range(2)]
    assert np.abs(noisy[0] - noisy[1]).max() > 1e-4
    monotonic = decoder.attentions[0]
    monotonic.sigmoid_noise = 0.0
    soft = ops.convert_to_numpy(decoder(inputs, values, mask=MASK, training=True)[0])
    monotonic.mode = "hard"
    hard = ops.convert_to_numpy(decoder(inputs, values, mask=MASK, training=True)[0])
    assert np.abs(soft - still).max() > 1e-4
    np.testing.assert_allclose(hard, still, atol=1e-6)


def test_a_step_chooses_as_in_translation_also_while_a_model_trains(decoder, arrays):
    y, h = arrays[0], ops.convert_to_tensor(arrays[1])

    class Model(keras.layers.Layer):
        def call(self, inputs, training=None):
            return decoder.step(inputs, decoder.memory(h), decoder.initial_state(h))[2]

    decoder(y, h)  # builds it
    found, expected = (ops.convert_to_numpy(Model()(y[:, 0], training=training)) for training in (True, False))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: ka.BahdanauMonotonicAttention(A, mode="soft"), r"`mode` to be one of \['recursive', .* mode='soft'"),
        (lambda: ka.GeneralMonotonicAttention(inference_mode="soft"), "`inference_mode` to be one of"),
        (lambda: ka.GeneralMonotonicAttention(sigmoid_noise=-1.0), "`sigmoid_noise` of at least 0"),
        (lambda: ka.GeneralMonotonicAttention(chunk_size=0), "`chunk_size` to be a positive whole number"),
        (lambda: ka.GeneralMonotonicAttention(normalizer="sparsemax"), "Expected no `normalizer`"),
        (lambda: ka.LocationSensitiveAttention(A, kernel_size=4), "an odd `kernel_size`. Received: kernel_size=4"),
        (lambda: ka.LocationSensitiveAttention(A, filters=0), "`filters` to be a positive whole number"),
        (lambda: monotonic_alignment(np.ones((1, 2)), np.ones((1, 2)), "soft"), "`mode` to be one of"),
    ],
)
def test_mistakes_are_refused_with_a_sentence(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()
