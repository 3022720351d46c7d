"""The loss against NumPy and finite differences; what `compile` is given is saved and loaded with the model."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from tests.gradients import gradients, numeric_gradients, wide
from tests.search.searching import log_softmax

B, T, V = 3, 5, 7


def batch(seed=0, rows=B, steps=T):
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2.0, size=(rows, steps, V))
    labels = rng.integers(0, V, size=(rows, steps))
    weights = (np.arange(steps) < rng.integers(1, steps + 1, size=(rows, 1))).astype("float32")
    return labels.astype("int32"), logits.astype("float32"), weights


def oracle(labels, logits, smoothing, words=V):
    """Token losses (B, T), the long way: a one-hot, smoothed over so many words, times the log-probabilities."""
    target = np.eye(V)[labels] * (1 - smoothing) + smoothing / words * (np.arange(V) < words)
    return -(target * log_softmax(logits)).sum(-1)


def mean_of(loss, labels, weights):
    """The loss as a function of the logits."""
    return lambda logits: loss(*map(ops.convert_to_tensor, (labels, logits, weights)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])
def test_loss_equals_the_smoothed_one_hot_oracle(smoothing):
    labels, logits, weights = batch()
    expected = oracle(labels, logits, smoothing)
    tokens = SmoothedCrossentropy(smoothing, reduction=None)(labels, logits)
    np.testing.assert_allclose(ops.convert_to_numpy(tokens), expected, rtol=1e-5, atol=1e-6)
    mean = SmoothedCrossentropy(smoothing)(labels, logits, weights)
    np.testing.assert_allclose(float(mean), (expected * weights).sum() / weights.sum(), rtol=1e-5)


@pytest.mark.parametrize(("smoothing", "words"), [(0.0, None), (0.1, None), (0.1, V - 2)])
def test_gradient_against_finite_differences(smoothing, words):
    """With `words`, the last logits are those of temporary ids."""
    labels, logits, weights = batch(1)
    loss = SmoothedCrossentropy(smoothing, vocabulary_size=words)
    (found,) = gradients(mean_of(loss, labels, weights), logits)

    def mean(logits):
        return (oracle(labels, logits, smoothing, words or V) * weights).sum() / weights.sum()

    (expected,) = numeric_gradients(mean, logits.astype("float64"), eps=1e-5)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert np.all(found[weights == 0] == 0)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the others know the shapes of what they compile")
def test_logits_whose_width_is_unknown_have_the_same_loss():
    """As those of a pointer in one graph for sources of all lengths."""
    import tensorflow as tf

    labels, logits, weights = batch()
    loss = SmoothedCrossentropy(0.1, vocabulary_size=V - 2)
    specs = [tf.TensorSpec((None, None), "int32"), tf.TensorSpec((None, None, None)), tf.TensorSpec((None, None))]
    found = tf.function(loss, input_signature=specs)(labels.astype("int32"), logits, weights.astype("float32"))
    np.testing.assert_allclose(found, loss(labels, logits, weights), rtol=1e-6)


def test_the_gradient_has_a_gradient():
    """The Hessian of a token's loss is diag(p) - p p^T; here it is multiplied with a direction."""
    labels, logits, _ = batch()
    direction = np.random.default_rng(1).normal(size=logits.shape).astype("float32")
    p = np.exp(log_softmax(logits))
    expected = p * (direction - (p * direction).sum(-1, keepdims=True)) / labels.size
    loss = SmoothedCrossentropy(0.1)
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        _, found = jax.jvp(jax.grad(lambda x: loss(labels, x)), (logits,), (direction,))
    elif backend == "torch":
        import torch

        x = torch.tensor(logits, requires_grad=True)
        (gradient,) = torch.autograd.grad(loss(torch.tensor(labels), x), x, create_graph=True)
        (found,) = torch.autograd.grad((gradient * torch.tensor(direction)).sum(), x)
    else:
        import tensorflow as tf

        x = tf.constant(logits)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                value = loss(labels, x)
            gradient = inner.gradient(value, x)
        found = outer.gradient(gradient, x, output_gradients=direction)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_padding_changes_nothing_and_huge_logits_are_finite():
    labels, logits, weights = batch(2)
    loss = SmoothedCrossentropy()
    wider = [np.pad(a, [(0, 0), (0, 4)] + [(0, 0)] * (a.ndim - 2)) for a in (labels, logits, weights)]
    assert float(loss(*wider)) == pytest.approx(float(loss(labels, logits, weights)), rel=1e-6)
    assert float(loss(labels, logits * 1e4, weights)) == pytest.approx(
        (oracle(labels, logits * 1e4, 0.1) * weights).sum() / weights.sum(), rel=1e-5
    )
    assert np.isfinite(gradients(mean_of(loss, labels, weights), logits * 1e4)).all()


