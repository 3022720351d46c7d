"""Loss, accuracy and perplexity against NumPy, finite differences and hand-made cases."""

import warnings

import keras
import numpy as np
import pytest

from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy

B, T, V = 3, 5, 7


def batch(seed=0, rows=B, steps=T):
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2.0, size=(rows, steps, V))
    labels = rng.integers(0, V, size=(rows, steps))
    weights = (np.arange(steps) < rng.integers(1, steps + 1, size=(rows, 1))).astype("float32")
    return labels.astype("int32"), logits.astype("float32"), weights


def log_softmax(logits):
    logits = logits.astype("float64") - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def oracle(labels, logits, smoothing):
    """Token losses (B, T), the long way: a smoothed one-hot times the log-probabilities."""
    target = np.eye(V)[labels] * (1 - smoothing) + smoothing / V
    return -(target * log_softmax(logits)).sum(-1)


def gradient_of(loss, labels, logits, weights):
    """d loss / d logits with the backend's own machinery."""
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        tensor = torch.tensor(logits, requires_grad=True)
        loss(torch.tensor(labels), tensor, torch.tensor(weights)).backward()
        return tensor.grad.float().numpy()
    if backend == "jax":
        import jax

        return np.asarray(jax.jit(jax.grad(lambda x: loss(labels, x, weights)))(logits))
    import tensorflow as tf

    tensor = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(tensor)
        value = loss(tf.constant(labels), tensor, tf.constant(weights))
    return tape.gradient(value, tensor).numpy()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])
def test_loss_equals_the_smoothed_one_hot_oracle(smoothing):
    labels, logits, weights = batch()
    expected = oracle(labels, logits, smoothing)
    tokens = SmoothedCrossentropy(smoothing, reduction=None)(labels, logits)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(tokens), expected, rtol=1e-5, atol=1e-6)
    mean = SmoothedCrossentropy(smoothing)(labels, logits, weights)
    np.testing.assert_allclose(float(mean), (expected * weights).sum() / weights.sum(), rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_against_finite_differences(smoothing):
    labels, logits, weights = batch(1)
    gradient = gradient_of(SmoothedCrossentropy(smoothing), labels, logits, weights)
    step, expected = 1e-5, np.zeros(logits.shape)
    for index in np.ndindex(logits.shape):
        values = []
        for sign in (1, -1):
            moved = logits.astype("float64")
            moved[index] += sign * step
            values.append((oracle(labels, moved, smoothing) * weights).sum() / weights.sum())
        expected[index] = (values[0] - values[1]) / (2 * step)
    np.testing.assert_allclose(gradient, expected, atol=2e-6)
    assert np.all(gradient[weights == 0] == 0)


def test_uniform_logits_give_ln_5():
    """The figure of TensorFlow Addons' test_sequence_loss: five classes, constant logits, 1.60944."""
    labels = np.array([[0, 1, 2], [3, 4, 0]])
    for smoothing in (0.0, 0.1):
        value = SmoothedCrossentropy(smoothing)(labels, np.full((2, 3, 5), 0.3, "float32"))
        assert float(value) == pytest.approx(1.60944, abs=1e-5)


def test_padding_changes_nothing_and_huge_logits_are_finite():
    labels, logits, weights = batch(2)
    loss = SmoothedCrossentropy()
    wider = [np.pad(a, [(0, 0), (0, 4)] + [(0, 0)] * (a.ndim - 2)) for a in (labels, logits, weights)]
    assert float(loss(*wider)) == pytest.approx(float(loss(labels, logits, weights)), rel=1e-6)
    assert float(loss(labels, logits * 1e4, weights)) == pytest.approx(
        (oracle(labels, logits * 1e4, 0.1) * weights).sum() / weights.sum(), rel=1e-5
    )
    assert np.isfinite(gradient_of(loss, labels, logits * 1e4, weights)).all()


def test_half_precision_logits_are_scored_in_float32():
    labels, logits, weights = batch(3)
    half = keras.ops.cast(logits, "bfloat16")
    rounded = keras.ops.convert_to_numpy(keras.ops.cast(half, "float32"))
    value = SmoothedCrossentropy()(labels, half, weights)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    expected = (oracle(labels, rounded, 0.1) * weights).sum() / weights.sum()
    assert float(value) == pytest.approx(expected, rel=1e-5)


def test_metrics_are_means_over_tokens_of_batches_of_different_length():
    accuracy, perplexity = TokenAccuracy(), Perplexity()
    hits, losses, count = 0.0, 0.0, 0.0
    for seed, steps in ((4, 2), (5, 11)):
        labels, logits, weights = batch(seed, steps=steps)
        accuracy.update_state(labels, logits, weights)
        perplexity.update_state(labels, logits, weights)
        hits += ((logits.argmax(-1) == labels) * weights).sum()
        losses += (oracle(labels, logits, 0.0) * weights).sum()
        count += weights.sum()
    assert float(accuracy.result()) == pytest.approx(hits / count, rel=1e-5)
    assert float(perplexity.result()) == pytest.approx(np.exp(losses / count), rel=1e-5)
    accuracy.reset_state()
    perplexity.reset_state()
    assert float(accuracy.result()) == 0.0
    assert float(perplexity.result()) == 1.0


def test_metrics_ignore_what_padding_holds_and_work_unweighted():
    labels, logits, weights = batch(6)
    weights[:, -1] = 0
    poisoned = logits.copy()
    poisoned[:, -1] = np.nan
    for make in (TokenAccuracy, Perplexity):
        clean, poison, plain = make(), make(), make()
        clean.update_state(labels, logits, weights)
        poison.update_state(labels, poisoned, weights)
        assert float(poison.result()) == float(clean.result())
        plain.update_state(labels, logits)
        ones = make()
        ones.update_state(labels, logits, np.ones((B, T)))
        assert float(plain.result()) == float(ones.result())


def test_a_tie_at_the_top_counts_as_right():
    accuracy = TokenAccuracy()
    accuracy.update_state(np.array([[1, 2]]), np.array([[[3.0, 3.0, 0.0], [3.0, 3.0, 0.0]]]))
    assert float(accuracy.result()) == 0.5


@pytest.mark.parametrize("made", [SmoothedCrossentropy(0.2, reduction="sum"), TokenAccuracy("a"), Perplexity("p")])
def test_config_round_trip(made):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(made))
    assert type(again) is type(made)
    assert again.get_config() == made.get_config()


