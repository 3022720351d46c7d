"""Token accuracy and perplexity over logits `(B, T, V)`, as Keras metrics.

sacreBLEU's scores of translations are in `keras_attn.evaluation`.
"""

from typing import Any

import keras
from keras import ops

from keras_attn.backend import sum_over_replicas
from keras_attn.layers import refuse_unknown_arguments
from keras_attn.losses import _TokenWeights, check_shapes, checked_dtype, label_logits, log_normalizer, softmax_parts


class _TokenMean(keras.metrics.Metric):
    """Weighted mean over tokens.

    `keras.metrics.Mean` averages over T first, so that a token of a long batch counts less than one of a short
    batch. With length buckets that is not the mean over tokens.

    The state is of one replica of data-parallel training; `result`, which all replicas must call, sums over all.
    """

    def __init__(self, name: str, dtype=None):
        super().__init__(name=name, dtype=checked_dtype(dtype))
        self._token_weights = _TokenWeights(dtype=self.dtype)
        self.total = self.add_variable(shape=(), initializer="zeros", dtype=self.dtype, name="total")
        self.count = self.add_variable(shape=(), initializer="zeros", dtype=self.dtype, name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        check_shapes(y_true, y_pred)
        logits = ops.stop_gradient(ops.convert_to_tensor(y_pred, dtype=self.dtype))  # (B, T, V)
        values = self.token_values(ops.cast(y_true, "int32"), logits)  # (B, T)
        weights = self._token_weights(y_true, y_pred, sample_weight)  # (B, T)
        # The product alone does not do: a padded position may contain inf or NaN.
        self.total.assign_add(ops.sum(ops.where(weights == 0, 0.0, values * weights)))
        self.count.assign_add(ops.sum(weights))

    def token_values(self, token_ids, logits):
        raise NotImplementedError

    def result(self):
        return ops.divide_no_nan(sum_over_replicas(self.total), sum_over_replicas(self.count))

    def reset_state(self):
        self.total.assign(0.0)
        self.count.assign(0.0)


@keras.saving.register_keras_serializable(package="keras_attn")
class TokenAccuracy(_TokenMean):
    """Share of tokens for which no other token has a higher logit than the label; in [0, 1].

    A tie for the highest logit counts as correct. (`argmax` would cost 11 to 45 ms per step of 1,920 tokens and
    5,921 words on two cores; the maximum is already known from the loss.)

    Pass it to `compile` in `weighted_metrics`, not in `metrics`: Keras passes sample weights to the former only. In
    data-parallel training `result` is over the tokens of all replicas, and all of them must call it.

    Args:
        name: Name of the metric.
        dtype: Dtype of the computation and of the result, float32 or float64. None means float32.

    Call arguments:
        y_true: Token ids `(B, T)`, each in `[0, V)`.
        y_pred: Logits `(B, T, V)` of any floating type.
        sample_weight: As in `SmoothedCrossentropy`.

    Raises:
        ValueError: If the shapes of labels and logits do not match, or an argument is unknown.

    Example:
        >>> accuracy = keras_attn.metrics.TokenAccuracy()
        >>> accuracy.update_state(np.array([[1, 0]]), np.array([[[0.0, 2.0], [0.0, 2.0]]]))
        >>> float(accuracy.result())
        0.5
    """

    def __init__(self, name: str = "accuracy", dtype=None, **unknown: Any):
        refuse_unknown_arguments(type(self), unknown, base=_TokenMean, also=())
        super().__init__(name=name, dtype=dtype)

    def token_values(self, token_ids, logits):
        return ops.cast(label_logits(logits, token_ids) >= ops.max(logits, axis=-1), self.dtype)  # (B, T)


@keras.saving.register_keras_serializable(package="keras_attn")
class Perplexity(_TokenMean):
    """exp of the mean negative log-likelihood of a token, without label smoothing; 1 before the first update.

    In a compiled step beside `SmoothedCrossentropy` it costs nothing. On torch, which runs eagerly, it makes its
    own passes over the logits (33 ms for 1,920 tokens and 5,921 words on two cores).

    Pass it to `compile` in `weighted_metrics`, not in `metrics`: Keras passes sample weights to the former only. In
    data-parallel training `result` is over the tokens of all replicas, and all of them must call it.

    Args:
        name: Name of the metric.
        dtype: Dtype of the computation and of the result, float32 or float64. None means float32.

    Call arguments:
        y_true: Token ids `(B, T)`, each in `[0, V)`.
        y_pred: Logits `(B, T, V)` of any floating type.
        sample_weight: As in `SmoothedCrossentropy`.

    Raises:
        ValueError: If the shapes of labels and logits do not match, or an argument is unknown.

    Example:
        >>> perplexity = keras_attn.metrics.Perplexity()
        >>> perplexity.update_state(np.array([[1, 0]]), np.zeros((1, 2, 7)))
        >>> round(float(perplexity.result()), 5)
        7.0
    """

    def __init__(self, name: str = "perplexity", dtype=None, **unknown: Any):
        refuse_unknown_arguments(type(self), unknown, base=_TokenMean, also=())
        super().__init__(name=name, dtype=dtype)

    def token_values(self, token_ids, logits):
        maximum, _, total = softmax_parts(logits)
        return log_normalizer(maximum, total) - label_logits(logits, token_ids)  # (B, T)

    def result(self):
        return ops.exp(super().result())
