"""Beam search in NumPy: the rules, the arguments and the result of `keras_attn.search.beam_search`.

That function is made of Keras' operations, which this package does without. So its rules are written a second time
here, as short as NumPy allows, and tests compare the two on random models.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from keras_attn.search import SearchResult, check_constraints, check_sizes, length_norm
from keras_attn.text import DEFAULT_IDS, SpecialIds

Arrays = dict[str, np.ndarray]
NEGATIVE_INFINITY = np.float32(-np.inf)
_LOWEST = np.finfo("float32").min
_LEAST_COVERAGE = np.float32(1e-10)


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
        """The limits of `batch` rows; for the others, which may be None, see `keras_attn.search.beam_search`.

        Raises:
            ValueError: see `keras_attn.search.check_constraints`.
        """
        check_constraints(max_length, forced, banned, ids.end)
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


def beam_search(
    step: Callable,
    memory: Arrays,
    state: Arrays,
    *,
    beam_size: int = 5,
    n_best: int = 1,
    length_penalty: float = 1.0,
    normalization: str = "gnmt",
    coverage_penalty: float = 0.0,
    max_length: int,
    row_max_length: np.ndarray | None = None,
    row_min_length: np.ndarray | None = None,
    forced_prefix: np.ndarray | None = None,
    banned_token_ids: Sequence[int] = (),
    no_repeat_ngram_size: int = 0,
    early_stopping: bool = False,
    return_alignments: bool = True,
    special_ids: SpecialIds = DEFAULT_IDS,
) -> SearchResult:
    """Finds the best sequences that K hypotheses a row can find; see `keras_attn.search.beam_search`.

    Args:
        step: `(token_ids (B * K,), memory, state) -> (logits (B * K, V), state, alignment (B * K, S))`.
        memory, state: Arrays `(B, ...)` by name; "mask" `(B, S)` bool is one of the memory.
        beam_size, ...: As there. `keras_attn.search.SearchOptions` checks them.

    Returns:
        A `SearchResult` of arrays, in which L is the length of the longest hypothesis.
    """
    given = row_max_length, row_min_length, forced_prefix, banned_token_ids, no_repeat_ngram_size
    limits = Limits.of_rows(len(memory["mask"]), max_length, *given, special_ids)
    check_sizes(beam_size=beam_size, n_best=n_best)
    lengths = np.arange(1, max_length + 1, dtype="float64")
    norms = length_norm(normalization, length_penalty, lengths).astype("float32")  # (L,)
    beams = _Beams(memory, state, limits, beam_size, n_best)
    stops = beam_size if early_stopping or beam_size == 1 else None
    for position in range(max_length):
        logits, state, alignment = step(beams.token_ids, beams.memory, beams.state)
        beams.advance(position, logits, state, alignment, norms, coverage_penalty, stops, return_alignments)
        if not len(beams.rows):
            break
    return beams.result()


class _Step(NamedTuple):
    """The decisions of a step for each of the B' rows that were left."""

    rows: np.ndarray  # (B',), their numbers in the batch
    parents: np.ndarray  # (B', K), the slot that each extends
    token_ids: np.ndarray  # (B', K)
    token_log_probs: np.ndarray  # (B', K)
    end_log_probs: np.ndarray  # (B', K), of an end token in the place of each slot before the step
    alignment: np.ndarray | None  # (B', K, S), of each slot before the step


