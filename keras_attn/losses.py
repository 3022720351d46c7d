"""Cross-entropy with label smoothing over logits `(B, T, V)`.

The logits are the largest tensor of a training step (45 MB for 1,920 tokens and 5,921 words), so the cost of a
loss is the number of passes over them and of buffers of their size:

- No one-hot tensor is built. The label's logit is gathered, and the gradient (softmax minus smoothed label) is
  written by hand, because automatic differentiation would allocate and add one buffer for each of its terms.
- The loss and the metrics of `keras_attn.metrics` all begin with `softmax_parts`, so a compiled step (JAX, and
  TensorFlow with or without XLA) shares the common subexpressions and the metrics cost nothing more.

Everything is computed in float32, whatever the dtype policy, unless `dtype="float64"` is given.
"""

from typing import Any

import keras
from keras import ops

from keras_attn.backend import is_graph_created, replica_count, sum_over_replicas
from keras_attn.layers import check_size, refuse_unknown_arguments, single_array


def softmax_parts(logits):
    """Returns the row maximum m, exp(logits - m) and its sum over the row. The softmax is their quotient."""
    maximum = ops.max(logits, axis=-1, keepdims=True)  # (B, T, 1)
    exponentials = ops.exp(logits - maximum)  # (B, T, V)
    return maximum, exponentials, ops.sum(exponentials, axis=-1, keepdims=True)


def log_normalizer(maximum, total):
    """Returns log Σ_k exp(logit_k), from what `softmax_parts` returned."""
    return ops.squeeze(ops.log(total) + maximum, axis=-1)  # (B, T)


def label_logits(logits, labels):
    """Returns the logit of each label."""
    return ops.squeeze(ops.take_along_axis(logits, ops.expand_dims(labels, -1), axis=-1), -1)  # (B, T)


def check_shapes(y_true, y_pred) -> None:
    """Raises ValueError unless labels are `(B, T)` and logits `(B, T, V)`."""
    labels, logits = tuple(y_true.shape), tuple(y_pred.shape)
    fits = len(logits) == len(labels) + 1
    if not fits or any(a != b for a, b in zip(labels, logits, strict=False) if None not in (a, b)):
        raise ValueError(
            "Expected integer labels of shape (B, T) and logits of shape (B, T, V). "
            f"Received: labels of shape {labels} and logits of shape {logits}"
        )


def checked_dtype(dtype):
    """Returns the dtype of a loss or metric, float32 by default.

    Raises:
        ValueError: If the dtype is not float32 or float64. Keras casts labels to it, and a half-precision type
            cannot represent every token id.
    """
    if dtype is None:
        return "float32"
    compute_dtype = keras.dtype_policies.get(dtype).compute_dtype
    if compute_dtype not in ("float32", "float64"):
        raise ValueError(
            "Expected dtype to be float32 or float64, because half precision cannot represent every token id. "
            f"Received: dtype={compute_dtype}"
        )
    return dtype