@pytest.mark.parametrize("rows", [B, T])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_weights_of_sentences_are_those_of_each_token(rows, shape):
    """In the loss and in the metrics; with as many sentences as positions, too; padding left out by Keras' mask."""
    labels, logits, real = batch(4, rows=rows)
    per_sentence = np.linspace(0.5, 2, rows, dtype="float32")
    total = count = hits = nats = 0.0
    for b in range(rows):
        for t in range(int(real[b].sum())):
            total += per_sentence[b] * oracle(labels, logits, 0.1)[b, t]
            nats += per_sentence[b] * oracle(labels, logits, 0.0)[b, t]
            hits += per_sentence[b] * (logits[b, t].argmax() == labels[b, t])
            count += per_sentence[b]
    masked = keras.layers.Masking()(logits * real[..., None])  # the mask is that of rows of zeros
    weights = per_sentence.reshape(shape)
    assert float(SmoothedCrossentropy(0.1)(labels, masked, weights)) == pytest.approx(total / count, rel=1e-5)
    accuracy, perplexity = TokenAccuracy(), Perplexity()
    for metric in (accuracy, perplexity):
        metric.update_state(labels, masked, weights)
    assert float(accuracy.result()) == pytest.approx(hits / count, rel=1e-5)
    assert float(perplexity.result()) == pytest.approx(np.exp(nats / count), rel=1e-5)
    with pytest.raises(ValueError, match=r"Expected sample weights of shape \(B, T\) = .* Received: .* \(2,\)"):
        SmoothedCrossentropy()(labels, logits, np.ones(2))


def test_half_precision_logits_are_scored_in_float32():
    labels, logits, weights = batch(3)
    half = ops.cast(logits, "bfloat16")
    rounded = ops.convert_to_numpy(ops.cast(half, "float32"))
    value = SmoothedCrossentropy()(labels, half, weights)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    expected = (oracle(labels, rounded, 0.1) * weights).sum() / weights.sum()
    assert float(value) == pytest.approx(expected, rel=1e-5)


def test_float64_is_computed_in_float64():
    labels, logits, _ = batch(7)
    with wide():
        # Not the mean: Keras 3.15 divides a float64 scalar into a float32 on torch, in its own losses too.
        losses = SmoothedCrossentropy(0.1, reduction=None, dtype="float64")(labels, logits.astype("float64"))
    losses = ops.convert_to_numpy(losses)
    assert losses.dtype == "float64"
    np.testing.assert_allclose(losses, oracle(labels, logits, 0.1), rtol=1e-12)


def tiny_model(policy):
    inputs = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(V, 13, dtype=policy)(inputs)
    return keras.Model(inputs, keras.layers.Dense(V, dtype=policy)(hidden))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_fit_learns_a_copy(policy):
    """By XLA on JAX, and in half precision on TensorFlow."""
    jit_compile = {"jax": True, "tensorflow": policy != "float32"}.get(keras.backend.backend(), False)
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


def test_loss_and_metrics_are_saved_and_loaded_with_the_model(tmp_path):
    model = tiny_model("float32")
    loss, metrics = SmoothedCrossentropy(0.3, reduction="sum"), [TokenAccuracy("right"), Perplexity()]
    model.compile("adam", loss, weighted_metrics=metrics, jit_compile=keras.backend.backend() == "jax")
    labels, _, weights = batch(8)
    model.fit(labels, labels, sample_weight=weights, verbose=0)
    model.save(tmp_path / "model.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.loss.get_config() == loss.get_config()
    scores = [
        one.evaluate(labels, labels, sample_weight=weights, verbose=0, return_dict=True) for one in (model, again)
    ]
    assert scores[0].keys() == {"loss", "right", "perplexity"}
    assert scores[1] == pytest.approx(scores[0], rel=1e-6)
    in_lists = model.evaluate(labels, [labels], sample_weight=[weights], verbose=0, return_dict=True)
    assert in_lists == pytest.approx(scores[0], rel=1e-6)
