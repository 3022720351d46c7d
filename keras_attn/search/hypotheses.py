"""What a search returns, how it normalises for length, and the few array moves that its loops share."""

from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

NEGATIVE_INFINITY = float("-inf")


class SearchResult(NamedTuple):
    """N hypotheses for each of B sentences, the best first.

    A hypothesis ends with the end token, which `lengths`, `log_probs` and `scores` count. Where fewer than N
    exist (every continuation has probability 0), the rest have length 0 and score -inf.
    """

    token_ids: Any  # (B, N, L) int32, without the start token, 0 after the end token
    lengths: Any  # (B, N) int32, the end token included
    scores: Any  # (B, N) float32: the log-probability, normalised for length and coverage; what ranks them
    log_probs: Any  # (B, N) float32: the sum of token_log_probs
    token_log_probs: Any  # (B, N, L) float32, 0 after the end token
    alignments: Any  # (B, N, L, S) float32, 0 after the end token; None if not asked for


def length_norms(normalization: Any, length_penalty: float, max_length: int) -> Any:
    """What a hypothesis of 1, 2, .. L tokens has its log-probability divided by. `(L,)` float32."""
    if not isinstance(normalization, str):  # they are given
        return ops.convert_to_tensor(normalization, dtype="float32")  # (L,)
    lengths = np.arange(1, max_length + 1, dtype="float64")
    norms = length_norm(normalization, length_penalty, lengths).astype("float32")  # (L,)
    return ops.convert_to_tensor(norms)


def length_norm(normalization: str, length_penalty: float, lengths: Any) -> Any:
    """What hypotheses of these lengths, an array or tensor of floats, have their log-probabilities divided by.

    "gnmt" is ((5 + length) / 6)^length_penalty (Wu et al. 2016, arXiv:1609.08144, eq. 14), "average" is
    length^length_penalty (the mean log-probability of a token for 1), "none" is 1. The length counts the end
    token, as in JoeyNMT, fairseq and Tensor2Tensor; tfa.seq2seq leaves it out.
    """
    bases = {"gnmt": (5.0 + lengths) / 6.0, "average": lengths, "none": lengths**0.0}
    if normalization not in bases:
        raise ValueError(
            f"Expected `normalization` to be one of {sorted(bases)}. Received: normalization={normalization!r}"
        )
    if not length_penalty >= 0:  # a negative power would punish length, and void the bound of the stop
        raise ValueError(f"Expected `length_penalty` >= 0. Received: length_penalty={length_penalty}")
    return bases[normalization] ** length_penalty


def check_memory(memory) -> None:
    """Refuses a memory that does not say which source tokens are real."""
    if not isinstance(memory, dict) or "mask" not in memory:
        held = sorted(memory) if isinstance(memory, dict) else type(memory).__name__
        raise ValueError(f'Expected `memory` to be a dict that holds "mask" (B, S) bool. Received: memory={held}')


def repeat_rows(structure, times: int):
    """Every tensor `(B, ...)` of `structure` as `(B * times, ...)`, the copies of a row side by side."""
    if times == 1:
        return tree.map_structure(ops.convert_to_tensor, structure)
    batch = ops.shape(tree.flatten(structure)[0])[0]
    # One index for all: in a graph of TensorFlow a `repeat` is 25 nodes.
    rows = ops.arange(batch * times, dtype="int32") // times  # (B * times,)
    return tree.map_structure(lambda x: ops.take(x, rows, axis=0), structure)


def pick(x, index, offsets):
    """`x[b, index[b, n]]` as (B, n) from x (B, M), index (B, n); `offsets` (B, 1) counts the rows b.

    One flat `take`: `take_along_axis` is a dozen ops on TensorFlow.
    """
    return ops.take(ops.reshape(x, (-1,)), index + offsets * ops.shape(x)[1], axis=0)


def write(buffer, position, update):
    """`buffer` (L, ...) with `buffer[position] = update`."""
    # Not `slice_update`: an XLA op on TensorFlow, and on torch it builds an index for every element.
    return ops.scatter_update(buffer, ops.reshape(position, (1, 1)), ops.expand_dims(update, 0))


def append(buffer, position, update, axis: int = 0):
    """`write` along `axis`, or nothing for a buffer `()` that is not kept."""
    if isinstance(buffer, tuple):
        return buffer
    if axis == 1:
        here = ops.arange(ops.shape(buffer)[1], dtype="int32") == position  # (L,)
        return ops.where(here, update[:, None], buffer)  # (R, L)
    return write(buffer, position, ops.cast(update, buffer.dtype))


def like(structure, reference):
    """`structure` with the shapes and dtypes of `reference`, as a loop must hand its state on."""

    def restore(x, old):
        x = x if x.dtype == old.dtype else ops.cast(x, old.dtype)
        return x if tuple(x.shape) == tuple(old.shape) else ops.reshape(x, ops.shape(old))

    return tree.map_structure(restore, structure, reference)
