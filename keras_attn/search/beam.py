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
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attn.backend import put, take, take_in_rows, while_loop
from keras_attn.search.constraints import Candidates, Constraints, candidates, check_memory, constrain
from keras_attn.search.options import MOST_PENALTY, SearchResult, check_numbers, check_sizes
from keras_attn.search.scoring import NEGATIVE_INFINITY, coverage_score, length_norms
from keras_attn.search.tensor_ops import append, match_spec, repeat_rows, share_shortlist, start_history, take_step
from keras_attn.text import DEFAULT_IDS, SpecialIds


class BeamState(NamedTuple):
    """The state of the loop. The slots k of a row are in the order of `log_probs`, best first."""

    position: Any  # () int32, of the token to be chosen
    token_ids: Any  # (B * K,) int32, chosen last
    log_probs: Any  # (B, K) float32, of live hypotheses; -inf = none. A row without any is finished
    scores: Any  # (B, N) float32, of the best finished hypotheses
    finished_pointers: Any  # (B, N) int32: position of the end token * K + slot that it ended; see `backtrace`
    finished: Any  # (B,) float32, number of hypotheses that have ended; () without early stopping
    backpointers: Any  # (L, B, 2K) int32: for each slot after a step, parent slot | token
    token_log_probs: Any  # (L, B, 2K) float32: of each slot's new token | of an end token in its place
    alignments: Any  # (L, B * K, S) float32, of each slot before the step; () if not requested
    coverage: Any  # (B * K, S) float32, alignments summed over the hypothesis; () without a coverage penalty
    history: Any  # (B * K, L) int32, the hypothesis; () where nothing reads it
    state: Any  # the model's, each (B * K, ...)


class BeamConfig(NamedTuple):
    """The constants of the loop."""

    step: Callable
    memory: Any  # each (B * K, ...)
    constraints: Constraints  # each (B * K, ...)
    norms: Any  # (L,) float32, divisors of the log-probabilities by length
    longest_norms: Any  # (B,) float32, of each row's longest length
    offsets: Any  # (B, 1) int32: 0, K, 2K, ..: the place of each row's first slot among B * K
    slots: Any  # (B, K) int32: 0, 1, .. K - 1
    coverage_penalty: float
    early_stopping: bool
    shortlist: Any  # for `take_step`; () without one
    logits_processor: Callable | None

    @property
    def owner(self):
        """The model of which `step` is a method: it owns the weights that `step` reads."""
        return getattr(self.step, "__self__", None)


def take_rows(state: BeamState, config: BeamConfig, rows) -> tuple[BeamState, BeamConfig]:
    """The search of `rows` (B',) int32 alone."""
    beams = config.slots.shape[1]
    hypotheses = ops.reshape(rows[:, None] * beams + ops.arange(beams, dtype="int32"), (-1,))  # (B' * K,)

    def take_all(structure, index, axis=0):
        return tree.map_structure(lambda x: take(x, index, axis=axis), structure)

    constraints = config.constraints
    return (
        BeamState(
            position=state.position,
            token_ids=take_all(state.token_ids, hypotheses),
            log_probs=take_all(state.log_probs, rows),
            scores=take_all(state.scores, rows),
            finished_pointers=take_all(state.finished_pointers, rows),
            finished=take_all(state.finished, rows),
            backpointers=take_all(state.backpointers, rows, axis=1),
            token_log_probs=take_all(state.token_log_probs, rows, axis=1),
            alignments=take_all(state.alignments, hypotheses, axis=1),
            coverage=take_all(state.coverage, hypotheses),
            history=take_all(state.history, hypotheses),
            state=take_all(state.state, hypotheses),
        ),
        config._replace(
            memory=take_all(config.memory, hypotheses),
            constraints=constraints._replace(
                max_lengths=take_all(constraints.max_lengths, hypotheses),
                min_lengths=take_all(constraints.min_lengths, hypotheses),
                forced=take_all(constraints.forced, hypotheses),
            ),
            longest_norms=take_all(config.longest_norms, rows),
            offsets=config.offsets[: ops.shape(rows)[0]],
            slots=take_all(config.slots, rows),
        ),
    )


def reorder(structure, parents, offsets):
    """Every tensor `(B * K, ...)` with each slot replaced by its parent."""
    beams = parents.shape[1]
    if beams == 1:
        return structure
    rows = ops.reshape(parents + offsets, (-1,))  # (B * K,)
    return tree.map_structure(lambda x: take(x, rows), structure)


def _is_not_first(state, _):
    return state[0] > 0


def _step_back(state, record):
    """One step back: the slots (B, N) before a step, from those before the next one; `path` (L, B, N) records them."""
    position, slots, path = state
    parents, ends, end_slots = record  # (L, B, K), (B, N), (B, N)
    position = position - 1
    parents = take(parents, position)  # (B, K)
    slots = ops.where(position < ends, take_in_rows(parents, slots), end_slots)  # (B, N)
    return match_spec((position, slots, put(path, position, slots)), state)


