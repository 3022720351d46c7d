"""A figure with its spread."""

from collections.abc import Sequence

import numpy as np


def with_spread(name: str, values: Sequence[float], digits: int = 1) -> dict:
    """NAME, the median of the values, and NAME_spread, the 10th and the 90th percentile."""
    low, middle, high = (round(float(value), digits or None) for value in np.percentile(values, (10, 50, 90)))
    return {name: middle, f"{name}_spread": [low, high]}