def _smoothed_crossentropy(label_smoothing: float, words: int | None):
    """Returns the function `(logits (B, T, V), labels (B, T) as floats) -> losses (B, T)`, with its gradient."""

    @ops.custom_gradient
    def crossentropy(logits, labels):
        # Labels are floats because JAX and TensorFlow expect a gradient of each argument's own type.
        token_ids = ops.cast(labels, "int32")  # (B, T)
        maximum, exponentials, total = softmax_parts(logits)
        losses = log_normalizer(maximum, total)  # (B, T)
        losses = losses - (1 - label_smoothing) * label_logits(logits, token_ids)
        if label_smoothing:
            smoothed = logits if words is None else logits[..., :words]
            # A sum, because Keras' mean is float32 for float64 on torch.
            losses = losses - label_smoothing / (words or logits.shape[-1]) * ops.sum(smoothed, axis=-1)

        def gradient(*args, upstream=None):
            # torch passes the arguments, then upstream by keyword; JAX and TensorFlow pass upstream alone.
            upstream = args[0] if upstream is None else upstream
            powers, sums = softmax_parts(args[0])[1:] if is_graph_created() else (exponentials, total)
            upstream = ops.expand_dims(upstream, -1)  # (B, T, 1)
            ids = ops.arange(ops.shape(logits)[-1], dtype="int32")  # (V,)
            is_label = ops.equal(ids, ops.expand_dims(token_ids, -1))  # (B, T, V)
            spread = 0.0  # of each word; of a temporary id always
            if label_smoothing:
                spread = label_smoothing / (words or logits.shape[-1])
                spread = spread if words is None else ops.where(ids < words, spread, 0.0)
            logits_gradient = powers * (upstream / sums)  # (B, T, V)
            # In place on torch, where the page faults of a new 45 MB buffer cost as much as the arithmetic.
            logits_gradient -= ops.where(is_label, upstream * (1 - label_smoothing + spread), upstream * spread)
            return logits_gradient, ops.zeros_like(labels)

        return losses, gradient

    return crossentropy


class _TokenWeights(keras.losses.Loss):
    """The weight of each token `(B, T)`, of sample weights and Keras' mask of the logits, whichever is given.

    Sample weights are one number a token, `(B, T)`, or a sentence, `(B,)` or `(B, 1)`.

    Args:
        reduction: None, or "sum" for their sum.
        dtype: Of the weights.

    Raises:
        ValueError: for sample weights of another shape.
    """

    def __init__(self, reduction: str | None = None, dtype="float32"):
        # With a name: that of a private class is no scope of TensorFlow's.
        super().__init__("token_weights", reduction=reduction, dtype=dtype)

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = single_array(y_true)
        return super().__call__(y_true, y_pred, self.of_tokens(single_array(sample_weight), y_true))

    def call(self, y_true, y_pred):
        return ops.ones(ops.shape(y_true), dtype=self.dtype)  # (B, T)

    def of_tokens(self, sample_weight, labels):
        """Sample weights as `(B, T)`, or None."""
        if sample_weight is None:
            return None
        weights, shape = ops.convert_to_tensor(sample_weight, dtype=self.dtype), tuple(labels.shape)
        if len(weights.shape) == len(shape) + 1 and weights.shape[-1] == 1:
            weights = ops.squeeze(weights, axis=-1)
        elif 0 < len(weights.shape) < len(shape):  # of a sentence, where Keras would take them for those of positions
            weights = ops.reshape(weights, (-1, *[1] * (len(shape) - 1)))
        pairs = zip(weights.shape, shape, strict=len(weights.shape) > 0)
        if len(weights.shape) not in (0, len(shape)) or any(None not in p and p[0] not in (1, p[1]) for p in pairs):
            raise ValueError(
                f"Expected sample weights of shape (B, T) = {shape}, one a token, or (B,) or (B, 1), one a sentence. "
                f"Received: sample weights of shape {tuple(sample_weight.shape)}"
            )
        # A tensor of its own: on torch, Keras multiplies it in place.
        return weights * ops.ones(ops.shape(labels), dtype=self.dtype)


