"""Scores of hypotheses: length normalisation, coverage, and forced decoding of given sequences."""

from typing import Any

import numpy as np
from keras import ops

from keras_attn.search.options import MOST_PENALTY, SearchResult, check_numbers, length_norm
from keras_attn.text import DEFAULT_IDS, SpecialIds

NEGATIVE_INFINITY = float("-inf")
# A source token that got no attention at all: log 0 would rule out all hypotheses alike.
_LEAST_COVERAGE = 1e-10


def length_norms(normalization: Any, length_penalty: float, max_length: int) -> Any:
    """`length_norm` of the lengths 1, 2, .. L, `(L,)` float32. `normalization` may be these norms already.

    Raises:
        ValueError: if they are others than L.
    """
    if not isinstance(normalization, str):
        norms = ops.convert_to_tensor(normalization, dtype="float32")  # (L,)
        wrong = isinstance(max_length, int) and norms.shape[0] not in (None, max_length)
        if len(norms.shape) != 1 or wrong:
            raise ValueError(
                f"Expected `normalization` with a norm for each of max_length={max_length} lengths. Received: an array "
                f"of shape {tuple(norms.shape)}"
            )
        return norms
    lengths = np.arange(1, max_length + 1, dtype="float64")
    norms = length_norm(normalization, length_penalty, lengths).astype("float32")  # (L,)
    return ops.convert_to_tensor(norms)


def coverage_score(coverage, mask):
    """sum_j log min(coverage_j, 1) over the real source tokens j (Wu et al. 2016, eq. 14).

    Args:
        coverage: `(R, S)` float32, attention that each source token got in all steps.
        mask: `(R, S)` bool, True = real source token.

    Returns:
        `(R,)` float32, at most 0.
    """
    logs = ops.log(ops.clip(coverage, _LEAST_COVERAGE, 1.0))  # (R, S)
    return ops.sum(ops.where(mask, logs, 0.0), axis=-1)  # (R,)


def score_tokens(
    logits,
    token_ids,
    alignments,
    mask,
    *,
    length_penalty: float = 1.0,
    normalization: str = "gnmt",
    coverage_penalty: float = 0.0,
    return_alignments: bool = True,
    special_ids: SpecialIds = DEFAULT_IDS,
) -> SearchResult:
    """Scores given sequences as search would, from the teacher-forced logits of all their tokens. `N` is 1.

    Args:
        logits: `(B, T, V)` of any float dtype; `logits[:, t]` predicts token t.
        token_ids: `(B, T)` int, end token included, padding after it.
        alignments: `(B, T, S)`.
        mask: `(B, S)` bool, True = real source token.
        length_penalty, normalization, coverage_penalty: See `beam_search`.
        return_alignments: If False, the result's alignments are None.
        special_ids: Of the target vocabulary.

    Returns:
        A `SearchResult` with N = 1.

    Raises:
        ValueError: if the normalisation is unknown or a penalty is negative.

    Example:
        >>> logits, mask = np.zeros((1, 2, 5), "float32"), np.ones((1, 3), bool)
        >>> alignments = np.full((1, 2, 3), 1 / 3, "float32")
        >>> result = keras_attn.search.score_tokens(logits, np.array([[4, 3]]), alignments, mask, normalization="none")
        >>> float(result.log_probs[0, 0]) == float(result.scores[0, 0])
        True
    """
    check_numbers(coverage_penalty=coverage_penalty, maximum=MOST_PENALTY)
    if token_ids.shape[1]:
        length_norm(normalization, length_penalty, np.array([token_ids.shape[1]], "float64"))  # refuses an overflow
    real = ops.not_equal(token_ids, special_ids.pad)  # (B, T)
    logits = ops.cast(logits, "float32")  # (B, T, V)
    chosen = ops.take_along_axis(logits, token_ids[..., None], axis=-1)[..., 0]  # (B, T)
    token_log_probs = ops.where(real, chosen - ops.logsumexp(logits, axis=-1), 0.0)  # (B, T)
    alignments = ops.where(real[..., None], ops.cast(alignments, "float32"), 0.0)  # (B, T, S)
    lengths = ops.sum(ops.cast(real, "int32"), axis=1)  # (B,)
    log_probs = ops.sum(token_log_probs, axis=1)  # (B,)
    norms = length_norm(normalization, length_penalty, ops.cast(ops.maximum(lengths, 1), "float32"))  # (B,)
    scores = log_probs / norms  # (B,)
    if coverage_penalty:
        scores = scores + coverage_penalty * coverage_score(ops.sum(alignments, axis=1), mask)  # (B,)

    fields = token_ids, lengths, scores, log_probs, token_log_probs, alignments if return_alignments else None
    return SearchResult(*(None if x is None else x[:, None] for x in fields))  # (B, 1, ...)
