"""The candidate tokens of a step: the few best ones, without those that the caller forbids."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_attn.backend import take, take_in_rows
from keras_attn.search.options import check_constraints, check_sizes
from keras_attn.search.scoring import NEGATIVE_INFINITY
from keras_attn.search.tensor_ops import repeat_rows
from keras_attn.text import DEFAULT_IDS, SpecialIds

_LOWEST = float(np.finfo("float32").min)


class Constraints(NamedTuple):
    """The limits of each of R hypotheses; `()` for no limit."""

    max_lengths: Any  # (R,) int32, end token included
    min_lengths: Any  # (R,) int32, or ()
    forced: Any  # (R, P + 1) int32, pad = free, or ()
    excluded: Any  # (X,) int32: tokens that are not candidates (pad, start, end and banned ones)
    no_repeat_ngram_size: int  # 0 = off
    special_ids: SpecialIds

    def is_last(self, position: Any) -> Any:
        """The mask of hypotheses whose last position is `position`, `(R,)` bool."""
        return self.max_lengths <= position + 1


class Candidates(NamedTuple):
    """Continuations of R hypotheses. The end token is separate: it finishes a hypothesis instead of extending it."""

    token_ids: Any  # (R, C) int32
    log_probs: Any  # (R, C) float32, -inf where not allowed
    end_log_probs: Any  # (R,) float32, -inf where not allowed


def check_memory(memory) -> None:
    """Raises ValueError for a memory without the mask of real source tokens."""
    if not isinstance(memory, dict) or "mask" not in memory:
        received = sorted(memory) if isinstance(memory, dict) else type(memory).__name__
        raise ValueError(f'Expected `memory` to be a dict with "mask" (B, S) bool. Received: memory={received}')


def constrain(
    rows,
    copies: int,
    *,
    max_length: int,
    row_max_length=None,
    row_min_length=None,
    forced_prefix=None,
    banned_token_ids: Sequence[int] = (),
    no_repeat_ngram_size: int = 0,
    special_ids: SpecialIds = DEFAULT_IDS,
) -> Constraints:
    """Checks the caller's limits and repeats them for `copies` hypotheses of each row.

    Args:
        rows: `(B,)` zeros, int32.
        copies: Hypotheses of a row.
        max_length, row_max_length, ...: See `beam_search`.

    Raises:
        ValueError: if a limit is below 1, a prefix is longer than `max_length`, the end token is banned, or the n-gram
            size is negative.
    """
    banned = {int(i) for i in banned_token_ids}
    pad, end = special_ids.pad, special_ids.end
    special_ids.check_start()
    if not ops.is_tensor(max_length):
        check_sizes(max_length=max_length)
        max_length = int(max_length)  # an int64 of NumPy would make int64 of int32
    check_constraints(max_length, forced_prefix, banned, end)
    if no_repeat_ngram_size < 0:
        raise ValueError(f"Expected `no_repeat_ngram_size` >= 0. Received: {no_repeat_ngram_size}")

    limits = rows + max_length  # (B,)
    if row_max_length is not None:
        limits = ops.clip(ops.cast(row_max_length, "int32"), 1, max_length) + rows  # (B,)
    forced, minimums = (), ()
    if forced_prefix is not None and np.prod(forced_prefix.shape[1:]) != 0:
        forced = ops.cast(forced_prefix, "int32")  # (B, P)
        if end is not None:
            # The last position is for the end token: a longer prefix could not end.
            is_last = ops.arange(ops.shape(forced)[1], dtype="int32") == max_length - 1  # (P,)
            forced = ops.where(is_last & (forced != end), pad, forced)  # (B, P)
        # One more free column, so that a read after the prefix gives padding without a comparison.
        forced = repeat_rows(ops.pad(forced, [[0, 0], [0, 1]], constant_values=pad), copies)  # (R, P + 1)
    if row_min_length is not None:
        minimums = repeat_rows(ops.cast(row_min_length, "int32") + rows, copies)  # (R,)
    excluded = np.array(sorted(banned | special_ids.reserved), "int32")  # (X,)
    excluded = ops.convert_to_tensor(excluded)
    limits = repeat_rows(limits, copies)  # (R,)
    return Constraints(limits, minimums, forced, excluded, no_repeat_ngram_size, special_ids)


def candidates(logits, position, constraints: Constraints, history, count: int | None) -> Candidates:
    """The candidates of one step, at least `count` allowed ones if the vocabulary has them.

    The probabilities are those of the model over its whole vocabulary: to forbid tokens does not raise the
    probabilities of the others, so that a score is the log-probability that forced decoding gives. Only C of V tokens
    are ever masked; the logits themselves are read twice (for the best tokens and for the normaliser) and never
    copied.

    Args:
        logits: `(R, V)` of any float dtype.
        position: `()` int32, from 0.
        constraints: The limits of the R hypotheses.
        history: `(R, L)` int32, the tokens before `position`; read for n-grams only.
        count: None for all V tokens, in the order of the vocabulary.
    """
    logits = ops.cast(logits, "float32")  # (R, V)
    if count is None:
        values = logits
        token_ids = ops.broadcast_to(ops.arange(ops.shape(logits)[-1], dtype="int32"), ops.shape(logits))  # (R, V)
        highest = ops.max(logits, axis=-1, keepdims=True)  # (R, 1)
    else:
        spare = constraints.excluded.shape[0]
        if constraints.no_repeat_ngram_size:
            spare += ops.shape(history)[1]
        width = ops.shape(logits)[-1]  # a tensor in a graph for sources of any length, whose words may be copied
        count += spare
        count = ops.minimum(count, width) if ops.is_tensor(count) or ops.is_tensor(width) else count
        values, token_ids = top_tokens(logits, count)
        # Not `values[:, :1]`: XLA turns a top-k that is sliced again into a sort of all V (200 times the time).
        highest = ops.max(values, axis=-1, keepdims=True)  # (R, 1)
    # The sum is at least 1, from the highest logit itself, unless all logits are -inf: NaN without this.
    highest = ops.maximum(highest, _LOWEST)
    total = ops.sum(ops.exp(logits - highest), axis=-1, keepdims=True)  # (R, 1)
    normalizer = highest + ops.log(ops.maximum(total, 1.0))  # (R, 1)

    log_probs = values - normalizer  # (R, C)
    forbidden = ops.any(token_ids[:, :, None] == constraints.excluded, axis=-1)  # (R, C)
    end = constraints.special_ids.end
    if end is None:  # a hypothesis ends with any token, at its longest length
        end_log_probs = ops.full_like(normalizer[:, 0], NEGATIVE_INFINITY)  # (R,)
    else:
        end_log_probs = logits[:, end] - normalizer[:, 0]  # (R,)
        last = constraints.is_last(position)  # (R,)
        forbidden = forbidden | last[:, None]  # (R, C)
    if constraints.no_repeat_ngram_size:
        repeats = _repeats(token_ids, history, position, constraints.no_repeat_ngram_size)  # (R, C)
        forbidden = forbidden | repeats  # (R, C); `|=` would be in place on torch
    log_probs = ops.where(forbidden, NEGATIVE_INFINITY, log_probs)  # (R, C)
    if end is not None and not isinstance(constraints.min_lengths, tuple):
        too_short = (constraints.min_lengths > position + 1) & ~last  # (R,)
        end_log_probs = ops.where(too_short, NEGATIVE_INFINITY, end_log_probs)  # (R,)
    result = Candidates(token_ids, log_probs, end_log_probs)
    if isinstance(constraints.forced, tuple):
        return result
    return _force(result, logits, normalizer, position, constraints)


def top_tokens(logits, count: int) -> tuple[Any, Any]:
    """`top_k` over a vocabulary: values and token ids `(R, C)` of the `count` best of `(R, V)`.

    Each row is folded into 8 strips, and the elementwise maximum of the strips is taken. The best C tokens are in the
    C best columns of the maximum, so that only 8 C tokens (and the remainder of V / 8) must be compared. With V 5,921
    and C 8 this is twice as fast as `top_k` on JAX and TensorFlow, where `top_k` is a scalar loop, and no slower on
    torch.
    """
    vocabulary, strips = logits.shape[-1], 8
    if ops.is_tensor(count) or vocabulary < 16 * strips * count:  # no faster
        values, token_ids = ops.top_k(logits, count if ops.is_tensor(count) else min(count, vocabulary))
        return values, ops.cast(token_ids, "int32")
    width = vocabulary // strips  # W
    folded = [logits[:, i * width : (i + 1) * width] for i in range(strips)]
    while len(folded) > 1:
        folded = [ops.maximum(a, b) for a, b in zip(folded[::2], folded[1::2], strict=True)]
    _, columns = ops.top_k(folded[0], count)  # (R, C) of (R, W)
    token_ids = columns[:, :, None] + width * ops.arange(strips, dtype=columns.dtype)
    token_ids = ops.reshape(token_ids, (-1, count * strips))  # (R, 8 * C)
    if left := vocabulary - strips * width:
        rest = ops.arange(strips * width, vocabulary, dtype=columns.dtype)  # (1..7,)
        rest = ops.broadcast_to(rest, (ops.shape(logits)[0], left))  # (R, 1..7)
        token_ids = ops.concatenate([token_ids, rest], axis=1)  # (R, 8 * C + 1..7)
    values, index = ops.top_k(take_in_rows(logits, token_ids), count)  # (R, C)
    return values, ops.cast(take_in_rows(token_ids, index), "int32")


def _force(free: Candidates, logits, normalizer, position, constraints: Constraints) -> Candidates:
    """Makes a forced token the only candidate; a prefix prevails over all other constraints."""
    forced, pad, end = constraints.forced, constraints.special_ids.pad, constraints.special_ids.end
    column = ops.minimum(position, ops.shape(forced)[1] - 1)
    token = take(forced, column, axis=1)[:, None]  # (R, 1)
    is_forced = token != pad  # (R, 1)
    is_end = ops.zeros_like(is_forced) if end is None else token == end  # (R, 1)
    log_prob = take_in_rows(logits, token) - normalizer  # (R, 1)
    first = ops.arange(ops.shape(free.token_ids)[1]) == 0  # (C,)
    only = ops.where(first & ~is_end, log_prob, NEGATIVE_INFINITY)  # (R, C)
    ends = ops.where(is_end[:, 0], log_prob[:, 0], NEGATIVE_INFINITY)  # (R,)
    return Candidates(
        ops.where(is_forced & first, token, free.token_ids),
        ops.where(is_forced, only, free.log_probs),
        ops.where(is_forced[:, 0], ends, free.end_log_probs),
    )


def _repeats(token_ids, history, position, size: int):
    """True where a candidate would complete an n-gram that the hypothesis already contains. `(R, C)` bool."""
    windows = ops.shape(history)[1] - size + 1  # n-grams that L tokens have
    if isinstance(windows, int) and windows < 1:
        return ops.zeros_like(token_ids, dtype="bool")  # (R, C)
    matches = ops.arange(windows, dtype="int32")[None] + size <= position  # (1, W): ends before `position`
    for i in range(size - 1):
        recent = take(history, ops.maximum(position - size + 1 + i, 0), axis=1)  # (R,)
        matches = matches & (history[:, i : windows + i] == recent[:, None])  # (R, W)
    completions = ops.where(matches, history[:, size - 1 :], -1)  # (R, W)
    return ops.any(token_ids[:, :, None] == completions[:, None, :], axis=-1)  # (R, C)
