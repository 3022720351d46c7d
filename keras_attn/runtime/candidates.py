"""The candidate tokens of a step in NumPy: the few best ones, without those that the caller forbids."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from keras_attn.text import SpecialIds

Arrays = dict[str, np.ndarray]
NEGATIVE_INFINITY = np.float32(-np.inf)
_LOWEST = np.finfo("float32").min


class Limits(NamedTuple):
    """The limits of each of R hypotheses, and those of all."""

    longest: np.ndarray  # (R,), end token included
    shortest: np.ndarray  # (R,)
    forced: np.ndarray  # (R, P), pad = free
    excluded: np.ndarray  # (X,), ids that are no candidates
    ngram: int  # 0 = off
    special_ids: SpecialIds

    @classmethod
    def of_rows(
        cls, batch: int, max_length: int, longest, shortest, forced, banned: Sequence[int], ngram: int, ids: SpecialIds
    ) -> Self:
        """The limits of `batch` rows; for the others, which may be None, see `keras_attn.search.beam_search`."""
        longest = np.full(batch, max_length) if longest is None else np.clip(longest, 1, max_length)  # (B,)
        shortest = np.zeros(batch, "int64") if shortest is None else np.asarray(shortest)  # (B,)
        forced = np.full((batch, 0), ids.pad) if forced is None else np.asarray(forced)  # (B, P)
        if ids.end is not None:  # the last position is for the end token: a longer prefix could not end
            is_last = np.arange(forced.shape[1]) == max_length - 1  # (P,)
            forced = np.where(is_last & (forced != ids.end), ids.pad, forced)
        return cls(longest, shortest, forced, np.array(sorted({*banned, *ids.reserved})), ngram, ids)

    def take(self, index: np.ndarray) -> Self:
        """The limits of other hypotheses, by the numbers of those whose limits they have."""
        arrays = ("longest", "shortest", "forced")
        return self._replace(**{name: getattr(self, name)[index] for name in arrays})


def candidates(
    logits: np.ndarray, position: int, limits: Limits, history: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The candidates of one step, at least `count` allowed ones if the vocabulary has them.

    The probabilities are those of the model over its whole vocabulary, whatever is forbidden.

    Args:
        logits: `(R, V)` float32.
        position: From 0.
        limits: Of the R hypotheses.
        history: `(R, position)`, the tokens so far; read for n-grams only.
        count: Hypotheses that a row keeps.

    Returns:
        token_ids `(R, C)`, their log-probabilities `(R, C)`, and those of the end token `(R,)`; -inf where not allowed.
    """
    end, ngram = limits.special_ids.end, limits.ngram
    values, token_ids = highest(logits, count + len(limits.excluded) + (position if ngram else 0))  # (R, C)
    top = np.maximum(logits.max(axis=1, keepdims=True), _LOWEST)  # (R, 1)
    total = np.exp(logits - top).sum(axis=1, keepdims=True)  # (R, 1)
    normalizer = top + np.log(np.maximum(total, np.float32(1)))  # (R, 1)
    log_probs = values - normalizer  # (R, C)
    forbidden = np.isin(token_ids, limits.excluded)  # (R, C)
    ends = np.full(len(logits), NEGATIVE_INFINITY, "float32")  # (R,)
    if end is not None:
        last = limits.longest <= position + 1  # (R,)
        too_short = (limits.shortest > position + 1) & ~last  # (R,)
        ends = np.where(too_short, NEGATIVE_INFINITY, logits[:, end] - normalizer[:, 0])  # (R,)
        forbidden |= last[:, None]
    if 0 < ngram <= position:
        forbidden |= _repeats(token_ids, history, ngram)
    log_probs = np.where(forbidden, NEGATIVE_INFINITY, log_probs)  # (R, C)
    if position < limits.forced.shape[1]:
        _force(token_ids, log_probs, ends, logits - normalizer, position, limits)
    return token_ids, log_probs, ends


def highest(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` highest values of each row `(R, C)`, highest first, and their places; of two equal ones the first."""
    width = values.shape[1]
    if 4 * count < width:  # a partition first is faster than a sort of all
        places = np.sort(np.argpartition(values, width - count, axis=1)[:, width - count :], axis=1)  # (R, C)
    else:
        places = np.broadcast_to(np.arange(width), values.shape)
    part = np.take_along_axis(values, places, axis=1)
    order = np.argsort(-part, axis=1, kind="stable")[:, :count]  # (R, C)
    return np.take_along_axis(part, order, axis=1), np.take_along_axis(places, order, axis=1).astype("int32")


def _repeats(token_ids: np.ndarray, history: np.ndarray, size: int) -> np.ndarray:
    """True where a candidate would complete an n-gram that the hypothesis already contains. `(R, C)` bool."""
    grams = sliding_window_view(history, size, axis=1)  # (R, W, size)
    recent = history[:, None, history.shape[1] - size + 1 :]  # (R, 1, size - 1)
    matches = (grams[..., :-1] == recent).all(axis=-1)  # (R, W)
    completions = np.where(matches, grams[..., -1], -1)  # (R, W)
    return (token_ids[:, :, None] == completions[:, None, :]).any(axis=-1)


def _force(token_ids, log_probs, ends, all_log_probs, position: int, limits: Limits) -> None:
    """Makes a forced token the only candidate, in place; a prefix prevails over all other limits."""
    token = limits.forced[:, position]  # (R,)
    rows = np.flatnonzero(token != limits.special_ids.pad)
    is_end = token[rows] == limits.special_ids.end
    log_prob = all_log_probs[rows, token[rows]]
    token_ids[rows, 0], log_probs[rows] = token[rows], NEGATIVE_INFINITY
    log_probs[rows, 0] = np.where(is_end, NEGATIVE_INFINITY, log_prob)
    ends[rows] = np.where(is_end, log_prob, NEGATIVE_INFINITY)
