"""Ancestral sampling. Each draw is a hash of seed, sequence and position, without a generator."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops

from keras_attn.backend import take_in_rows
from keras_attn.search.constraints import Candidates, candidates, check_memory, constrain
from keras_attn.search.greedy import GreedyConfig, GreedyState, run_greedy_loop
from keras_attn.search.options import SearchResult, check_sampling
from keras_attn.search.scoring import length_norms
from keras_attn.text import DEFAULT_IDS, SpecialIds


class Draws(NamedTuple):
    """The keys of R sequences, and the options of sampling."""

    keys: Any  # (R,) int32
    temperature: float
    top_k: int
    top_p: float


def draw(options: Candidates, position, draws: Draws, end: int | None):
    """Draws a token `(R,)`, or `end`, for each sequence; returns it and its log-probability `(R,)`."""
    keys, temperature, top_k, top_p = draws
    uniform = uniforms(keys, position)  # (R,)
    token_ids, log_probs = options.token_ids, options.log_probs  # (R, C)
    if end is not None:
        ends = ops.full_like(options.end_log_probs[:, None], end, dtype="int32")  # (R, 1)
        token_ids = ops.concatenate([token_ids, ends], axis=1)  # (R, C + 1)
        log_probs = ops.concatenate([log_probs, options.end_log_probs[:, None]], axis=1)  # (R, C + 1)
    if top_k or top_p < 1:
        width = ops.shape(log_probs)[1]  # a tensor where TensorFlow does not know how many words a pointer adds
        count = min(top_k or width, width) if isinstance(width, int) else ops.minimum(top_k or width, width)
        log_probs, index = ops.top_k(log_probs, count)  # (R, C)
        token_ids = take_in_rows(token_ids, index)  # (R, C)
    # The maximum avoids -inf - -inf in a row without any allowed token.
    highest = ops.maximum(ops.max(log_probs, axis=-1, keepdims=True), -1e30)  # (R, 1)
    weights = ops.exp((log_probs - highest) / temperature)  # (R, C)
    below = ops.cumsum(weights, axis=-1)  # (R, C)
    if top_p < 1:
        weights = ops.where(below - weights < top_p * below[:, -1:], weights, 0.0)  # (R, C)
        below = ops.cumsum(weights, axis=-1)  # (R, C)
    possible = weights > 0  # (R, C)
    # The total is the largest sum at a possible token, so that some token passes however the sums were rounded.
    total = ops.max(ops.where(possible, below, 0.0), axis=-1, keepdims=True)  # (R, 1)
    hits = possible & (below > uniform[:, None] * total)  # (R, C)
    drawn = ops.argmax(ops.cast(hits, "int32"), axis=-1)[:, None]  # (R, 1), the first
    token_ids = take_in_rows(token_ids, drawn)[:, 0]  # (R,)
    return token_ids, take_in_rows(log_probs, drawn)[:, 0]


def _shift(x, bits: int):
    """Logical right shift of int32 (`ops.right_shift` keeps the sign)."""
    return ops.bitwise_and(ops.right_shift(x, bits), (1 << (32 - bits)) - 1)


def mix(x):
    """Murmur3's finaliser: a bijection of int32 in which every input bit affects every output bit."""
    x = ops.bitwise_xor(x, _shift(x, 16)) * -2048144789  # 0x85EBCA6B
    x = ops.bitwise_xor(x, _shift(x, 13)) * -1028477387  # 0xC2B2AE35
    return ops.bitwise_xor(x, _shift(x, 16))


def uniforms(keys, position):
    """Uniform draws in [0, 1) for the keys `(R,)` at a position: 23 bits, which a float32 represents exactly."""
    return ops.cast(_shift(mix(ops.bitwise_xor(keys, mix(position + 1))), 9), "float32") / float(1 << 23)


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
    special_ids: SpecialIds = DEFAULT_IDS,
    logits_processor: Callable | None = None,
) -> SearchResult:
    """Draws `num_samples` sequences for each row from the model's distribution.

    Each token is drawn from softmax(log p / temperature) over the allowed tokens, restricted first to the `top_k`
    most probable ones and then to the fewest of those that have `top_p` of their probability (Holtzman et al. 2020,
    arXiv:1904.09751). The reported log-probabilities are the model's own, at temperature 1 and over all
    tokens.

    Each random number is a hash of (seed, row id, sample, position), without a generator or state: the same seed gives
    the same sequences on every backend (except where rounding decides on the border between two tokens) and in any
    batch.

    Args:
        step, memory, state, max_length, ...: See `beam_search`, with `num_samples` for K.
        seed: An integer, or an int32 tensor, `()` or one for each row `(B,)`.
        num_samples: Sequences for each row.
        row_ids: `(B,)` int32, on which the random numbers of the rows depend; 0, 1, .. B - 1 by default. With a
            sentence's number in the whole corpus, its samples do not depend on how the corpus was cut into batches.
        temperature: From 1e-37 to 1e37.
        top_k: At least 0; 0 = off.
        top_p: In (0, 1]; 1 = off.

    Returns:
        A `SearchResult` with N = num_samples, in the order drawn.

    Raises:
        ValueError: if an option is out of the ranges above.

    Example:
        >>> source = np.array([[*source_tokenizer.encode("two dogs"), 3]])
        >>> memory, state = model.encode(source)
        >>> result = keras_attn.search.sample(model.step, memory, state, seed=1, num_samples=4, max_length=6)
        >>> tuple(result.token_ids.shape)
        (1, 4, 6)
    """
    check_memory(memory)
    check_sampling(num_samples, temperature, top_k, top_p)
    rows = ops.zeros_like(memory["mask"][:, 0], dtype="int32")  # (B,)
    constraints = constrain(
        rows,
        num_samples,
        max_length=max_length,
        row_max_length=row_max_length,
        row_min_length=row_min_length,
        forced_prefix=forced_prefix,
        banned_token_ids=banned_token_ids,
        no_repeat_ngram_size=no_repeat_ngram_size,
        special_ids=special_ids,
    )
    if row_ids is None:
        row_ids = ops.cumsum(ops.ones_like(rows), axis=0) - 1  # (B,)
    seed = seed & 0x7FFFFFFF if isinstance(seed, int) else seed
    keys = mix(ops.bitwise_xor(ops.cast(row_ids, "int32"), mix(ops.cast(seed, "int32"))))  # (B,)
    numbers = ops.arange(num_samples, dtype="int32")  # (N,)
    keys = ops.reshape(mix(keys[:, None] + 40503 * numbers), (-1,))  # (R,)
    norms = length_norms(normalization, length_penalty, max_length)  # (L,)
    return run_greedy_loop(
        step,
        _drawn,
        memory,
        state,
        constraints,
        norms,
        draws=Draws(keys, temperature, top_k, top_p),
        logits_processor=logits_processor,
        copies=num_samples,
        return_alignments=return_alignments,
    )


def _drawn(logits, state: GreedyState, config: GreedyConfig):
    """A random token `(R,)` and its log-probability `(R,)`."""
    # A plain draw takes all V tokens in the vocabulary's order: only the nucleus must be sorted.
    count = config.draws.top_k or None
    options = candidates(logits, state.position, config.constraints, state.history, count)
    return draw(options, state.position, config.draws, config.constraints.special_ids.end)
