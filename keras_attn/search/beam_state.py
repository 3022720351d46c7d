"""Beam-search state, row selection and backtrace."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attn.backend import put, take, take_in_rows, while_loop
from keras_attn.search.records import NEGATIVE_INFINITY, Constraints, SearchResult
from keras_attn.search.tensor_ops import match_spec


class BeamState(NamedTuple):
    """What changes from step to step. The slots k of a row are in the order of `log_probs`, best first."""

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
    history: Any  # (B * K, L) int32, the hypothesis; () without n-grams
    state: Any  # the model's, each (B * K, ...)


class BeamConfig(NamedTuple):
    """What stays the same in all steps."""

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
