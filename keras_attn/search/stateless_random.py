"""Stateless random draws: each is a hash of the seed, the sequence and the position, without a generator."""

from typing import Any, NamedTuple

from keras import ops

from keras_attn.backend import take_in_rows
from keras_attn.search.records import Candidates


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