def backtrace(final: BeamState, config: BeamConfig) -> SearchResult:
    """Reads the N best hypotheses through the backpointers, from their last slot to their first.

    Where there is no end token, a pointer names the position after a hypothesis, and the slot that it then has.
    """
    special = config.constraints.special_ids
    length, beams = ops.shape(config.norms)[0], config.slots.shape[1]
    exists = final.scores > NEGATIVE_INFINITY  # (B, N)
    ends = ops.where(exists, final.finished_pointers // beams, -1)  # (B, N)
    end_slots = final.finished_pointers % beams  # (B, N)

    # The slot of each hypothesis before each step.
    path = ops.zeros_like(ops.repeat(end_slots[None], length, axis=0))  # (L, B, N)
    start = (final.position, end_slots, path)
    if not isinstance(rows := ops.shape(end_slots)[0], int):
        # In a graph half of the batch may be empty, and TensorFlow does not write updates without elements.
        start = (ops.where(rows > 0, final.position, 0), *start[1:])
    record = final.backpointers[:, :, :beams], ends, end_slots
    _, _, path = while_loop(_is_not_first, _step_back, start, record, config.owner)

    steps = ops.arange(length, dtype="int32")[:, None, None]  # (L, 1, 1)
    after = ops.concatenate([path[1:], path[-1:]], axis=0)  # (L, B, N): a slot before the next step
    if special.end is None:  # a hypothesis may fill all L steps, and then has no slot before a next one
        after = ops.where(steps == ends - 1, end_slots, after)  # (L, B, N)
    cells = steps * (ops.shape(end_slots)[0] * beams) + config.offsets  # (L, B, 1), among L * B * K

    def read(buffer, slots):
        return take(ops.reshape(buffer, (-1,)), 2 * cells + slots)  # (L, B, N)

    token_ids = ops.where(steps < ends, read(final.backpointers, after + beams), special.pad)  # (L, B, N)
    token_log_probs = ops.where(steps < ends, read(final.token_log_probs, after), 0.0)  # (L, B, N)
    lengths = ends
    if special.end is not None:
        lengths = ends + 1  # (B, N)
        token_ids = ops.where(steps == ends, special.end, token_ids)  # (L, B, N)
        token_log_probs = ops.where(steps == ends, read(final.token_log_probs, path + beams), token_log_probs)
    alignments = None
    if not isinstance(final.alignments, tuple):
        source = final.alignments.shape[-1] or ops.shape(final.alignments)[-1]
        flat = ops.reshape(final.alignments, (-1, source))  # (L * B * K, S)
        alignments = take(flat, cells + path)  # (L, B, N, S)
        alignments = ops.where((steps < lengths)[..., None], alignments, 0.0)
        alignments = ops.transpose(alignments, (1, 2, 0, 3))  # (B, N, L, S)
    log_probs = ops.where(exists, ops.sum(token_log_probs, axis=0), NEGATIVE_INFINITY)  # (B, N)
    return SearchResult(
        ops.transpose(token_ids, (1, 2, 0)),
        ops.maximum(lengths, 0) if special.end is None else lengths,
        final.scores,
        log_probs,
        ops.transpose(token_log_probs, (1, 2, 0)),
        alignments,
    )


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
    logits_processor: Callable | None = None,
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
        logits_processor: `(logits (B * K, V), token_ids (B * K, L), position, state) -> logits (B * K, V)`, called at
            each step with the tokens so far (pad from `position` on, a scalar) and the model's state after the step;
            scores are those of the logits that it returns. It must be hashable, and read no other tensors but weights.
            Its numbers and other attributes are read once, when the search is compiled.

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
        logits_processor=logits_processor,
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
    logits_processor: Callable | None = None,
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
    check_numbers(coverage_penalty=coverage_penalty, maximum=MOST_PENALTY)
    check_memory(memory)
    batch, source = ops.shape(memory["mask"])
    memory, shortlist = share_shortlist(memory, shortlist, logits_processor)
    zeros = ops.zeros_like(memory["mask"][:, 0], dtype="int32")  # (B,)
    constraints = constrain(zeros, beam_size, **limits)
    longest = ops.reshape(constraints.max_lengths, (-1, beam_size))[:, 0]  # (B,)
    offsets = (ops.cumsum(ops.ones_like(zeros), axis=0)[:, None] - 1) * beam_size  # (B, 1)
    config = BeamConfig(
        step,
        repeat_rows(memory, beam_size),
        constraints,
        norms,
        longest_norms=take(norms, longest - 1),
        offsets=ops.cast(offsets, "int32"),
        slots=ops.arange(beam_size, dtype="int32") + zeros[:, None],
        coverage_penalty=coverage_penalty,
        early_stopping=early_stopping or beam_size == 1,
        shortlist=shortlist,
        logits_processor=logits_processor,
    )
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
        history=start_history(rows, length, config.constraints, logits_processor),
        state=repeat_rows(state, beam_size),
    )
    return start, config


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
    logits, state, alignment = take_step(config, old)
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