def test_errors_are_sentences():
    with pytest.raises(ValueError, match=r"Expected label_smoothing in \[0, 1\)\. Received: label_smoothing=1"):
        SmoothedCrossentropy(1.0)
    with pytest.raises(ValueError, match=r"Received: labels of shape \(2, 3\) and logits of shape \(2, 4, 7\)"):
        SmoothedCrossentropy()(np.zeros((2, 3)), np.zeros((2, 4, 7)))
    with pytest.raises(ValueError, match=r"Received: labels of shape \(2, 3, 7\)"):
        Perplexity().update_state(np.zeros((2, 3, 7)), np.zeros((2, 3, 7)))


def tiny_model(policy):
    inputs = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(V, 13, dtype=policy)(inputs)
    return keras.Model(inputs, keras.layers.Dense(V, dtype=policy)(hidden))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_learns_a_copy(policy, jit_compile, tmp_path):
    if keras.backend.backend() == "torch" and jit_compile:
        pytest.skip("torch.compile needs a C++ compiler and half a minute; eager is what the project runs")
    if keras.backend.backend() == "jax" and not jit_compile and policy != "float32":
        pytest.skip("JAX op by op compiles each operation of each type: 15 s for what float32 shows already")
    keras.utils.set_random_seed(0)
    model = tiny_model(keras.dtype_policies.get(policy))
    optimizer = keras.optimizers.Adam(0.05)
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    metrics = [TokenAccuracy(), Perplexity()]
    model.compile(optimizer, SmoothedCrossentropy(0.1), weighted_metrics=metrics, jit_compile=jit_compile)
    labels = np.random.default_rng(0).integers(0, V, size=(64, T)).astype("int32")
    weights = np.ones((64, T), "float32")
    weights[::2, -1] = 0
    history = model.fit(labels, labels, sample_weight=weights, batch_size=16, epochs=8, verbose=0).history
    assert history["accuracy"][-1] == 1.0
    assert 1.0 < history["perplexity"][-1] < 2.0 < history["perplexity"][0]
    assert np.isfinite(history["loss"]).all()
    if policy == "float32" and not jit_compile:
        model.save(tmp_path / "model.keras")
        with warnings.catch_warnings():
            # Keras says so of every model that is loaded with an untrained optimizer or other variable order.
            warnings.filterwarnings("ignore", message="Skipping variable loading")
            again = keras.saving.load_model(tmp_path / "model.keras")
        assert again.loss.label_smoothing == 0.1
        scores = again.evaluate(labels, labels, sample_weight=weights, verbose=0, return_dict=True)
        assert scores["accuracy"] == 1.0