class _Beams:
    """The live hypotheses of the B' rows that are left, the best finished ones of all B, and the steps so far."""

    def __init__(self, memory: Arrays, state: Arrays, limits: Limits, beams: int, count: int):
        self.rows = np.arange(len(memory["mask"]))  # (B',)
        rows = np.repeat(self.rows, beams)  # (B' * K,)
        self.memory, self.state, self.limits = _take(memory, rows), _take(state, rows), limits.take(rows)
        only_first = np.where(np.arange(beams) == 0, 0.0, NEGATIVE_INFINITY)  # (K,)
        self.log_probs = np.tile(only_first, (len(self.rows), 1)).astype("float32")  # (B', K)
        self.token_ids = np.full(len(rows), limits.special_ids.start, "int32")  # (B' * K,)
        self.history = np.zeros((len(rows), 0), "int32")  # (B' * K, steps), kept for n-grams
        self.coverage = np.zeros(self.memory["mask"].shape, "float32")  # (B' * K, S)
        self.scores = np.full((len(self.rows), count), NEGATIVE_INFINITY, "float32")  # (B, N)
        self.ends = np.zeros((len(self.rows), count, 2), "int64")  # (B, N, 2): the step and the slot of each end
        self.finished = np.zeros(len(self.rows), "int64")  # (B,)
        self.steps: list[_Step] = []

    def advance(self, position, logits, state, alignment, norms, coverage_penalty, stops, keep) -> None:
        """Chooses the next token of each hypothesis; rows that are finished leave when they are half of all."""
        rows, beams, limits = len(self.rows), self.log_probs.shape[1], self.limits
        found = candidates(logits, position, limits, self.history, beams)
        best, parents, token_ids, token_log_probs, endings = _select(self.log_probs, *found)
        kept = alignment.reshape(rows, beams, -1) if keep else None
        self.steps.append(_Step(self.rows, parents, token_ids, token_log_probs, found[2].reshape(-1, beams), kept))
        order = (np.arange(rows)[:, None] * beams + parents).reshape(-1)  # (B' * K,)
        if coverage_penalty:
            self.coverage = self.coverage + alignment
        coverage, where = self.coverage, position
        last = (limits.longest <= position + 1).reshape(-1, beams)  # (B', K)
        has_end = limits.special_ids.end is not None
        if not has_end:  # the chosen ones end, where they are as long as they may be
            coverage, where, endings = coverage[order], position + 1, np.where(last, best, NEGATIVE_INFINITY)
        scores = endings / norms[position]  # (B', K)
        if coverage_penalty:
            scores = scores + coverage_penalty * _coverage_score(coverage, self.memory["mask"]).reshape(scores.shape)
        self._merge(scores, where)
        bound = best[:, 0] / norms[limits.longest[::beams] - 1]  # (B',)
        done = bound <= self.scores[self.rows].min(axis=1)  # (B',)
        if stops is not None:
            done |= self.finished[self.rows] >= stops
        if not has_end:
            done |= last[:, 0]
        self.log_probs = np.where(done[:, None], NEGATIVE_INFINITY, best)
        self.token_ids = token_ids.reshape(-1)
        if limits.ngram:
            self.history = np.concatenate([self.history[order], self.token_ids[:, None]], axis=1)
        self.state = state
        self._reorder(order)

    def _merge(self, scores: np.ndarray, position: int) -> None:
        """Puts new finished hypotheses (B', K) among the N best; of two equal ones the earlier is the better."""
        rows, (count, beams) = self.rows, (self.scores.shape[1], scores.shape[1])
        self.finished[rows] += (scores > NEGATIVE_INFINITY).sum(axis=1)
        new = np.stack(np.broadcast_arrays(position, np.arange(beams) + 0 * rows[:, None]), axis=-1)  # (B', K, 2)
        all_ends = np.concatenate([self.ends[rows], new], axis=1)  # (B', N + K, 2)
        self.scores[rows], index = highest(np.concatenate([self.scores[rows], scores], axis=1), count)
        self.ends[rows] = np.take_along_axis(all_ends, index[..., None], axis=1)

    def _reorder(self, order: np.ndarray) -> None:
        """Replaces each slot's state by its parent's; leaves finished rows behind when they are half of all."""
        live = (self.log_probs > NEGATIVE_INFINITY).any(axis=1)  # (B',)
        if live.sum() * 2 <= len(live):
            slots = np.flatnonzero(np.repeat(live, self.log_probs.shape[1]))  # of B' * K
            self.rows, self.log_probs, order = self.rows[live], self.log_probs[live], order[slots]
            self.token_ids, self.history = self.token_ids[slots], self.history[slots]
            self.memory, self.limits = _take(self.memory, slots), self.limits.take(slots)
        self.state, self.coverage = _take(self.state, order), self.coverage[order]

    def result(self) -> SearchResult:
        """Traces the N best hypotheses of each row back through the steps."""
        batch, count = self.scores.shape
        exists, has_end = self.scores > NEGATIVE_INFINITY, self.limits.special_ids.end is not None
        lengths = np.where(exists, self.ends[..., 0] + has_end, 0)  # (B, N)
        shape = batch, count, max(1, lengths.max())  # (B, N, L)
        token_ids = np.full(shape, self.limits.special_ids.pad, "int32")
        log_probs, alignments = np.zeros(shape, "float32"), None
        if self.steps[0].alignment is not None:
            alignments = np.zeros((*shape, self.steps[0].alignment.shape[-1]), "float32")  # (B, N, L, S)
        for row, n in zip(*np.nonzero(exists), strict=True):
            end, slot = self.ends[row, n]
            for position in range(lengths[row, n] - 1, -1, -1):
                step = self.steps[position]
                place = np.searchsorted(step.rows, row)
                if has_end and position == end:
                    token_ids[row, n, position] = self.limits.special_ids.end
                    log_probs[row, n, position] = step.end_log_probs[place, slot]
                else:
                    token_ids[row, n, position] = step.token_ids[place, slot]
                    log_probs[row, n, position] = step.token_log_probs[place, slot]
                    slot = step.parents[place, slot]
                if alignments is not None:
                    alignments[row, n, position] = step.alignment[place, slot]
        totals = np.where(exists, log_probs.sum(axis=2), NEGATIVE_INFINITY)  # (B, N)
        return SearchResult(token_ids, lengths, self.scores, totals, log_probs, alignments)


def _select(log_probs, token_ids, extensions, end_log_probs) -> tuple[np.ndarray, ...]:
    """The K best continuations of each row, and the endings that fewer than K candidates of the row exceed.

    Args:
        log_probs: `(B', K)`, of the live hypotheses.
        token_ids, extensions, end_log_probs: From `candidates`.

    Returns:
        log_probs, parents, token_ids, token_log_probs and the endings' log_probs, each `(B', K)`.
    """
    rows, beams = log_probs.shape
    flat, width = (rows, -1), token_ids.shape[1]  # C
    totals = log_probs[:, :, None] + extensions.reshape(rows, beams, width)  # (B', K, C)
    best, index = highest(totals.reshape(flat), beams)  # (B', K)
    endings = log_probs + end_log_probs.reshape(rows, beams)  # (B', K)
    rivals = np.concatenate([best, endings], axis=1)  # (B', 2K)
    better = (rivals[:, None, :] > endings[:, :, None]).sum(axis=-1)  # (B', K)
    chosen = (np.take_along_axis(x.reshape(flat), index, axis=1) for x in (token_ids, extensions))
    return best, index // width, *chosen, np.where(better < beams, endings, NEGATIVE_INFINITY)


def _coverage_score(coverage: np.ndarray, mask: np.ndarray) -> np.ndarray:
    logs = np.log(np.clip(coverage, _LEAST_COVERAGE, np.float32(1)))  # (R, S)
    return np.where(mask, logs, np.float32(0)).sum(axis=-1)  # (R,)


def _take(arrays: Arrays, index: np.ndarray) -> Arrays:
    return {name: array[index] for name, array in arrays.items()}


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
