"""One step of beam search: which hypotheses stay live, and which finished ones are kept."""

from typing import Any, NamedTuple

from keras import ops

from keras_attn.backend import take_in_rows
from keras_attn.search.records import NEGATIVE_INFINITY, Candidates


class Selection(NamedTuple):
    """The K next live hypotheses of each row, and the endings of the K present ones."""

    log_probs: Any  # (B, K) float32, of the next live hypotheses, best first
    parents: Any  # (B, K) int32, the slot that each extends
    token_ids: Any  # (B, K) int32, the token that each adds
    token_log_probs: Any  # (B, K) float32
    end_log_probs: Any  # (B, K) float32, of each slot's hypothesis if it ends here; -inf where it may not


def select(log_probs, extensions: Candidates) -> Selection:
    """Selects the K best continuations of each row, and the endings that are good enough.

    An ending counts only if fewer than K candidates of the row are better (as in fairseq). This excludes short
    hypotheses of low probability, and a beam of one ends exactly where greedy search does.

    Args:
        log_probs: `(B, K)` float32, of the live hypotheses.
        extensions: Candidates of the `B * K` hypotheses.
    """
    beams = log_probs.shape[1]
    width = ops.shape(extensions.token_ids)[1]  # C
    flat = ops.shape(log_probs)[0], beams * width
    step_log_probs = ops.reshape(extensions.log_probs, (-1, beams, width))  # (B, K, C)
    totals = ops.reshape(log_probs[:, :, None] + step_log_probs, flat)  # (B, K * C)
    best, index = ops.top_k(totals, beams)  # (B, K)
    ends = log_probs + ops.reshape(extensions.end_log_probs, (-1, beams))  # (B, K)
    rivals = ops.concatenate([best, ends], axis=1)  # (B, 2K)
    better = ops.sum(ops.cast(rivals[:, None, :] > ends[:, :, None], "float32"), axis=-1)  # (B, K)
    return Selection(
        best,
        ops.cast(index // width, "int32"),
        take_in_rows(ops.reshape(extensions.token_ids, flat), index),
        take_in_rows(ops.reshape(step_log_probs, flat), index),
        ops.where(better < beams, ends, NEGATIVE_INFINITY),
    )


def merge(scores, finished_pointers, new_scores, new_pointers) -> tuple[Any, Any]:
    """The N best of N finished and K new hypotheses, best first; of two equal ones the earlier.

    Args:
        scores, finished_pointers: `(B, N)` float32 and int32.
        new_scores, new_pointers: `(B, K)` float32 and int32.

    Returns:
        `(scores (B, N), finished_pointers (B, N))`.
    """
    count = scores.shape[1]
    pointers = ops.concatenate([finished_pointers, new_pointers], axis=1)  # (B, N + K)
    scores, index = ops.top_k(ops.concatenate([scores, new_scores], axis=1), count)  # (B, N)
    return scores, take_in_rows(pointers, index)
