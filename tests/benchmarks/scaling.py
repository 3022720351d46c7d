"""Time and memory of training against sentence length, vocabulary and batch.

    python -m tests.benchmarks.scaling [--out FILE.json] [--backend jax]

Trains an `RNNSearch` of 256 units with Adam on random ids: one length S = T, one vocabulary size V on both sides, and B
sentences a batch, of which one differs from the middle case (16, 8,000, 32) at a time. The last case has the paper's
sizes: n = 1000, m = 620, l = 500, V = 30,000, of which B = 16 fit these machines. `flops` counts the matrix products of
an update (`tests.benchmarks.accelerator_work`). Every case is a process of its own; `megabytes` are those of its peak
above the imports. A run takes some 5 minutes on two cores; the last line is JSON. Linux only.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
from pathlib import Path

from keras_attn.cli import command
from keras_attn.training import surroundings
from keras_attn.training.report import memory_mb
from tests.benchmarks.accelerator_work import SIZES, Sizes, training_flops
from tests.benchmarks.measuring import run_process, timed

LENGTHS, VOCABULARIES, BATCHES = (8, 16, 32, 64), (2_000, 8_000, 32_000), (8, 32, 128)
MIDDLE = {"length": 16, "vocabulary": 8_000, "batch": 32}
UPDATES, ROUNDS = 4, 3


def cases() -> list[dict]:
    """The middle case with each of its three values changed, and the paper's sizes."""
    changes = [("length", one) for one in LENGTHS]
    changes += [(name, one) for name, values in (("vocabulary", VOCABULARIES), ("batch", BATCHES)) for one in values]
    found = []
    for name, value in changes:
        if (case := MIDDLE | {name: value, "model": "256 units"}) not in found:
            found.append(case)
    return [*found, {"length": 32, "vocabulary": 30_000, "batch": 16, "model": "paper"}]


def sizes_of(case: dict) -> Sizes:
    words = case["vocabulary"]
    small = {"units": 256, "embedding": 256, "readout": 256} if case["model"] != "paper" else {}
    changes = small | {"source_vocabulary": words, "target_vocabulary": words, "length": case["length"]}
    return dataclasses.replace(SIZES["rnnsearch50"], **changes)


def train(case: dict) -> dict:
    """Measures one case, in this process."""
    import keras
    import numpy as np

    from keras_attn.backend import disable_pipeline_autotuning, preferred_jit_compile
    from keras_attn.losses import SmoothedCrossentropy
    from keras_attn.models import RNNSearch
    from tests.benchmarks.train_throughput import Subset, gemm_gflops

    disable_pipeline_autotuning()
    gemm = gemm_gflops(1024)
    imports, sizes = memory_mb(), sizes_of(case)
    shape = case["batch"], case["length"]
    random = np.random.default_rng(0)
    words = [random.integers(4, case["vocabulary"], shape).astype("int32") for _ in range(3)]
    inputs = dict(zip(("encoder_token_ids", "decoder_token_ids"), words, strict=False))
    batches = [(inputs, words[2], np.ones(shape, "float32"))]
    keras.utils.set_random_seed(0)
    model = RNNSearch(
        case["vocabulary"],
        case["vocabulary"],
        units=sizes.units,
        embedding_size=sizes.embedding,
        readout_size=sizes.readout,
        attention_units=sizes.units,
    )
    optimizer = keras.optimizers.Adam(1e-3, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossentropy(0.1), jit_compile=preferred_jit_compile())

    def seconds(updates: int) -> float:
        return timed(lambda: model.fit(Subset(batches, [0] * updates), epochs=1, shuffle=False, verbose=0))[0]

    first = seconds(1)
    times = [seconds(UPDATES) / UPDATES for _ in range(ROUNDS)]
    flops, update = training_flops(sizes, (*shape, case["length"])), statistics.median(times)
    return case | {
        "parameters": model.count_params(),
        "seconds_per_update": round(update, 4),
        "rounds": [round(one, 4) for one in times],
        "first_update_seconds": round(first, 2),
        "target_tokens_per_second": round(case["batch"] * case["length"] / update, 1),
        "megabytes": round(memory_mb("VmHWM") - imports),
        "flops": flops,
        "gflops_per_second": round(flops / update / 1e9, 1),
        "gemm_gflops_per_second": round(gemm, 1),
    }


def measure(options: argparse.Namespace) -> None:
    """Measures every case, and writes the file."""
    from keras_attn.training import report

    if options.case:  # in a process of its own
        print(json.dumps(train(json.loads(options.case))))
        return
    load, found = [round(one, 2) for one in os.getloadavg()], []
    for case in cases():
        line = ["-m", "tests.benchmarks.scaling", "--backend", options.backend, "--case", json.dumps(case)]
        found.append(run_process(*line))
        print(json.dumps(found[-1]), flush=True)
    result = {"benchmark": "scaling", "training": found, "load": load, **surroundings()}
    if options.out:
        report.write(options.out, result)
    print(json.dumps(result))


def main(argv=None) -> int:
    parser = command.Parser("tests.benchmarks.scaling", description=__doc__)
    option = parser.add_argument
    option("--out", type=Path, metavar="FILE.json")
    option("--backend", default="jax", choices=("jax", "tensorflow", "torch"), help="default: %(default)s")
    option("--case", help=argparse.SUPPRESS)
    backend = parser.parse_args(argv).backend
    return command.run(measure, parser, argv, prepare=lambda: command.choose_backend(backend))


if __name__ == "__main__":
    sys.exit(main())
