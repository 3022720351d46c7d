"""Beam search: K live hypotheses a row, and the N best finished ones beside them.

Live and finished hypotheses are kept apart. Live ones all have the same length, so they compete on plain
log-probability; an end token takes no place from them (each step looks at K continuations and K endings, the
2K candidates of the usual description). Finished ones compete on the normalised score, and are never
extended, dropped for a live one, or changed.

Nothing but `state` follows the parents. Each step writes which slot each hypothesis came from and by which
token; the N winners are followed back through that record once, after the loop, and only their alignments are
picked.
"""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops, tree

from keras_attn.backend import while_loop
from keras_attn.search.beam_state import BeamState, Setting, follow_back, take_rows
from keras_attn.search.constraints import candidates, constrain
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
from keras_attn.search.selection import merge, select
from keras_attn.text import START_ID

# Of a source token that no step attended to: its log 0 would rule out every hypothesis alike.
LEAST_COVERAGE = 1e-10


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
    halvings: int | None = None,
    return_alignments: bool = True,
) -> SearchResult:
    """The best sequences that K hypotheses a row can find.

    A hypothesis y with end token, |y| tokens long, is ranked by

        score(y) = log P(y | x) / norm(|y|) + coverage_penalty * sum_j log min(sum_i alignment_ij, 1)

    with j over the real source tokens (Wu et al. 2016, eq. 14; norms in `length_norms`). A row stops when no
    live hypothesis can overtake its N-th finished one: a log-probability only falls, so a live one at log P
    is worth at most log P / norm(that row's longest), and its coverage term at most 0. With `early_stopping`
    it stops as soon as K hypotheses have ended, which takes fewer steps and proves nothing. At the row's
    longest length only the end token is left, so that every hypothesis is a whole sentence whose score forced
    decoding finds again.

    Args:
        step: `(token_ids (B * K,), memory, state) -> (logits (B * K, V), state, alignment (B * K, S))`.
        memory: dict of tensors `(B, ...)`, constant for the sentence; `memory["mask"]` `(B, S)` bool.
        state: nested structure of tensors `(B, ...)`, before the first step.
        beam_size: K. A beam of one stops at its first end token: it is greedy search.
        n_best: N <= K, how many hypotheses are returned.
        length_penalty: exponent >= 0 of the norm.
        normalization: "gnmt", "average" or "none"; or the norms themselves, `(L,)` float32, for which the length
            penalty is nothing more.
        coverage_penalty: >= 0.
        max_length: L, the length of the outputs, end token included: an int or, in a graph of TensorFlow, a scalar
            int32 tensor (with the norms themselves, and L of at least `no_repeat_ngram_size`).
        row_max_length: `(B,)`, clipped to 1..L; end token included, as in all lengths.
        row_min_length: `(B,)`; where it exceeds the row's longest length, the latter holds.
        forced_prefix: `(B, P)` int, 0 = free from there on; may hold the end token. Prevails over the other
            limits.
        banned_token_ids: never produced; pad and start never are.
        no_repeat_ngram_size: no n-gram of this size occurs twice in a hypothesis; 0 = off.
        early_stopping: see above.
        halvings: how often the search goes on with the half of the rows that are not done: 2 save a third of the work
            of a large batch. Each is one more loop to compile. None: 2 from 64 rows on or where their number is not
            known, 1 from 32 on.
        return_alignments: if False, no alignment is kept (unless for the coverage) and the result's is None.

    Raises:
        ValueError: for options outside the ranges above.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"Expected 1 <= n_best <= beam_size. Received: n_best={n_best}, beam_size={beam_size}")
    if not coverage_penalty >= 0:
        raise ValueError(f"Expected `coverage_penalty` >= 0. Received: coverage_penalty={coverage_penalty}")
    check_memory(memory)
    setting = _setting(
        step,
        memory,
        beam_size,
        length_norms(normalization, length_penalty, max_length),
        coverage_penalty,
        early_stopping or beam_size == 1,
        dict(
            max_length=max_length,
            row_max_length=row_max_length,
            row_min_length=row_min_length,
            forced_prefix=forced_prefix,
            banned_token_ids=banned_token_ids,
            no_repeat_ngram_size=no_repeat_ngram_size,
        ),
    )
    start = _start(setting, memory["mask"], repeat_rows(state, beam_size), n_best, return_alignments)
    batch = ops.shape(memory["mask"])[0]
    if halvings is None:
        halvings = sum(batch >= rows for rows in (32, 64)) if isinstance(batch, int) else 2
    return _run(start, setting, halvings)


def _setting(step, memory, beams, norms, coverage_penalty, early_stopping, limits) -> Setting:
    rows = ops.zeros_like(memory["mask"][:, 0], dtype="int32")  # (B,)
    constraints = constrain(rows, beams, **limits)
    offsets = ops.cumsum(ops.ones_like(rows), axis=0)[:, None] - 1  # (B, 1)
    longest = ops.reshape(constraints.max_lengths, (-1, beams))[:, 0]  # (B,)
    return Setting(
        step,
        repeat_rows(memory, beams),
        constraints,
        norms,
        ops.take(norms, longest - 1, axis=0),
        ops.cast(offsets, "int32"),
        ops.arange(beams, dtype="int32") + rows[:, None],
        coverage_penalty,
        early_stopping,
    )


def _start(setting: Setting, mask, state, n_best: int, keep_alignments: bool) -> BeamState:
    """Before the first step: one live hypothesis a row, of no tokens, and none finished."""
    batch, source = ops.shape(mask)
    beams, length = setting.slots.shape[1], ops.shape(setting.norms)[0]
    rows = batch * beams
    only_first = ops.where(setting.slots == 0, 0.0, NEGATIVE_INFINITY)  # (B, K)
    return BeamState(
        position=ops.convert_to_tensor(0, dtype="int32"),
        token_ids=ops.full((rows,), START_ID, dtype="int32"),
        log_probs=ops.cast(only_first, "float32"),
        scores=ops.full((batch, n_best), NEGATIVE_INFINITY, dtype="float32"),
        pointers=ops.zeros((batch, n_best), dtype="int32"),
        finished=ops.zeros((batch,), dtype="int32"),
        links=ops.zeros((length, batch, 2 * beams), dtype="int32"),
        token_log_probs=ops.zeros((length, batch, 2 * beams), dtype="float32"),
        alignments=ops.zeros((length, rows, source), dtype="float32") if keep_alignments else (),
        coverage=ops.zeros((rows, source), dtype="float32") if setting.coverage_penalty else (),
        history=ops.zeros((rows, length), dtype="int32") if setting.constraints.no_repeat_ngram_size else (),
        state=state,
    )


def _run(old: BeamState, setting: Setting, halvings: int) -> SearchResult:
    """Runs until half of the rows are done, and goes on with the other half in a loop of half the size."""
    batch = ops.shape(old.log_probs)[0]
    remaining = batch // 2 if halvings else 0
    final = while_loop(_more_live, _advance, old, (setting, remaining), setting.owner)
    if not halvings:
        return follow_back(final, setting)
    going = _live(final)  # (B,)
    ended = 1 - going  # (B,)
    places = ops.where(going > 0, ops.sum(ended) + ops.cumsum(going), ops.cumsum(ended)) - 1  # (B,), ended rows first
    order = ops.cast(ops.argsort(places), "int32")  # (B,)
    first = follow_back(*take_rows(final, setting, order[: batch - remaining]))
    last = _run(*take_rows(final, setting, order[batch - remaining :]), halvings - 1)
    return SearchResult(
        *(
            None if a is None else ops.take(ops.concatenate([a, b], axis=0), places, axis=0)
            for a, b in zip(first, last, strict=True)
        )
    )


def _live(state: BeamState):
    """1 for each row that is not done, `(B,)` int32."""
    return ops.cast(ops.any(state.log_probs > NEGATIVE_INFINITY, axis=1), "int32")


def _more_live(state: BeamState, constants: tuple[Setting, Any]):
    """The condition of the loop: whether more rows than should remain are not done."""
    return ops.sum(_live(state)) > constants[1]


def _advance(old: BeamState, constants: tuple[Setting, Any]) -> BeamState:
    """One step: the body of the loop."""
    setting, _ = constants
    beams = setting.slots.shape[1]
    logits, state, alignment = setting.step(old.token_ids, setting.memory, old.state)
    extensions = candidates(logits, old.position, setting.constraints, old.history, beams)
    chosen = select(old.log_probs, extensions, setting.offsets)

    coverage = old.coverage
    if setting.coverage_penalty:
        coverage = coverage + ops.cast(alignment, "float32")  # (B * K, S)
    ended = _rank(chosen.end_log_probs, coverage, old.position, setting)  # (B, K)
    finished = old.finished + ops.sum(ops.cast(ended > NEGATIVE_INFINITY, "int32"), axis=1)  # (B,)
    scores, pointers = merge(old.scores, old.pointers, ended, old.position * beams + setting.slots, setting.offsets)
    # A row that is done loses its live hypotheses, and so can finish no other while its batch mates go on.
    # (max and min, not the first and last of what is sorted: see `candidates` on slices of a top-k.)
    hope = ops.max(chosen.log_probs, axis=-1) / setting.longest_norms  # (B,)
    done = hope <= ops.min(scores, axis=-1)  # (B,)
    if setting.early_stopping:
        done = done | (finished >= beams)  # (B,)

    links = ops.concatenate([chosen.parents, chosen.token_ids], axis=1)  # (B, 2K)
    end_log_probs = ops.reshape(extensions.end_log_probs, (-1, beams))  # (B, K)
    token_log_probs = ops.concatenate([chosen.token_log_probs, end_log_probs], axis=1)  # (B, 2K)
    token_ids = ops.reshape(chosen.token_ids, (-1,))  # (B * K,)
    coverage, history, state = _reorder((coverage, old.history, state), chosen.parents, setting.offsets)
    new = BeamState(
        position=old.position + 1,
        token_ids=token_ids,
        log_probs=ops.where(done[:, None], NEGATIVE_INFINITY, chosen.log_probs),
        scores=scores,
        pointers=pointers,
        finished=finished,
        links=write(old.links, old.position, links),
        token_log_probs=write(old.token_log_probs, old.position, token_log_probs),
        alignments=append(old.alignments, old.position, alignment),
        coverage=coverage,
        history=append(history, old.position, token_ids, axis=1),
        state=state,
    )
    return like(new, old)


def _rank(log_probs, coverage, position, setting: Setting):
    """The scores `(B, K)` of hypotheses that end at `position`."""
    scores = log_probs / ops.take(setting.norms, position, axis=0)  # (B, K)
    if not setting.coverage_penalty:
        return scores
    logs = ops.log(ops.clip(coverage, LEAST_COVERAGE, 1.0))  # (B * K, S)
    covered = ops.sum(ops.where(setting.memory["mask"], logs, 0.0), axis=-1)  # (B * K,)
    return scores + setting.coverage_penalty * ops.reshape(covered, ops.shape(scores))


def _reorder(structure, parents, offsets):
    """Every tensor `(B * K, ...)` with each slot's place taken by its parent."""
    beams = parents.shape[1]
    if beams == 1:
        return structure
    rows = ops.reshape(parents + offsets * beams, (-1,))  # (B * K,)
    return tree.map_structure(lambda x: ops.take(x, rows, axis=0), structure)
