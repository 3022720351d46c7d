"""Beam search: K live hypotheses a row, and the N best finished ones beside them.

Live and finished hypotheses are kept apart. Live ones all have the same length, so they compete on plain
log-probability; an end token does not take a place from them (each step considers K continuations and K endings, the
2K candidates of the usual description). Finished ones compete on the normalised score, and are never extended,
replaced by a live one, or changed.

Only `state` is reordered by parent at each step. Each step records the parent slot and the token of each
hypothesis; after the loop the N best are traced back once through that record, and only their alignments are
gathered.
"""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from keras_attn.backend import put, take, while_loop
from keras_attn.search.beam_state import BeamConfig, BeamState, backtrace, reorder, take_rows
from keras_attn.search.constraints import candidates, check_memory, constrain
from keras_attn.search.options import check_numbers, check_sizes
from keras_attn.search.ranking import coverage_score, length_norms
from keras_attn.search.records import NEGATIVE_INFINITY, SearchResult
from keras_attn.search.selection import merge, select
from keras_attn.search.tensor_ops import append, match_spec, repeat_rows, share_shortlist, take_step
from keras_attn.text import DEFAULT_IDS, SpecialIds


def beam_search(
    step: Callable,
    memory: dict[str, Any],
    state: Any,
    *,
    beam_size: int = 5,
    n_best: int = 1,
    length_penalty: float = 1.0,
    normalization: Any = "gnmt",
    coverage_penalty: float = 0.0,
    max_length: Any,
    row_max_length: Any = None,
    row_min_length: Any = None,
    forced_prefix: Any = None,
    banned_token_ids: Sequence[int] = (),
    no_repeat_ngram_size: int = 0,
    early_stopping: bool = False,
    return_alignments: bool = True,
    special_ids: SpecialIds = DEFAULT_IDS,
    shortlist: dict[str, Any] | None = None,
) -> SearchResult:
    """Finds the best sequences that K hypotheses a row can find.

    A hypothesis y, |y| tokens long with its end token, is ranked by

        score(y) = log P(y | x) / norm(|y|) + coverage_penalty * sum_j log min(sum_i alignment_ij, 1)

    with j over the real source tokens (Wu et al. 2016, eq. 14; for norms see `length_norm`). A row stops when no
    live hypothesis can overtake its N-th finished one: log-probabilities only fall, so the score of a live one with
    log P is at most log P / norm(that row's longest length), and its coverage term at most 0. Without a coverage
    penalty no earlier stop is exact for every model: one that gives probability 1 to all further tokens of the best
    live hypothesis, and to the end token at the longest length, reaches that bound. With `early_stopping`
    a row stops as soon as K hypotheses have ended, which takes fewer steps but may miss a better one. At the row's
    longest length only the end token is allowed, so that every hypothesis is a whole sentence, to which forced
    decoding gives the same score.

    Args:
        step: `(token_ids (B * K,), memory, state) -> (logits (B * K, V), state, alignment (B * K, S))`.
        memory: A dict of tensors `(B, ...)`, constant for the sentence; `memory["mask"]` is `(B, S)` bool.
        state: A nested structure of tensors `(B, ...)`, before the first step.
        beam_size: K. A beam of one stops at its first end token: it is greedy search.
        n_best: N <= K, the number of hypotheses returned.
        length_penalty: Exponent of the norm, at least 0.
        normalization: "gnmt", "average" or "none"; or the norms themselves, `(L,)` float32, in which case the length
            penalty is ignored.
        coverage_penalty: At least 0.
        max_length: L, the length of the outputs, end token included: an int or, in a TensorFlow graph, a scalar
            int32 tensor (which requires the norms themselves, and L of at least `no_repeat_ngram_size`).
        row_max_length, row_min_length: `(B,)`; the former is clipped to 1..L, and prevails over the latter.
        forced_prefix: `(B, P)` int, pad = free at that place; may contain the end token. Prevails over the other
            limits.
        banned_token_ids: Ids that are never produced; pad and start never are.
        no_repeat_ngram_size: No n-gram of this size occurs twice in a hypothesis; 0 = off.
        early_stopping: See above.
        return_alignments: If False, alignments are not kept (except for coverage) and the result's are None.
        special_ids: Of the target vocabulary. Without an end token every hypothesis has its row's longest length.
        shortlist: The target tokens that are searched, a dict: "token_ids" `(n,)` int32; "allowed" `(B, n)` bool, those
            that each row may have; "output", from `Seq2Seq.output_part`, a fourth argument of `step`, whose logits are
            then `(B * K, n)`. All other ids, of arguments and result, are places in it. None: the whole vocabulary.

    Returns:
        A `SearchResult`.

    Raises:
        ValueError: if an option is out of the ranges above.

    Example:
        >>> source = np.array([[*source_tokenizer.encode("two dogs"), 3]])
        >>> memory, state = model.encode(source)
        >>> result = keras_attn.search.beam_search(model.step, memory, state, beam_size=3, n_best=2, max_length=6)
        >>> tuple(result.token_ids.shape), target_tokenizer.decode(np.array(result.token_ids)[0, 0])
        ((1, 2, 6), 'deux chiens')
    """
    start, config = start_beam_search(
        step,
        memory,
        state,
        beam_size=beam_size,
        n_best=n_best,
        norms=length_norms(normalization, length_penalty, max_length),
        coverage_penalty=coverage_penalty,
        early_stopping=early_stopping,
        return_alignments=return_alignments,
        max_length=max_length,
        row_max_length=row_max_length,
        row_min_length=row_min_length,
        forced_prefix=forced_prefix,
        banned_token_ids=banned_token_ids,
        no_repeat_ngram_size=no_repeat_ngram_size,
        special_ids=special_ids,
        shortlist=shortlist,
    )
    batch = ops.shape(memory["mask"])[0]
    compactions = sum(batch >= rows for rows in (32, 64)) if isinstance(batch, int) else 2
    return run_beam_search(start, config, compactions)


