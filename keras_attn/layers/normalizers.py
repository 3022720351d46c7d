"""Normalizers of scores: softmax, hardmax, sparsemax or any function, with masked positions left out."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def hardmax(scores):
    """1 at the first of the highest scores, 0 elsewhere, along the last axis. No gradient flows through it.

        alpha_j = 1 if j = argmax_k e_k else 0

    Args:
        scores: `(..., S)`.

    Returns:
        `(..., S)`, in the scores' dtype.
    """
    scores = ops.convert_to_tensor(scores)
    best = ops.cast(ops.argmax(scores, axis=-1), "int32")[..., None]  # (..., 1)
    positions = ops.arange(ops.shape(scores)[-1], dtype="int32")  # (S,)
    return ops.cast(positions == best, scores.dtype)  # (..., S)


def sparsemax(scores):
    """The point of the probability simplex nearest to the scores, along the last axis: low scores get exactly 0.

        alpha = argmin_p |p - e|^2,   that is   alpha_j = max(e_j - tau, 0)   (Martins & Astudillo 2016, eqs. 2 and 3)

    with tau such that the sum is 1 (algorithm 1). The gradient is that of section 2.5. It is not `keras.ops.sparsemax`,
    whose results do not sum to 1 where more than one of them is above 0.

    Args:
        scores: `(..., S)`.

    Returns:
        `(..., S)`, in the scores' dtype.

    Reference: Martins, Astudillo. From Softmax to Sparsemax. ICML 2016, arXiv:1602.02068.
    """
    scores = ops.convert_to_tensor(scores)
    scores = scores - ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True))  # (..., S); a shift changes nothing
    ordered = -ops.sort(-ops.stop_gradient(scores), axis=-1)  # (..., S), the highest first
    ranks = ops.cumsum(ops.ones_like(ordered), axis=-1)  # (..., S), from 1
    inside = ops.cast(1 + ranks * ordered > ops.cumsum(ordered, axis=-1), scores.dtype)
    count = ops.sum(inside, axis=-1, keepdims=True)  # (..., 1)
    threshold = (ops.sum(ops.where(ranks <= count, ordered, 0.0), axis=-1, keepdims=True) - 1) / count  # (..., 1)
    support = scores > threshold  # (..., S)
    # tau again, from the scores themselves, so that its gradient needs none of `sort`.
    size = ops.sum(ops.cast(support, scores.dtype), axis=-1, keepdims=True)  # (..., 1)
    tau = (ops.sum(ops.where(support, scores, 0.0), axis=-1, keepdims=True) - 1) / size  # (..., 1)
    return ops.where(support, scores - tau, 0.0)


def _softmax(scores):
    return ops.softmax(scores, axis=-1)


_BY_NAME = {"softmax": _softmax, "hardmax": hardmax, "sparsemax": sparsemax}


def get_normalizer(identifier) -> str | Callable:
    """Checks a normaliser: one of the names, a function, or a serialised function.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if not (callable(identifier) or (isinstance(identifier, str) and identifier in _BY_NAME)):
        raise ValueError(
            f"Expected `normalizer` to be one of {sorted(_BY_NAME)}, or a function from scores (..., S) to an "
            f"alignment (..., S). Received: normalizer={identifier!r}"
        )
    return identifier


def normalize(scores, mask=None, normalizer: str | Callable = "softmax") -> Any:
    """Applies a normaliser to the last axis of scores `(B, ..., S)`; masked positions get exactly 0.

    The mask is `(B, S)`, or has as many axes as the scores. A function of one's own sees -1e9 at masked positions.
    """
    function = _BY_NAME[normalizer] if isinstance(normalizer, str) else normalizer
    if mask is None:
        return function(scores)
    mask = spread_mask(mask, scores)
    # A finite floor, not -inf: a row without any real position would otherwise be 0 / 0 in both directions.
    alignment = function(ops.where(mask, scores, -1e9))
    return ops.where(mask, alignment, 0.0)


def spread_mask(mask, scores):
    """A mask `(B, S)`, or one with as many axes as the scores, as boolean of the scores' number of axes."""
    mask = ops.cast(mask, "bool")
    while len(mask.shape) < len(scores.shape):
        mask = mask[:, None]  # (B, 1, S)
    return mask


def at_least_float32(x):
    """Casts a tensor of half precision to float32; float32 and float64 stay.

    Args:
        x: A tensor of floats.

    Example:
        >>> keras_attn.layers.at_least_float32(keras.ops.ones((2,), "bfloat16")).dtype == keras.ops.ones((2,)).dtype
        True
    """
    return ops.cast(x, score_dtype(x.dtype))


def score_dtype(dtype) -> str:
    """The dtype of scores, alignments and states of attention under a compute dtype: float32, or float64."""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"
