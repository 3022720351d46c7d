"""Greedy search, and the loop that it shares with sampling: a token is chosen at each step and never revised."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops

from keras_attn.backend import put, take, take_in_rows, while_loop
from keras_attn.search.constraints import Constraints, candidates, check_memory, constrain
from keras_attn.search.options import SearchResult
from keras_attn.search.scoring import NEGATIVE_INFINITY, length_norms
from keras_attn.search.tensor_ops import append, match_spec, repeat_rows, share_shortlist, start_history, take_step
from keras_attn.text import DEFAULT_IDS, SpecialIds


class GreedyState(NamedTuple):
    """The state of the loop. R = B * samples."""

    position: Any  # () int32, of the token to be chosen
    token_ids: Any  # (R,) int32, chosen last
    alive: Any  # (R,) bool, has not ended yet
    outputs: Any  # (L, R) int32
    token_log_probs: Any  # (L, R) float32
    alignments: Any  # (L, R, S) float32; () if not requested
    history: Any  # (R, L) int32, the outputs again; () where nothing reads them
    state: Any  # the model's, each (R, ...)


class GreedyConfig(NamedTuple):
    """The constants of the loop."""

    step: Callable
    choose: Callable  # (logits (R, V), GreedyState, GreedyConfig) -> token_ids (R,), log_probs (R,); of a module
    memory: Any  # each (R, ...)
    constraints: Constraints
    draws: Any  # `sampling.Draws`; () for greedy search
    shortlist: Any  # for `take_step`; () without one
    logits_processor: Callable | None


def run_greedy_loop(
    step: Callable,
    choose: Callable,
    memory: dict[str, Any],
    state: Any,
    constraints: Constraints,
    norms: Any,
    *,
    draws: Any = (),
    shortlist: dict[str, Any] | None = None,
    logits_processor: Callable | None = None,
    copies: int = 1,
    return_alignments: bool = True,
) -> SearchResult:
    """Chooses tokens until every row has ended.

    Args:
        step: See `beam_search`.
        choose: The `choose` of a `GreedyConfig`.
        memory, state: `(B, ...)`, see `beam_search`.
        constraints: Of the R = B * copies hypotheses.
        norms: `(L,)` float32, divisors of the log-probabilities by length.
        draws: For `choose`.
        shortlist, logits_processor: See `beam_search`.
        copies: Hypotheses of a row, the N of the result.
        return_alignments: Whether alignments are kept.
    """
    batch, source = ops.shape(memory["mask"])
    rows, length = batch * copies, ops.shape(norms)[0]
    memory, shortlist = share_shortlist(memory, shortlist, logits_processor)
    memory, state = repeat_rows(memory, copies), repeat_rows(state, copies)
    special = constraints.special_ids
    start = GreedyState(
        position=ops.convert_to_tensor(0, dtype="int32"),
        token_ids=ops.full((rows,), special.start, dtype="int32"),
        alive=ops.ones((rows,), dtype="bool"),
        outputs=ops.full((length, rows), special.pad, dtype="int32"),
        token_log_probs=ops.zeros((length, rows), dtype="float32"),
        alignments=ops.zeros((length, rows, source), dtype="float32") if return_alignments else (),
        history=start_history(rows, length, constraints, logits_processor),
        state=state,
    )
    config = GreedyConfig(step, choose, memory, constraints, draws, shortlist, logits_processor)
    final = while_loop(_any_alive, _advance, start, config, owner=getattr(step, "__self__", None))
    return _result(final, copies, norms, special.pad)


def _any_alive(state: GreedyState, _):
    return ops.any(state.alive)


def _advance(old: GreedyState, config: GreedyConfig) -> GreedyState:
    """One step: the body of the loop."""
    logits, model_state, alignment = take_step(config, old)
    token_ids, log_probs = config.choose(logits, old, config)  # (R,), (R,)
    special = config.constraints.special_ids
    token_ids = ops.where(old.alive, token_ids, special.pad)  # (R,)
    ends = config.constraints.is_last(old.position) if special.end is None else token_ids == special.end  # (R,)
    alignment = ops.where(old.alive[:, None], alignment, 0)  # (R, S)
    new = GreedyState(
        position=old.position + 1,
        token_ids=token_ids,
        # A log-probability of -inf: no token was allowed, and none ever will be.
        alive=old.alive & ~ends & (log_probs > NEGATIVE_INFINITY),
        outputs=put(old.outputs, old.position, token_ids),
        token_log_probs=put(old.token_log_probs, old.position, ops.where(old.alive, log_probs, 0.0)),
        alignments=append(old.alignments, old.position, alignment),
        history=append(old.history, old.position, token_ids, axis=1),
        state=model_state,
    )
    return match_spec(new, old)


def _result(final: GreedyState, copies: int, norms, pad: int) -> SearchResult:
    log_probs = ops.sum(final.token_log_probs, axis=0)  # (R,)
    exists = log_probs > NEGATIVE_INFINITY  # (R,)
    token_ids = ops.where(exists, final.outputs, pad)  # (L, R)
    token_log_probs = ops.where(exists, final.token_log_probs, 0.0)  # (L, R)
    lengths = ops.sum(ops.cast(token_ids != pad, "int32"), axis=0)  # (R,)
    norms = take(norms, ops.maximum(lengths - 1, 0))  # (R,)

    def by_row(x):
        return ops.reshape(x, (-1, copies))  # (B, N)

    def by_row_and_step(x):
        return ops.reshape(ops.transpose(x, (1, 0)), (-1, copies, ops.shape(x)[0]))  # (B, N, L)

    alignments = None
    if not isinstance(final.alignments, tuple):
        length, _, source = ops.shape(final.alignments)
        alignments = ops.where(exists[:, None], final.alignments, 0.0)  # (L, R, S)
        alignments = ops.reshape(ops.transpose(alignments, (1, 0, 2)), (-1, copies, length, source))  # (B, N, L, S)
    return SearchResult(
        by_row_and_step(token_ids),
        by_row(lengths),
        by_row(log_probs / norms),
        by_row(log_probs),
        by_row_and_step(token_log_probs),
        alignments,
    )


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
    special_ids: SpecialIds = DEFAULT_IDS,
    shortlist: dict[str, Any] | None = None,
    logits_processor: Callable | None = None,
) -> SearchResult:
    """Chooses the most probable token at each step, until the end token.

    A `forced_prefix` that contains the end token makes this forced decoding: the result has the log-probabilities and
    alignments of a given translation.

    Args:
        step: `(token_ids (B,), memory, state) -> (logits (B, V), state, alignment (B, S))`.
        memory, state, max_length, ...: See `beam_search`.

    Returns:
        A `SearchResult` with N = 1.

    Raises:
        ValueError: see `beam_search`.

    Example:
        >>> source = np.array([[*source_tokenizer.encode("two dogs"), 3]])
        >>> memory, state = model.encode(source)
        >>> result = keras_attn.search.greedy_search(model.step, memory, state, max_length=6)
        >>> target_tokenizer.decode(np.array(result.token_ids)[0, 0])
        'deux chiens'
    """
    check_memory(memory)
    constraints = constrain(
        ops.zeros_like(memory["mask"][:, 0], dtype="int32"),
        1,
        max_length=max_length,
        row_max_length=row_max_length,
        row_min_length=row_min_length,
        forced_prefix=forced_prefix,
        banned_token_ids=banned_token_ids,
        no_repeat_ngram_size=no_repeat_ngram_size,
        special_ids=special_ids,
    )
    norms = length_norms(normalization, length_penalty, max_length)  # (L,)
    options = {"shortlist": shortlist, "logits_processor": logits_processor, "return_alignments": return_alignments}
    return run_greedy_loop(step, _best, memory, state, constraints, norms, **options)


def _best(logits, state: GreedyState, config: GreedyConfig):
    """The most probable token `(R,)` and its log-probability `(R,)`."""
    options = candidates(logits, state.position, config.constraints, state.history, 1)
    best = ops.max(options.log_probs, axis=-1)  # (R,)
    # By comparison instead of argmax and a gather, since C is small.
    is_best = options.log_probs == best[:, None]  # (R, C)
    column = ops.argmax(ops.cast(is_best, "int32"), axis=-1)  # (R,)
    token_ids = take_in_rows(options.token_ids, column[:, None])[:, 0]  # (R,)
    end = config.constraints.special_ids.end
    if end is None:
        return token_ids, best
    ends = options.end_log_probs >= best  # (R,)
    return ops.where(ends, end, token_ids), ops.where(ends, options.end_log_probs, best)
