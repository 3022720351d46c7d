"""Greedy search: the most probable token at each step."""

from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from keras_attn.backend import take_in_rows
from keras_attn.search.constraints import candidates, check_memory, constrain
from keras_attn.search.greedy_loop import GreedyConfig, GreedyState, run_greedy_loop
from keras_attn.search.ranking import length_norms
from keras_attn.search.records import SearchResult
from keras_attn.text import DEFAULT_IDS, SpecialIds


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
    options = {"shortlist": shortlist, "return_alignments": return_alignments}
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
