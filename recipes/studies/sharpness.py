"""How sharp the rows of alignments are."""

import math

import numpy as np


def sharpness(alignments: list[np.ndarray]) -> dict[str, float]:
    """Means over the rows of all alignments `(T, S)`: entropy in nats, largest weight, and ln S for comparison."""
    entropies, largest, uniform = [], [], []
    for alignment in alignments:
        weights = np.asarray(alignment, "float64")  # (T, S)
        weights = weights / weights.sum(axis=-1, keepdims=True)  # (T, S)
        entropies.append(-(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(axis=-1))  # (T,)
        largest.append(weights.max(axis=-1))  # (T,)
        uniform.append(np.full(len(weights), math.log(weights.shape[1])))  # (T,)
    names = {"entropy": entropies, "largest_weight": largest, "uniform_entropy": uniform}
    return {name: float(np.concatenate(values).mean()) for name, values in names.items()}
