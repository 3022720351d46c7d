"""Token accuracy and perplexity against NumPy and hand-made cases."""

import keras
import numpy as np
import pytest

from keras_attn.metrics import Perplexity, TokenAccuracy
from tests.gradients import wide
from tests.test_losses import B, T, batch, oracle


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


@pytest.mark.parametrize("make", [TokenAccuracy, Perplexity])
def test_the_sum_of_two_states_is_the_state_of_both_batches(make):
    """What `keras.distribution` and TensorFlow's strategies do with the replicas' variables."""
    metric, whole = make(), make()
    states = []
    for seed in (9, 10):
        labels, logits, weights = batch(seed)
        metric.reset_state()
        metric.update_state(labels, logits, weights)
        states.append([keras.ops.convert_to_numpy(variable) for variable in metric.variables])
        whole.update_state(labels, logits, weights)
    assert {variable.aggregation for variable in metric.variables} == {"sum"}
    for variable, *values in zip(metric.variables, *states, strict=True):
        variable.assign(sum(values))
    assert float(metric.result()) == pytest.approx(float(whole.result()), rel=1e-6)


@pytest.mark.parametrize("make", [TokenAccuracy, Perplexity])
def test_variables_have_the_dtype_whatever_the_policy(make):
    keras.config.set_dtype_policy("mixed_bfloat16")
    labels, logits, _ = batch(12)
    for dtype in (None, "float64"):
        with wide():
            metric = make(dtype=dtype)
            metric.update_state(labels, logits)
            assert [keras.backend.standardize_dtype(v.dtype) for v in metric.variables] == [metric.dtype] * 2
        assert metric.dtype == (dtype or "float32")
