"""The score of sequences that are already there: forced decoding, without a loop."""

from typing import Any

from keras import ops

from keras_attn.search.beam import LEAST_COVERAGE
from keras_attn.search.hypotheses import SearchResult, length_norm
from keras_attn.text import PAD_ID


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
) -> SearchResult:
    """What search would report of given sequences, from the teacher-forced logits of all their tokens. `N` is 1.

    Args:
        logits: `(B, T, V)` of any float dtype, `logits[:, t]` before token t is known.
        token_ids: `(B, T)` int, end token included, 0 after it.
        alignments: `(B, T, S)`.
        mask: `(B, S)` bool, True = real source token.
        length_penalty, normalization, coverage_penalty: see `beam_search`.
        return_alignments: if False, the result's is None.

    Raises:
        ValueError: for a normalisation or penalties out of range, as `beam_search`.
    """
    if not coverage_penalty >= 0:
        raise ValueError(f"Expected `coverage_penalty` >= 0. Received: coverage_penalty={coverage_penalty}")
    real = ops.not_equal(token_ids, PAD_ID)  # (B, T)
    logits = ops.cast(logits, "float32")  # (B, T, V)
    chosen = ops.take_along_axis(logits, token_ids[..., None], axis=-1)[..., 0]  # (B, T)
    token_log_probs = ops.where(real, chosen - ops.logsumexp(logits, axis=-1), 0.0)  # (B, T)
    alignments = ops.where(real[..., None], ops.cast(alignments, "float32"), 0.0)  # (B, T, S)
    lengths = ops.sum(ops.cast(real, "int32"), axis=1)  # (B,)
    log_probs = ops.sum(token_log_probs, axis=1)  # (B,)
    norms = length_norm(normalization, length_penalty, ops.cast(ops.maximum(lengths, 1), "float32"))  # (B,)
    scores = log_probs / norms  # (B,)
    if coverage_penalty:
        covered = ops.log(ops.clip(ops.sum(alignments, axis=1), LEAST_COVERAGE, 1.0))  # (B, S)
        scores = scores + coverage_penalty * ops.sum(ops.where(mask, covered, 0.0), axis=1)  # (B,)

    def alone(x: Any):
        return x[:, None]  # (B, 1, ...)

    fields = token_ids, lengths, scores, log_probs, token_log_probs, alignments if return_alignments else None
    return SearchResult(*(None if x is None else alone(x) for x in fields))
