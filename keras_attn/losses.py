"""Cross-entropy with label smoothing, token accuracy and perplexity over `(B, T, V)` logits.

Logits are the largest tensor of a training step (1,920 rows of 5,921 words are 45 MB), so what counts
here is the number of passes over them and of buffers of that size:

- no one-hot: the label's logit is gathered, and the gradient (softmax minus smoothed label) is written
  down by hand, where automatic differentiation would build and add one buffer for each of its terms;
- the loss and both metrics begin with the same `_softmax_parts`, so that a compiled step (JAX, TensorFlow
  with and without XLA) finds the common subexpressions and gets the metrics for nothing.

Everything is computed in float32 whatever the dtype policy.
"""

from typing import Any

import keras
from keras import ops


def _softmax_parts(logits):
    """Row maximum m, exp(logits - m) and its row sum, all in float32; softmax is their quotient."""
    maximum = ops.max(logits, axis=-1, keepdims=True)  # (B, T, 1)
    exponentials = ops.exp(logits - maximum)  # (B, T, V)
    return maximum, exponentials, ops.sum(exponentials, axis=-1, keepdims=True)


def _log_normalizer(maximum, total):
    return ops.squeeze(ops.log(total) + maximum, axis=-1)  # (B, T)


def _label_logits(logits, labels):
    return ops.squeeze(ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1), -1)  # (B, T)


def _smoothed_crossentropy(label_smoothing: float):
    """The function `(logits (B, T, V), labels (B, T) as floats) -> losses (B, T)`, with its gradient."""

    @ops.custom_gradient
    def crossentropy(logits, labels):
        # The labels come as floats because JAX and TensorFlow want a gradient of every argument's own type.
        token_ids = ops.cast(labels, "int32")  # (B, T)
        vocabulary_size = logits.shape[-1]
        spread = label_smoothing / vocabulary_size
        maximum, exponentials, total = _softmax_parts(logits)
        losses = _log_normalizer(maximum, total)  # (B, T)
        losses = losses - (1 - label_smoothing) * _label_logits(logits, token_ids)
        if label_smoothing:
            losses = losses - label_smoothing * ops.mean(logits, axis=-1)

        def gradient(*args, upstream=None):
            # torch passes the arguments, then upstream by keyword; JAX and TensorFlow pass upstream alone.
            upstream = args[0] if upstream is None else upstream
            upstream = ops.expand_dims(upstream, -1)  # (B, T, 1)
            is_label = ops.equal(ops.arange(vocabulary_size, dtype="int32"), ops.expand_dims(token_ids, -1))
            logits_gradient = exponentials * (upstream / total)  # (B, T, V)
            # In place on torch, where every new 45 MB buffer costs as much in page faults as the arithmetic.
            logits_gradient -= ops.where(is_label, upstream * (1 - label_smoothing + spread), upstream * spread)
            return logits_gradient, ops.zeros_like(labels)

        return losses, gradient

    return crossentropy


def _check_shapes(y_true, y_pred) -> None:
    labels, logits = tuple(y_true.shape), tuple(y_pred.shape)
    fits = len(logits) == len(labels) + 1
    if not fits or any(a != b for a, b in zip(labels, logits, strict=False) if None not in (a, b)):
        raise ValueError(
            "Expected integer labels of shape (B, T) and logits of shape (B, T, V), "
            f"received labels of shape {labels} and logits of shape {logits}."
        )


@keras.saving.register_keras_serializable(package="keras_attn")
class SmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy of integer labels with label smoothing, averaged over real tokens.

    With p = softmax(logits) and smoothing ε, the label y has the target distribution
    q_k = (1 - ε) [k = y] + ε / V (Szegedy et al. 2016, section 7), and a token's loss is

        -Σ_k q_k log p_k  =  log Σ_k exp(logit_k)  -  (1 - ε) logit_y  -  ε mean_k(logit_k)

    The sum over tokens, each times its sample weight, is divided by the sum of the weights: give padding
    the weight 0.

    Args:
        label_smoothing: ε, at least 0 and less than 1.
        reduction: As in `keras.losses.Loss`. The default divides by the sum of the weights, where Keras' own
            default would divide by all positions, padding included.
        name: Name of the loss.

    Call arguments:
        y_true: Token ids `(B, T)`, each in `[0, V)`.
        y_pred: Logits `(B, T, V)` of any floating type.
        sample_weight: `(B, T)`, optional.

    Returns:
        A float32 scalar in nats a token, or `(B, T)` with `reduction=None`.

    Raises:
        ValueError: If ε is out of range, or the shapes of labels and logits do not go together.

    Example:

    >>> loss = SmoothedCrossentropy(label_smoothing=0.1)
    >>> float(loss(np.array([[2, 0]]), np.zeros((1, 2, 5)), np.array([[1.0, 0.0]])))  # ln 5
    1.609437...

    Differences from Keras: `SparseCategoricalCrossentropy` has no label smoothing in 3.15, and
    `CategoricalCrossentropy` wants a one-hot `(B, T, V)`.
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        *,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "smoothed_crossentropy",
    ):
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"Expected label_smoothing in [0, 1), received {label_smoothing}.")
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = float(label_smoothing)
        self._crossentropy = _smoothed_crossentropy(self.label_smoothing)

    def call(self, y_true, y_pred):
        _check_shapes(y_true, y_pred)
        return self._crossentropy(ops.cast(y_pred, "float32"), ops.cast(y_true, "float32"))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}


