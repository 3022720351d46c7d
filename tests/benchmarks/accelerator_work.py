"""The models of `tests.benchmarks.accelerator`, and the operations and bytes that their steps cannot do without.

`*_bytes` is a lower bound when nothing stays in a cache between two steps of a loop: each step reads the weights of its
matrix products, the keys and the memory; the logits are written and read; Adam reads four and writes three arrays of
the parameters. A backward pass counts twice its forward pass. With weights that fit a cache the share of the memory's
rate may therefore exceed 1.
"""

import dataclasses

from tests.benchmarks import train_throughput
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
    if sizes.model == "13.0M":
        return train_throughput.flops(shape, sizes.target_vocabulary)
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


def training_bytes(sizes: Sizes, shape: tuple[int, int, int], parameters: int, dtype: str) -> float:
    """Bytes of an update."""
    b, s, t = shape
    bytes_each = 2 if dtype == "bfloat16" else 4
    attended = b * s * 3 * sizes.units  # keys and memory
    loops = s * _encoder_weights(sizes) + t * (_step_weights(sizes) + attended)
    logits = 2 * b * t * sizes.target_vocabulary
    return 3.0 * bytes_each * (loops + logits) + 7 * 4 * parameters


def search_bytes(sizes: Sizes, shape: tuple[int, int, int], beam: int, dtype: str) -> float:
    """Bytes of the search of a batch (B, S, T). Hypotheses of a sentence share its keys and memory."""
    b, s, t = shape
    output = sizes.readout * sizes.target_vocabulary
    attended = b * s * 3 * sizes.units
    logits = 2 * b * beam * sizes.target_vocabulary
    step = _step_weights(sizes) + _readout_weights(sizes) + output + attended + logits
    bytes_each = 2 if dtype == "bfloat16" else 4
    return float(bytes_each * (s * _encoder_weights(sizes) + t * step))
