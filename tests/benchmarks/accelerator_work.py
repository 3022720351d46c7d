"""The operations of the 13.0 M configuration's matrix products, and a machine's rate of them.

A backward pass counts twice its forward pass.
"""

import statistics
import time

import numpy as np
from keras import ops

from tests.benchmarks.joeynmt_sizes import EMBEDDING, UNITS

_SOURCE = 2 * (2 * 3 * UNITS * (EMBEDDING + UNITS) + 2 * UNITS**2)  # of a source position: both directions, and U h


def _target(source_length: int, vocabulary_size: int) -> int:
    """Of a target position: cell, query, attentional layer, scores and context, logits."""
    step = 3 * UNITS * (EMBEDDING + 2 * UNITS) + UNITS**2 + 3 * UNITS**2
    return 2 * (step + 3 * source_length * UNITS + UNITS * vocabulary_size)


def training_flops(vocabulary_size: int, shape: tuple[int, int, int]) -> int:
    """Floating-point operations of the matrix products of an update, for a batch (B, S, T)."""
    return 3 * search_flops(vocabulary_size, shape, beam=1)


def search_flops(vocabulary_size: int, shape: tuple[int, int, int], beam: int) -> int:
    """Of the search of a batch (B, S, T): the source once, each target token `beam` times."""
    b, s, t = shape
    return b * (s * _SOURCE + beam * t * _target(s, vocabulary_size))


def gemm_gflops(size: int = 2048) -> float:
    """Measures the rate of products of two square matrices of float32 with so many rows: the median of three parts."""
    matrix = ops.convert_to_tensor(np.random.default_rng(0).normal(0, size**-0.5, (size, size)).astype("float32"))

    def timed(count: int) -> float:
        start, result = time.perf_counter(), matrix
        for _ in range(count):
            result = ops.matmul(matrix, result)
        ops.convert_to_numpy(result[:1, :1])
        return (time.perf_counter() - start) / count

    timed(2)
    count = max(1, min(200, round(0.5 / 3 / timed(2))))  # of half a second
    return 2 * size**3 / statistics.median(timed(count) for _ in range(3)) / 1e9