def start_beam_search(
    step: Callable,
    memory: dict[str, Any],
    state: Any,
    *,
    beam_size: int,
    n_best: int,
    norms: Any,
    coverage_penalty: float,
    early_stopping: bool,
    return_alignments: bool,
    shortlist: dict[str, Any] | None = None,
    **limits,
) -> tuple[BeamState, BeamConfig]:
    """The state before the first step, one live hypothesis without tokens in each row, and what stays the same.

    Args:
        norms: `(L,)` float32, divisors of the log-probabilities by length.
        limits: The keyword arguments of `constrain`.
        step, memory, ...: See `beam_search`.

    Raises:
        ValueError: see `beam_search`.
    """
    check_sizes(beam_size=beam_size, n_best=n_best)
    if n_best > beam_size:
        raise ValueError(f"Expected 1 <= n_best <= beam_size. Received: n_best={n_best}, beam_size={beam_size}")
    check_numbers(coverage_penalty=coverage_penalty)
    check_memory(memory)
    batch, source = ops.shape(memory["mask"])
    memory, shortlist = share_shortlist(memory, shortlist)
    stops_early = early_stopping or beam_size == 1
    config = _config(step, memory, shortlist, beam_size, norms, coverage_penalty, stops_early, limits)
    rows, length = batch * beam_size, ops.shape(norms)[0]
    only_first = ops.where(config.slots == 0, 0.0, NEGATIVE_INFINITY)  # (B, K)
    start = BeamState(
        position=ops.convert_to_tensor(0, dtype="int32"),
        token_ids=ops.full((rows,), config.constraints.special_ids.start, dtype="int32"),
        log_probs=ops.cast(only_first, "float32"),
        scores=ops.full((batch, n_best), NEGATIVE_INFINITY, dtype="float32"),
        finished_pointers=ops.zeros((batch, n_best), dtype="int32"),
        finished=ops.zeros((batch,), dtype="float32") if config.early_stopping else (),
        backpointers=ops.zeros((length, batch, 2 * beam_size), dtype="int32"),
        token_log_probs=ops.zeros((length, batch, 2 * beam_size), dtype="float32"),
        alignments=ops.zeros((length, rows, source), dtype="float32") if return_alignments else (),
        coverage=ops.zeros((rows, source), dtype="float32") if coverage_penalty else (),
        history=ops.zeros((rows, length), dtype="int32") if config.constraints.no_repeat_ngram_size else (),
        state=repeat_rows(state, beam_size),
    )
    return start, config


def _config(step, memory, shortlist, beams: int, norms, coverage_penalty, early_stopping, limits: dict) -> BeamConfig:
    rows = ops.zeros_like(memory["mask"][:, 0], dtype="int32")  # (B,)
    constraints = constrain(rows, beams, **limits)
    offsets = (ops.cumsum(ops.ones_like(rows), axis=0)[:, None] - 1) * beams  # (B, 1)
    longest = ops.reshape(constraints.max_lengths, (-1, beams))[:, 0]  # (B,)
    return BeamConfig(
        step,
        repeat_rows(memory, beams),
        constraints,
        norms,
        take(norms, longest - 1),
        ops.cast(offsets, "int32"),
        ops.arange(beams, dtype="int32") + rows[:, None],
        coverage_penalty,
        early_stopping,
        shortlist,
    )


