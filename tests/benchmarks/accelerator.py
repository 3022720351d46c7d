"""Training, search, memory and compilation on one accelerator.

    KERAS_BACKEND=jax python -m tests.benchmarks.accelerator FILE [--minutes 5] [--small]
    KERAS_BACKEND=torch python -m tests.benchmarks.accelerator FILE

Data are synthetic (a fixed seed), sentences have one length (`tests.benchmarks.accelerator_work` has the sizes).
Training, in real target tokens a second, and search, with a beam of 5, greedily and of single sentences, are measured
for the 13.0 M configuration and for the paper's RNNsearch-50, in float32 (products in TF32 on CUDA) and bfloat16, at
several batch sizes. All translations have as many tokens as sources, so that every backend does the same steps; times
include the tokenizer. `share_of_gemm` is the share of the accelerator's rate of matrix products, measured in the same
run.

Each case is a line of JSON at the end of FILE, the most important cases first, with a `status`: "done", "out of memory"
or "failed", with the error. On a CPU, or with `--small`, the sizes are reduced. The exit status is 1 if a case failed.
"""

import argparse
import gc
import json
import sys
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import keras
import numpy as np

from keras_attn import ParallelDataset, Tokenizer, Translator
from keras_attn.backend import has_accelerator, preferred_jit_compile
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch
from keras_attn.training.report import peak_memory_mb
from tests.benchmarks import accelerator_work as work
from tests.benchmarks.joeynmt_sizes import JoeyNMTSizes
from tests.benchmarks.train_throughput import Subset

BACKEND = keras.backend.backend()
DTYPES = "float32", "bfloat16"
BATCHES = {"full": (80, 128, 256, 512, 1024), "small": (2, 4, 8)}
SETTINGS = {"full": {"size": 8192, "seconds": 2.0}, "small": {"size": 512, "seconds": 0.2}}
SPECIAL_IDS = 4
STEPS_BEFORE_TRACE = 200  # of a search on torch, which is traced after that


def plan(batches: tuple[int, ...]) -> Iterator[dict]:
    """All cases, the most important first."""
    main, largest = batches[1], batches[-1]

    def training(model, *chosen):
        for batch in chosen:
            for dtype in DTYPES:
                yield {"kind": "train", "model": model, "dtype": dtype, "batch": batch}

    def searches(model, dtype, *chosen):
        for batch, beam in chosen:
            yield {"kind": "search", "model": model, "dtype": dtype, "batch": batch, "beam": beam}

    yield from training("13.0M", main)
    yield from searches("13.0M", "float32", (main, 5), (main, 1), (1, 5))
    yield from training("rnnsearch50", batches[0], largest)
    yield from training("13.0M", largest)
    yield from searches("rnnsearch50", "bfloat16", (main, 5))
    yield from searches("13.0M", "bfloat16", (main, 5), (largest, 5))
    yield from training("13.0M", *(batch for batch in batches if batch not in (main, largest)))
    yield from training("rnnsearch50", *batches[1:-1])
    yield from searches("rnnsearch50", "float32", (main, 5), (main, 1), (1, 5))


def make_model(sizes: work.Sizes) -> keras.Model:
    """The 13.0 M configuration, or the paper's model."""
    vocabularies = sizes.source_vocabulary, sizes.target_vocabulary
    if sizes.model == "13.0M":
        return JoeyNMTSizes(*vocabularies)
    widths = {"units": sizes.units, "attention_units": sizes.units}
    return RNNSearch(*vocabularies, **widths, embedding_size=sizes.embedding, readout_size=sizes.readout)


