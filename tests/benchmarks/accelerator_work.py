"""The sizes of the benchmarks' models, the operations of their matrix products, and a machine's rate of them.

A backward pass counts twice its forward pass.
"""

import dataclasses
import statistics
import time

import numpy as np
from keras import ops

from tests.benchmarks.joeynmt_sizes import EMBEDDING, UNITS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """A model: "13.0M" (`tests.benchmarks.joeynmt_sizes`) or "rnnsearch50", and the length of its sentences, S = T."""

    model: str
    source_vocabulary: int
    target_vocabulary: int
    units: int
    embedding: int
    readout: int
    length: int


# The vocabularies of Multi30k de-en and its mean sentence; the paper's sizes and a mean sentence of WMT14.
SIZES = {
    "13.0M": Sizes(
        model="13.0M",
        source_vocabulary=7859,
        target_vocabulary=5921,
        units=UNITS,
        embedding=EMBEDDING,
        readout=UNITS,
        length=16,
    ),
    "rnnsearch50": Sizes(
        model="rnnsearch50",
        source_vocabulary=30_000,
        target_vocabulary=30_000,
        units=1000,
        embedding=620,
        readout=500,
        length=32,
    ),
}


def _step_weights(sizes: Sizes) -> int:
    """Weights of the products of one decoder step: cell, query, and the attentional layer."""
    n, m = sizes.units, sizes.embedding
    if sizes.model == "13.0M":
        return 3 * n * (m + 2 * n) + n * n + 3 * n * n
    return 3 * n * (m + 3 * n) + n * n


def _encoder_weights(sizes: Sizes) -> int:
    return 2 * 3 * sizes.units * (sizes.embedding + sizes.units)


def _readout_weights(sizes: Sizes) -> int:
    """Of RNNsearch's maxout layer, which training applies to all positions at once."""
    return 0 if sizes.model == "13.0M" else 2 * sizes.readout * (3 * sizes.units + sizes.embedding)


def training_flops(sizes: Sizes, shape: tuple[int, int, int]) -> float:
    """Floating-point operations of the matrix products of an update, for a batch (B, S, T)."""
    b, s, t = shape
    return 3 * b * (s * _source_flops(sizes) + t * _target_flops(sizes, s))


def _source_flops(sizes: Sizes) -> float:
    """Of a source position: both directions, and U h."""
    return 2 * (_encoder_weights(sizes) + 2 * sizes.units**2)


def _target_flops(sizes: Sizes, source_length: int) -> float:
    """Of a target position: step, scores, context, read-out, logits."""
    attention = 3 * source_length * sizes.units
    return 2 * (_step_weights(sizes) + attention + _readout_weights(sizes) + sizes.readout * sizes.target_vocabulary)


def search_flops(sizes: Sizes, shape: tuple[int, int, int], beam: int) -> float:
    """Of the search of a batch (B, S, T): the source once, each target token `beam` times."""
    b, s, t = shape
    return b * (s * _source_flops(sizes) + beam * t * _target_flops(sizes, s))


def gemm_gflops(size: int = 2048, seconds: float = 0.5) -> float:
    """Measures the rate of products of two square matrices of float32 with so many rows: the median of three parts."""
    matrix = ops.convert_to_tensor(np.random.default_rng(0).normal(0, size**-0.5, (size, size)).astype("float32"))

    def timed(count: int) -> float:
        start, result = time.perf_counter(), matrix
        for _ in range(count):
            result = ops.matmul(matrix, result)
        ops.convert_to_numpy(result[:1, :1])
        return (time.perf_counter() - start) / count

    timed(2)
    count = max(1, min(200, round(seconds / 3 / timed(2))))
    return 2 * size**3 / statistics.median(timed(count) for _ in range(3)) / 1e9