def run_beam_search(old: BeamState, config: BeamConfig, compactions: int) -> SearchResult:
    """Runs until all rows are finished.

    When half of the rows are finished, the search of the others goes on in a loop of half the batch size.

    Args:
        old, config: From `start_beam_search`.
        compactions: How many times unfinished rows are compacted into a half-size batch. Two save a third of the work
            of a large batch; each is one more loop to compile. `beam_search` chooses 2 for 64 rows or more and for an
            unknown number, 1 for 32 or more.
    """
    batch = ops.shape(old.log_probs)[0]
    remaining = batch // 2 if compactions else 0
    final = while_loop(_more_live, _advance, old, (config, remaining), config.owner)
    if not compactions:
        return backtrace(final, config)
    live = _live(final)  # (B,)
    finished = 1 - live  # (B,)
    # The place of each row in the order: finished rows first.
    places = ops.where(live > 0, ops.sum(finished) + ops.cumsum(live), ops.cumsum(finished)) - 1  # (B,)
    order = ops.cast(ops.argsort(places), "int32")  # (B,)
    first = backtrace(*take_rows(final, config, order[: batch - remaining]))
    last = run_beam_search(*take_rows(final, config, order[batch - remaining :]), compactions - 1)
    return SearchResult(
        *(
            None if a is None else take(ops.concatenate([a, b], axis=0), places)
            for a, b in zip(first, last, strict=True)
        )
    )


def _live(state: BeamState):
    """1 for each unfinished row, `(B,)` int32."""
    return ops.cast(ops.any(state.log_probs > NEGATIVE_INFINITY, axis=1), "int32")


def _more_live(state: BeamState, constants: tuple[BeamConfig, Any]):
    """The condition of the loop: whether more rows are unfinished than should remain."""
    remaining = constants[1]
    if isinstance(remaining, int) and not remaining:
        return ops.any(state.log_probs > NEGATIVE_INFINITY)
    return ops.sum(_live(state)) > remaining


def _advance(old: BeamState, constants: tuple[BeamConfig, Any]) -> BeamState:
    """One step: the body of the loop."""
    config, _ = constants
    beams = config.slots.shape[1]
    logits, state, alignment = take_step(config.step, old.token_ids, config.memory, old.state, config.shortlist)
    extensions = candidates(logits, old.position, config.constraints, old.history, beams)
    chosen = select(old.log_probs, extensions)

    coverage = old.coverage
    if config.coverage_penalty:
        coverage = coverage + ops.cast(alignment, "float32")  # (B * K, S)
    parents, token_ids = chosen.parents, ops.reshape(chosen.token_ids, (-1,))  # (B, K), (B * K,)
    if config.constraints.special_ids.end is None:  # the chosen ones end, where they are as long as they may be
        coverage, history, state = reorder((coverage, old.history, state), parents, config.offsets)
        last = ops.reshape(config.constraints.is_last(old.position), (-1, beams))  # (B, K)
        ended = _rank(ops.where(last, chosen.log_probs, NEGATIVE_INFINITY), coverage, old.position, config)  # (B, K)
        new_pointers = (old.position + 1) * beams + config.slots  # (B, K)
    else:
        ended = _rank(chosen.end_log_probs, coverage, old.position, config)  # (B, K)
        new_pointers = old.position * beams + config.slots  # (B, K)
        coverage, history, state = reorder((coverage, old.history, state), parents, config.offsets)
    scores, pointers = merge(old.scores, old.finished_pointers, ended, new_pointers)  # (B, N)
    # A finished row loses its live hypotheses, so that no other can end while its batch mates go on.
    # (max and min, not the first and last of the sorted values: see `candidates` on slices of a top-k.)
    best_possible = ops.max(chosen.log_probs, axis=-1) / config.longest_norms  # (B,)
    done = best_possible <= ops.min(scores, axis=-1)  # (B,)
    finished = old.finished
    if config.early_stopping:
        finished = finished + ops.sum(ops.cast(ended > NEGATIVE_INFINITY, "float32"), axis=1)  # (B,)
        done = done | (finished >= beams)  # (B,)
    if config.constraints.special_ids.end is None:
        done = done | ops.any(last, axis=1)  # (B,)

    backpointers = ops.concatenate([parents, chosen.token_ids], axis=1)  # (B, 2K)
    end_log_probs = ops.reshape(extensions.end_log_probs, (-1, beams))  # (B, K)
    token_log_probs = ops.concatenate([chosen.token_log_probs, end_log_probs], axis=1)  # (B, 2K)
    new = BeamState(
        position=old.position + 1,
        token_ids=token_ids,
        log_probs=ops.where(done[:, None], NEGATIVE_INFINITY, chosen.log_probs),
        scores=scores,
        finished_pointers=pointers,
        finished=finished,
        backpointers=put(old.backpointers, old.position, backpointers),
        token_log_probs=put(old.token_log_probs, old.position, token_log_probs),
        alignments=append(old.alignments, old.position, alignment),
        coverage=coverage,
        history=append(history, old.position, token_ids, axis=1),
        state=state,
    )
    return match_spec(new, old)


def _rank(log_probs, coverage, position, config: BeamConfig):
    """The scores `(B, K)` of hypotheses that end at `position`."""
    scores = log_probs / take(config.norms, position)  # (B, K)
    if not config.coverage_penalty:
        return scores
    covered = coverage_score(coverage, config.memory["mask"])  # (B * K,)
    return scores + config.coverage_penalty * ops.reshape(covered, ops.shape(scores))
