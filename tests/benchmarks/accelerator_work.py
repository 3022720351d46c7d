"""The sizes of the benchmarks' models, the operations of their matrix products, and a machine's rate of them.

A backward pass counts twice its forward pass.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable

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


JOEYNMT = {"model": "13.0M", "units": UNITS, "embedding": EMBEDDING, "readout": UNITS}
SIZES = {
    "full": {
        # The vocabularies of Multi30k de-en and its mean sentence; the paper's sizes and a mean sentence of WMT14.
        "13.0M": Sizes(source_vocabulary=7859, target_vocabulary=5921, length=16, **JOEYNMT),
        "rnnsearch50": Sizes(
            model="rnnsearch50",
            source_vocabulary=30_000,
            target_vocabulary=30_000,
            units=1000,
            embedding=620,
            readout=500,
            length=32,
        ),
    },
    "small": {
        "13.0M": Sizes(source_vocabulary=400, target_vocabulary=300, length=8, **JOEYNMT),
        "rnnsearch50": Sizes(
            model="rnnsearch50",
            source_vocabulary=400,
            target_vocabulary=300,
            units=64,
            embedding=40,
            readout=32,
            length=8,
        ),
    },
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


def steady(run: Callable[[int], None], seconds: float, warm_up: int = 1) -> tuple[float, float]:
    """Measures the seconds of the first `run(1)`, and the median of one in three later `run(n)` of `seconds` together.

    In between come `warm_up` calls, or as many as 5 `seconds` allow, and `run(2)`, which decides n.
    """

    def timed(count):
        start = time.perf_counter()
        run(count)
        return (time.perf_counter() - start) / count

    first, spent = timed(1), 0.0
    for _ in range(warm_up):
        spent += timed(1)
        if spent > 5 * seconds:
            break
    count = max(1, min(200, round(seconds / 3 / timed(2))))
    return first, statistics.median(timed(count) for _ in range(3))


def gemm_gflops(dtype: str = "float32", size: int = 2048, seconds: float = 0.5) -> float:
    """Measures the rate of products of two square matrices with so many rows."""
    left = ops.cast(np.random.default_rng(0).normal(0, size**-0.5, (size, size)), dtype)

    def run(count):
        result = left
        for _ in range(count):
            result = ops.matmul(left, result)
        ops.convert_to_numpy(ops.cast(result[:1, :1], "float32"))

    return 2 * size**3 / steady(run, seconds)[1] / 1e9