def make_dataset(sizes: work.Sizes, batch: int) -> ParallelDataset:
    """One batch of one shape (batch, S, T): rows of 80 to 100 % of the length, with random ids."""
    random = np.random.default_rng(0)
    most = sizes.length - 1  # and the end
    lengths = random.integers(-(-most * 4 // 5), most + 1, (2, batch))
    lengths[:, 0] = most
    sides = [
        [random.integers(SPECIAL_IDS, vocabulary, length).tolist() for length in side]
        for side, vocabulary in zip(lengths, (sizes.source_vocabulary, sizes.target_vocabulary), strict=True)
    ]
    return ParallelDataset(*sides, batch_size=batch, bucket_boundaries=[sizes.length])


def train(case: dict, sizes: work.Sizes, rate: float, seconds: float) -> dict:
    """Measures updates on one batch."""
    dataset = make_dataset(sizes, case["batch"])
    inputs, labels, weights = dataset[0]
    shape = inputs["encoder_token_ids"].shape + labels.shape[1:]
    model = make_model(sizes)
    optimizer = keras.optimizers.Adam(1e-3, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossentropy(label_smoothing=0.0), jit_compile=preferred_jit_compile())

    def run(count):
        model.fit(Subset(dataset, [0] * count), epochs=1, shuffle=False, verbose=0)
        wait()

    first, each = work.steady(run, seconds)
    result = {"target_tokens_per_second": round(float(weights.sum()) / each, 1), "seconds_per_update": each}
    result |= {"parameters": model.count_params(), "compile_seconds": round(max(0.0, first - each), 3)}
    return result | {"share_of_gemm": round(work.training_flops(sizes, shape) / each / 1e9 / rate, 3)}


def search(case: dict, sizes: work.Sizes, rate: float, seconds: float) -> dict:
    """Measures translations of one batch."""
    batch, beam, steps = case["batch"], case["beam"], sizes.length
    ids = np.random.default_rng(0).integers(SPECIAL_IDS, sizes.source_vocabulary, (batch, sizes.length - 1))
    counts = sizes.source_vocabulary - SPECIAL_IDS, sizes.target_vocabulary - SPECIAL_IDS
    tokenizers = [Tokenizer.train([f"w{n}" for n in range(count)], level="word") for count in counts]
    texts = [" ".join(tokenizers[0].tokens(row.tolist())) for row in ids]
    options = {"beam_size": beam, "batch_size": batch, "tokens_per_batch": 2 * batch * sizes.length}
    options |= {"min_length": steps, "max_length": steps, "return_alignments": False}
    call = partial(Translator(make_model(sizes), *tokenizers).generate, texts, **options)

    def run(count):
        for _ in range(count):
            call()

    first, each = work.steady(run, seconds, 1 + STEPS_BEFORE_TRACE // steps if BACKEND == "torch" else 1)
    shape = batch, sizes.length, sizes.length
    result = {"sentences_per_second": round(batch / each, 2), "milliseconds_per_call": round(1000 * each, 2)}
    result |= {"compile_seconds": round(max(0.0, first - each), 3)}
    return result | {"share_of_gemm": round(work.search_flops(sizes, shape, beam) / each / 1e9 / rate, 3)}


def wait() -> None:
    """Returns when torch's device has done its work. On JAX `fit` ends with its last step, whose metrics it reads."""
    if BACKEND == "torch" and has_accelerator():
        import torch

        torch.cuda.synchronize()


def start_case() -> None:
    """Gives the memory of the last case back, and resets torch's peak."""
    keras.utils.clear_session(free_memory=False)
    gc.collect()
    if BACKEND == "jax":
        import jax

        jax.clear_caches()
    elif has_accelerator():
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_mb() -> float:
    """The peak of the accelerator's memory, else of the process; on JAX that of all cases so far."""
    if BACKEND == "torch" and has_accelerator():
        import torch

        return round(torch.cuda.max_memory_allocated() / 1e6, 1)
    if BACKEND == "jax":
        import jax

        if found := jax.local_devices()[0].memory_stats():
            return round(found["peak_bytes_in_use"] / 1e6, 1)
    return round(peak_memory_mb(), 1)


def measure(case: dict, sizes: work.Sizes, rate: float, seconds: float) -> dict:
    """Measures a case; an error of it does not end the others, but is recorded."""
    keras.config.set_dtype_policy("mixed_bfloat16" if case["dtype"] == "bfloat16" else "float32")
    keras.utils.set_random_seed(0)
    start_case()
    try:
        result = (train if case["kind"] == "train" else search)(case, sizes, rate, seconds)
    except Exception as error:
        traceback.print_exc()
        is_memory = (
            isinstance(error, MemoryError) or "out of memory" in str(error) or "RESOURCE_EXHAUSTED" in str(error)
        )
        status = "out of memory" if is_memory else "failed"
        result = {"status": status, "error": f"{type(error).__name__}: {error}"[:500]}
    return case | {"status": "done", "peak_memory_mb": peak_mb()} | result


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, metavar="FILE", help="lines of JSON, to which this backend's are added")
    parser.add_argument("--minutes", type=float, default=5.0, help="after which no case begins (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="reduced sizes, as on a CPU")
    arguments = parser.parse_args(argv)
    end = time.monotonic() + 60 * arguments.minutes
    if BACKEND == "torch" and has_accelerator():
        import torch

        torch.set_float32_matmul_precision("high")  # TF32, as JAX does by default
    size = "full" if has_accelerator() and not arguments.small else "small"
    settings = SETTINGS[size]
    about = {"benchmark": "accelerator", "backend": BACKEND, "size": size}
    rates = {dtype: work.gemm_gflops(dtype, **settings) for dtype in DTYPES}
    failed = False
    for case in plan(BATCHES[size]):
        if time.monotonic() > end:
            print("The rest was left out: out of time.", file=sys.stderr)
            break
        found = measure(case, work.SIZES[size][case["model"]], rates[case["dtype"]], settings["seconds"])
        failed |= found["status"] == "failed"
        with arguments.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(about | {"gemm_gflops": round(rates[case["dtype"]], 1)} | found) + "\n")
        print(json.dumps(found), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