@keras.saving.register_keras_serializable(package="keras_attn")
class SmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy of integer labels with label smoothing, averaged over real tokens.

    With p = softmax(logits) and smoothing ε, the label y has the target distribution
    q_k = (1 - ε) [k = y] + ε / V (Szegedy et al. 2016, section 7), and the loss of a token is

        -Σ_k q_k log p_k = log Σ_k exp(logit_k) - (1 - ε) logit_y - ε mean_k(logit_k)

    The sum over tokens, each multiplied by its sample weight, is divided by the sum of the weights. Give padding
    the weight 0.

    In data-parallel training both sums are over all replicas, whose numbers of tokens may differ (with the default
    reduction, under `keras.distribution`, `tf.distribute` and torch's `DistributedDataParallel`): gradients are those
    of the whole batch on one device. All replicas must call the loss, because on TensorFlow and torch they exchange
    their sums of weights. The value that one replica sees is its part: the mean over replicas (on TensorFlow, where
    Keras divides losses by the number of replicas, the sum) is the loss of the whole batch.

    Args:
        label_smoothing: ε, at least 0 and less than 1.
        vocabulary_size: V, for the logits of a model with `pointer=True`, which are wider: smoothing then reaches the
            first V alone, since a word that the source does not have must keep the probability 0. None: all are words.
        reduction: As in `keras.losses.Loss`. The default divides by the sum of the weights; Keras' default
            divides by the number of positions, padding included.
        name: Name of the loss.
        dtype: Dtype of the computation, float32 or float64. None means float32, whatever the dtype policy.

    Call arguments:
        y_true: Token ids `(B, T)`, each in `[0, V)`.
        y_pred: Logits `(B, T, V)` of any floating type.
        sample_weight: `(B, T)`, or one number a sentence, `(B,)` or `(B, 1)`, which is that of each of its tokens;
            optional. The `fit` of this package's models leaves padding out of the latter; elsewhere Keras' mask of the
            logits does.

    Returns:
        A scalar in nats per token, or `(B, T)` with `reduction=None`.

    Raises:
        ValueError: If ε, V or the dtype is out of range, an argument is unknown, or the shapes of labels, logits
            and sample weights do not match.

    Example:
        >>> loss = keras_attn.losses.SmoothedCrossentropy(label_smoothing=0.1)
        >>> value = loss(np.array([[2, 0]]), np.zeros((1, 2, 5)), np.array([[1.0, 0.0]]))
        >>> round(float(value), 5)  # ln 5
        1.60944

    Differences from Keras: `SparseCategoricalCrossentropy` has no label smoothing in 3.15, and
    `CategoricalCrossentropy` needs a one-hot `(B, T, V)`.
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        *,
        vocabulary_size: int | None = None,
        reduction: str | None = "mean_with_sample_weight",
        name: str = "smoothed_crossentropy",
        dtype=None,
        **unknown: Any,
    ):
        refuse_unknown_arguments(type(self), unknown, base=keras.losses.Loss, also=())
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"Expected label_smoothing in [0, 1). Received: label_smoothing={label_smoothing}")
        if vocabulary_size is not None:
            check_size("vocabulary_size", vocabulary_size)
        super().__init__(name=name, reduction=reduction, dtype=checked_dtype(dtype))
        self.label_smoothing = float(label_smoothing)
        self.vocabulary_size = vocabulary_size
        self._crossentropy = _smoothed_crossentropy(self.label_smoothing, vocabulary_size)
        self._sum_of_weights = _TokenWeights("sum", self.dtype)

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = single_array(y_true)
        sample_weight = self._sum_of_weights.of_tokens(single_array(sample_weight), y_true)
        loss = super().__call__(y_true, y_pred, sample_weight)  # divided by the weights of this replica alone
        replicas = replica_count()
        if replicas == 1 or self.reduction != "mean_with_sample_weight":
            return loss
        local = self._sum_of_weights(y_true, y_pred, sample_weight)
        return loss * ops.divide_no_nan(replicas * local, sum_over_replicas(local))

    def call(self, y_true, y_pred):
        check_shapes(y_true, y_pred)
        width = y_pred.shape[-1]  # None in a graph for sources of all lengths, with a pointer
        if None not in (self.vocabulary_size, width) and self.vocabulary_size > width:
            raise ValueError(
                f"Expected logits of at least vocabulary_size={self.vocabulary_size} words. "
                f"Received: logits of shape {tuple(y_pred.shape)}"
            )
        return self._crossentropy(ops.cast(y_pred, self.dtype), ops.cast(y_true, self.dtype))

    def get_config(self) -> dict[str, Any]:
        own = {"label_smoothing": self.label_smoothing, "vocabulary_size": self.vocabulary_size, "dtype": self.dtype}
        return {**super().get_config(), **own}
