"""Greedy search and sampling: one hypothesis at a time, and no way back."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops

from keras_attn.backend import while_loop
from keras_attn.search.constraints import Candidates, Constraints, candidates, constrain
from keras_attn.search.hypotheses import (
    NEGATIVE_INFINITY,
    SearchResult,
    append,
    check_memory,
    length_norms,
    like,
    repeat_rows,
    write,
)
from keras_attn.search.stateless_random import Draws, draw, mix
from keras_attn.text import END_ID, PAD_ID, START_ID


class WalkState(NamedTuple):
    """What one step hands to the next. R = B * samples."""

    position: Any  # () int32, of the token to be chosen
    token_ids: Any  # (R,) int32, chosen last
    alive: Any  # (R,) bool, no end token yet
    outputs: Any  # (L, R) int32
    token_log_probs: Any  # (L, R) float32
    alignments: Any  # (L, R, S) float32; () if not asked for
    history: Any  # (R, L) int32, the outputs again; () without n-grams
    state: Any  # the model's, each (R, ...)


def greedy_search(
    step: Callable,
    memory: dict[str, Any],
    state: Any,
    *,
    length_penalty: float = 1.0,
    normalization: Any = "gnmt",
    max_length: Any,
    row_max_length: Any = None,
    row_min_length: Any = None,
    forced_prefix: Any = None,
    banned_token_ids: Sequence[int] = (),
    no_repeat_ngram_size: int = 0,
    return_alignments: bool = True,
) -> SearchResult:
    """The most probable token of every step, until the end token. `N` is 1.

    With a `forced_prefix` that holds the end token this is forced decoding: the log-probabilities and
    alignments of a given translation.

    Args:
        step: `(token_ids (B,), memory, state) -> (logits (B, V), state, alignment (B, S))`.
        memory, state, max_length, ...: see `beam_search`.

    Raises:
        ValueError: as `beam_search`.
    """
    check_memory(memory)
    limits = constrain(
        ops.zeros_like(memory["mask"][:, 0], dtype="int32"),
        1,
        max_length=max_length,
        row_max_length=row_max_length,
        row_min_length=row_min_length,
        forced_prefix=forced_prefix,
        banned_token_ids=banned_token_ids,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    norms = length_norms(normalization, length_penalty, max_length)  # (L,)
    return _walk(step, memory, state, (), 1, 1, limits, norms, return_alignments)


def _best(options: Candidates):
    """The most probable token `(R,)` and its log-probability `(R,)`."""
    best = ops.max(options.log_probs, axis=-1)  # (R,)
    # By comparison instead of argmax and a gather: C is a handful.
    is_best = options.log_probs == best[:, None]  # (R, C)
    column = ops.argmax(ops.cast(is_best, "int32"), axis=-1)  # (R,)
    token_ids = ops.take_along_axis(options.token_ids, column[:, None], axis=1)[:, 0]  # (R,)
    ends = options.end_log_probs >= best  # (R,)
    return ops.where(ends, END_ID, token_ids), ops.where(ends, options.end_log_probs, best)


def sample(
    step: Callable,
    memory: dict[str, Any],
    state: Any,
    *,
    seed: Any,
    num_samples: int = 1,
    row_ids: Any = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    length_penalty: float = 0.0,
    normalization: str = "none",
    max_length: int,
    row_max_length: Any = None,
    row_min_length: Any = None,
    forced_prefix: Any = None,
    banned_token_ids: Sequence[int] = (),
    no_repeat_ngram_size: int = 0,
    return_alignments: bool = True,
) -> SearchResult:
    """Sequences drawn from the model, `num_samples` a row, in the order drawn.

    Each token is drawn from softmax(log p / temperature) over the allowed tokens, kept first to the `top_k`
    most probable ones and then to the fewest of those that hold `top_p` of their mass (Holtzman et al. 2020,
    arXiv:1904.09751). The reported log-probabilities are the model's own, at temperature 1 and over all
    tokens.

    The draw is a hash of (seed, row id, sample, position), no generator and no state: the same seed gives the
    same sequences on every backend (up to rounding where a draw falls on the border of two tokens), whatever
    the batch.

    Args:
        step, memory, state, max_length, ...: see `beam_search`, with `num_samples` for K.
        seed: integer, or an int32 tensor, `()` or one a row `(B,)`.
        row_ids: `(B,)` int32, what tells the rows' draws apart; 0, 1, .. B - 1 by default. Give a sentence's
            number in the whole corpus, and its samples do not depend on how the corpus was cut into batches.
        temperature: > 0.
        top_k: 0 = off.
        top_p: in (0, 1], 1 = off.

    Raises:
        ValueError: for options outside the ranges above.
    """
    check_memory(memory)
    if not temperature > 0:
        raise ValueError(f"Expected `temperature` > 0. Received: temperature={temperature}")
    if num_samples < 1 or top_k < 0 or not 0 < top_p <= 1:
        raise ValueError(
            "Expected num_samples >= 1, top_k >= 0 and 0 < top_p <= 1. "
            f"Received: num_samples={num_samples}, top_k={top_k}, top_p={top_p}"
        )
    rows = ops.zeros_like(memory["mask"][:, 0], dtype="int32")  # (B,)
    limits = constrain(
        rows,
        num_samples,
        max_length=max_length,
        row_max_length=row_max_length,
        row_min_length=row_min_length,
        forced_prefix=forced_prefix,
        banned_token_ids=banned_token_ids,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    if row_ids is None:
        row_ids = ops.cumsum(ops.ones_like(rows), axis=0) - 1  # (B,)
    seed = seed & 0x7FFFFFFF if isinstance(seed, int) else seed
    keys = mix(ops.bitwise_xor(ops.cast(row_ids, "int32"), mix(ops.cast(seed, "int32"))))  # (B,)
    numbers = ops.arange(num_samples, dtype="int32")  # (N,)
    keys = ops.reshape(mix(keys[:, None] + 40503 * numbers), (-1,))  # (R,)

    # Sorting all V is needed only for the nucleus; a plain draw takes them in the vocabulary's order.
    count = top_k or None
    norms = length_norms(normalization, length_penalty, max_length)  # (L,)
    draws = Draws(keys, temperature, top_k, top_p)
    return _walk(step, memory, state, draws, count, num_samples, limits, norms, return_alignments)


class Setting(NamedTuple):
    """What stays the same over all steps."""

    step: Callable
    memory: Any  # each (R, ...)
    constraints: Constraints
    draws: Draws | tuple  # () for the most probable token
    count: int | None  # candidates of a step; None: all of the vocabulary


def _walk(
    step, memory, state, draws, count, copies: int, limits: Constraints, norms, keep_alignments: bool
) -> SearchResult:
    """Runs until every row has ended."""
    batch, source = ops.shape(memory["mask"])
    rows, length = batch * copies, ops.shape(norms)[0]
    memory, state = repeat_rows(memory, copies), repeat_rows(state, copies)
    start = WalkState(
        position=ops.convert_to_tensor(0, dtype="int32"),
        token_ids=ops.full((rows,), START_ID, dtype="int32"),
        alive=ops.ones((rows,), dtype="bool"),
        outputs=ops.zeros((length, rows), dtype="int32"),
        token_log_probs=ops.zeros((length, rows), dtype="float32"),
        alignments=ops.zeros((length, rows, source), dtype="float32") if keep_alignments else (),
        history=ops.zeros((rows, length), dtype="int32") if limits.no_repeat_ngram_size else (),
        state=state,
    )
    setting = Setting(step, memory, limits, draws, count)
    final = while_loop(_any_alive, _advance, start, setting, owner=getattr(step, "__self__", None))
    return _result(final, copies, norms)


def _any_alive(state: WalkState, _):
    return ops.any(state.alive)


def _advance(old: WalkState, setting: Setting) -> WalkState:
    """One step: the body of the loop."""
    logits, model_state, alignment = setting.step(old.token_ids, setting.memory, old.state)
    options = candidates(logits, old.position, setting.constraints, old.history, setting.count)
    token_ids, log_probs = draw(options, old.position, setting.draws) if setting.draws else _best(options)
    token_ids = ops.where(old.alive, token_ids, PAD_ID)  # (R,)
    alignment = ops.where(old.alive[:, None], alignment, 0)  # (R, S)
    new = WalkState(
        position=old.position + 1,
        token_ids=token_ids,
        # A log-probability of -inf: nothing was allowed, and nothing will be.
        alive=old.alive & (token_ids != END_ID) & (log_probs > NEGATIVE_INFINITY),
        outputs=write(old.outputs, old.position, token_ids),
        token_log_probs=write(old.token_log_probs, old.position, ops.where(old.alive, log_probs, 0.0)),
        alignments=append(old.alignments, old.position, alignment),
        history=append(old.history, old.position, token_ids, axis=1),
        state=model_state,
    )
    return like(new, old)


def _result(final: WalkState, copies: int, norms) -> SearchResult:
    log_probs = ops.sum(final.token_log_probs, axis=0)  # (R,)
    exists = log_probs > NEGATIVE_INFINITY  # (R,)
    token_ids = ops.where(exists, final.outputs, PAD_ID)  # (L, R)
    token_log_probs = ops.where(exists, final.token_log_probs, 0.0)  # (L, R)
    lengths = ops.sum(ops.cast(token_ids != PAD_ID, "int32"), axis=0)  # (R,)
    norms = ops.take(norms, ops.maximum(lengths - 1, 0), axis=0)  # (R,)

    def by_row(x):
        return ops.reshape(x, (-1, copies))  # (B, N)

    def by_row_and_step(x):
        return ops.reshape(ops.transpose(x, (1, 0)), (-1, copies, ops.shape(x)[0]))  # (B, N, L)

    alignments = None
    if not isinstance(final.alignments, tuple):
        length, _, source = ops.shape(final.alignments)
        alignments = ops.where(exists[:, None], final.alignments, 0.0)  # (L, R, S)
        alignments = ops.reshape(ops.transpose(alignments, (1, 0, 2)), (-1, copies, length, source))
    return SearchResult(
        by_row_and_step(token_ids),
        by_row(lengths),
        by_row(log_probs / norms),
        by_row(log_probs),
        by_row_and_step(token_log_probs),
        alignments,
    )
