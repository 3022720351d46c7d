"""The alignment of monotonic attention, from the probability to stop at each word and the alignment before."""

import numpy as np
from keras import ops

from keras_attn.backend import cumsum, maximum, scan
from keras_attn.layers.normalizers import at_least_float32, score_dtype

MODES = ("recursive", "parallel", "hard")


def safe_cumprod(x, *, exclusive: bool = False):
    """The cumulative product along the last axis, through logarithms, so that it does not underflow with its gradient.

        exp(sum_{k <= j} log x_k),   with x clipped to [tiny, 1]

    Args:
        x: `(..., S)`, probabilities.
        exclusive: Leaves x_j itself out of the product of place j, which is then 1 at the first place.

    Returns:
        `(..., S)`, in float32, or float64 where x is.
    """
    x = at_least_float32(ops.convert_to_tensor(x))
    tiny = float(np.finfo(score_dtype(x.dtype)).tiny)
    logs = ops.log(ops.where(x < tiny, tiny, ops.where(x > 1, 1.0, x)))  # (..., S)
    if exclusive:
        logs = ops.concatenate([ops.zeros_like(logs[..., :1]), logs[..., :-1]], axis=-1)
    return ops.exp(cumsum(logs, axis=-1))


def monotonic_alignment(chosen, previous, mode: str = "parallel"):
    """The alignment of a step, from the probability to stop at each word and the alignment of the step before.

        q_j = (1 - p_{j-1}) q_{j-1} + alpha_{i-1,j},   alpha_ij = p_j q_j              (Raffel 2017, eqs. 13 and 14)

    Args:
        chosen: p `(B, S)`, in [0, 1]; with "hard" 0 or 1.
        previous: alpha_{i-1} `(B, S)`; before the first step 1 at the first place.
        mode: "recursive": the recurrence, place by place, exact for every p. "parallel": in closed form (appendix
            C.1), all places at once, inexact where the product of the 1 - p falls below 1e-10. "hard": the first word
            from the last one on that is chosen (section 2.2); there is no gradient.

    Returns:
        alpha_i `(B, S)`. Its sum is below 1 by the probability that no word is chosen.

    Raises:
        ValueError: for another mode.

    Reference: Raffel, Luong, Liu, Weiss, Eck. ICML 2017, arXiv:1704.00784.
    """
    check_mode("mode", mode)
    chosen, previous = ops.convert_to_tensor(chosen), ops.convert_to_tensor(previous)
    if mode == "hard":
        chosen = chosen * cumsum(previous, axis=-1)  # (B, S), the words from the last one on
        return chosen * ops.cast(cumsum(chosen, axis=-1) == 1, chosen.dtype)
    if mode == "parallel":
        passed = safe_cumprod(1 - chosen, exclusive=True)  # (B, S), the probability to pass all words before j
        return chosen * passed * cumsum(previous / maximum(passed, 1e-10), axis=-1)
    passing = ops.concatenate([ops.ones_like(chosen[:, :1]), 1 - chosen[:, :-1]], axis=-1)  # (B, S)

    def step(q, x):
        q = x[0] * q + x[1]  # (B,)
        return q, q

    _, q = scan(step, ops.zeros_like(chosen[:, 0]), (ops.transpose(passing), ops.transpose(previous)))  # (S, B)
    return chosen * ops.transpose(q)


def check_mode(name: str, mode) -> None:
    """Refuses what is no mode of monotonic attention."""
    if mode not in MODES:
        raise ValueError(f"Expected `{name}` to be one of {list(MODES)}. Received: {name}={mode!r}")