class _TokenMean(keras.metrics.Metric):
    """Mean over tokens, each with its weight.

    `keras.metrics.Mean` averages over T first and so counts a token of a long batch for less than one of a
    short batch; with length buckets that is not the mean over tokens.
    """

    def __init__(self, name: str):
        super().__init__(name=name, dtype="float32")
        self.total = self.add_variable(shape=(), initializer="zeros", name="total")
        self.count = self.add_variable(shape=(), initializer="zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        _check_shapes(y_true, y_pred)
        logits = ops.stop_gradient(ops.convert_to_tensor(y_pred, dtype="float32"))  # (B, T, V)
        values = self.token_values(ops.cast(y_true, "int32"), logits)  # (B, T)
        weights = ops.ones_like(values)
        if sample_weight is not None:
            weights = ops.broadcast_to(ops.cast(sample_weight, "float32"), ops.shape(values))
        # Not a product alone: a padded position may hold inf or NaN.
        self.total.assign_add(ops.sum(ops.where(weights == 0, 0.0, values * weights)))
        self.count.assign_add(ops.sum(weights))

    def token_values(self, token_ids, logits):
        raise NotImplementedError

    def result(self):
        return ops.divide_no_nan(self.total, self.count)

    def reset_state(self):
        self.total.assign(0.0)
        self.count.assign(0.0)

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}


@keras.saving.register_keras_serializable(package="keras_attn")
class TokenAccuracy(_TokenMean):
    """Share of tokens for which no other token has a higher logit than the label; in [0, 1].

    A tie at the top counts as right. (An `argmax` instead costs 11 to 45 ms a step of 1,920 tokens and
    5,921 words on two cores, where the maximum is known already from the loss.)

    Call arguments of `update_state`: `y_true (B, T)` token ids, `y_pred (B, T, V)` logits,
    `sample_weight (B, T)`, optional. Put it into `weighted_metrics` of `compile`, not into `metrics`:
    Keras passes the weights to the former alone.

    Raises:
        ValueError: If the shapes of labels and logits do not go together.

    Example:

    >>> accuracy = TokenAccuracy()
    >>> accuracy.update_state(np.array([[1, 0]]), np.array([[[0.0, 2.0], [0.0, 2.0]]]))
    >>> float(accuracy.result())
    0.5
    """

    def __init__(self, name: str = "accuracy"):
        super().__init__(name=name)

    def token_values(self, token_ids, logits):
        return ops.cast(_label_logits(logits, token_ids) >= ops.max(logits, axis=-1), "float32")  # (B, T)


@keras.saving.register_keras_serializable(package="keras_attn")
class Perplexity(_TokenMean):
    """exp of the mean negative log-likelihood of a token, without label smoothing; 1 before the first update.

    Free in a compiled step beside `SmoothedCrossentropy`; on torch, which runs eagerly, it costs its own
    passes over the logits (33 ms at 1,920 tokens and 5,921 words on two cores).

    Call arguments of `update_state`: `y_true (B, T)` token ids, `y_pred (B, T, V)` logits,
    `sample_weight (B, T)`, optional. Put it into `weighted_metrics` of `compile`, not into `metrics`:
    Keras passes the weights to the former alone.

    Raises:
        ValueError: If the shapes of labels and logits do not go together.

    Example:

    >>> perplexity = Perplexity()
    >>> perplexity.update_state(np.array([[1, 0]]), np.zeros((1, 2, 7)))
    >>> round(float(perplexity.result()), 5)
    7.0
    """

    def __init__(self, name: str = "perplexity"):
        super().__init__(name=name)

    def token_values(self, token_ids, logits):
        maximum, _, total = _softmax_parts(logits)
        return _log_normalizer(maximum, total) - _label_logits(logits, token_ids)  # (B, T)

    def result(self):
        return ops.exp(super().result())
