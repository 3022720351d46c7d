"""The ranking of finished hypotheses: length normalisation and coverage."""

from typing import Any

import numpy as np
from keras import ops

from keras_attn.search.options import length_norm

# A source token that got no attention at all: log 0 would rule out all hypotheses alike.
_LEAST_COVERAGE = 1e-10


def length_norms(normalization: Any, length_penalty: float, max_length: int) -> Any:
    """`length_norm` of the lengths 1, 2, .. L, `(L,)` float32. `normalization` may be these norms already.

    Raises:
        ValueError: if they are others than L.
    """
    if not isinstance(normalization, str):
        norms = ops.convert_to_tensor(normalization, dtype="float32")  # (L,)
        wrong = isinstance(max_length, int) and norms.shape[0] not in (None, max_length)
        if len(norms.shape) != 1 or wrong:
            raise ValueError(
                f"Expected `normalization` with a norm for each of max_length={max_length} lengths. Received: an array "
                f"of shape {tuple(norms.shape)}"
            )
        return norms
    lengths = np.arange(1, max_length + 1, dtype="float64")
    norms = length_norm(normalization, length_penalty, lengths).astype("float32")  # (L,)
    return ops.convert_to_tensor(norms)


def coverage_score(coverage, mask):
    """sum_j log min(coverage_j, 1) over the real source tokens j (Wu et al. 2016, eq. 14).

    Args:
        coverage: `(R, S)` float32, attention that each source token got in all steps.
        mask: `(R, S)` bool, True = real source token.

    Returns:
        `(R,)` float32, at most 0.
    """
    logs = ops.log(ops.clip(coverage, _LEAST_COVERAGE, 1.0))  # (R, S)
    return ops.sum(ops.where(mask, logs, 0.0), axis=-1)  # (R,)
