"""The cases of `tests.benchmarks.accelerator`, measured in a process of one backend that reads them line by line.

It writes a line about its device, then reads a case as JSON from standard input and writes its result, until the input
ends. `KERAS_BACKEND` chooses the backend. Everything else that is printed goes to standard error.
"""

import dataclasses
import gc
import json
import os
import statistics
import sys
import time
import traceback
from functools import partial

import keras
import numpy as np
from keras import ops

from keras_attn import ParallelDataset, Tokenizer, Translator
from keras_attn.backend import preferred_jit_compile
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch
from keras_attn.text import END_ID, START_ID
from tests.benchmarks import accelerator_device as device
from tests.benchmarks.accelerator_work import SIZES, Sizes, search_bytes, search_flops, training_bytes, training_flops
from tests.benchmarks.joeynmt_sizes import EMBEDDING, UNITS, JoeyNMTSizes
from tests.benchmarks.train_throughput import Subset

SPECIAL_IDS = 4
STEPS_BEFORE_TRACE = 200  # of a search on torch (`keras_attn.backend.torch_tracing`)


def make_model(sizes: Sizes):
    vocabularies = sizes.source_vocabulary, sizes.target_vocabulary
    if sizes.model == "13.0M":
        return JoeyNMTSizes(*vocabularies)
    widths = {"units": sizes.units, "attention_units": sizes.units}
    return RNNSearch(*vocabularies, **widths, embedding_size=sizes.embedding, readout_size=sizes.readout)


def make_peer(system: str, sizes: Sizes, dtype: str):
    vocabularies = sizes.source_vocabulary, sizes.target_vocabulary
    if system == "joeynmt":
        from tests.benchmarks.accelerator_joeynmt import JoeyNMT

        return JoeyNMT(*vocabularies, device.torch_device(), dtype)
    from tests.benchmarks.accelerator_peer import Peer, PlainPyTorch

    model = PlainPyTorch(*vocabularies, UNITS, EMBEDDING)
    return Peer(model, device.torch_device(), dtype)


def make_dataset(sizes: Sizes, batch: int) -> ParallelDataset:
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


def steady(run, seconds: float, warm_up: int = 1) -> tuple[float, float, int]:
    """Seconds of the first `run(1)` and of one in three later `run(n)`, the median, with n for a third of `seconds`.

    In between come `warm_up` calls, or as many as 5 `seconds` allow, and `run(2)`, which decides n.
    """

    def timed(count):
        start = time.perf_counter()
        run(count)
        return (time.perf_counter() - start) / count

    first = timed(1)
    spent = 0.0
    for _ in range(warm_up):
        spent += timed(1)
        if spent > 5 * seconds:
            break
    count = max(1, min(200, round(seconds / 3 / timed(2))))
    return first, statistics.median(timed(count) for _ in range(3)), 3 * count


def train(case: dict, settings: dict, sizes: Sizes) -> dict:
    dataset = make_dataset(sizes, case["batch"])
    inputs, labels, weights = dataset[0]
    shape = inputs["encoder_token_ids"].shape + labels.shape[1:]
    if case["system"] == "keras_attn":
        model = make_model(sizes)
        optimizer = keras.optimizers.Adam(1e-3, global_clipnorm=1.0)
        loss = SmoothedCrossentropy(label_smoothing=0.0)
        model.compile(optimizer, loss, jit_compile=preferred_jit_compile())

        def run(count):
            model.fit(Subset(dataset, [0] * count), epochs=1, shuffle=False, verbose=0)
            device.wait()

        count_parameters = model.count_params
    else:
        peer = make_peer(case["system"], sizes, case["dtype"])

        def run(count):
            for _ in range(count):
                peer.update(inputs["encoder_token_ids"], inputs["decoder_token_ids"], labels, weights)
            peer.wait()

        def count_parameters():
            return sum(parameter.numel() for parameter in peer.model.parameters())

    first, seconds, count = steady(run, settings["seconds"])
    result = {
        "target_tokens_per_second": round(float(weights.sum()) / seconds, 1),
        "seconds_per_update": seconds,
        "updates": count,
        "shape": shape,
        "padding": round(1 - float(weights.mean()), 3),
        "parameters": int(count_parameters()),
    }
    result |= {"first_call_seconds": round(first, 3), "compile_seconds": round(max(0.0, first - seconds), 3)}
    moved = training_bytes(sizes, shape, result["parameters"], case["dtype"])
    return result | shares(settings, training_flops(sizes, shape), moved, seconds)


def search(case: dict, settings: dict, sizes: Sizes) -> dict:
    batch, beam, steps = case["batch"], case["beam"], sizes.length
    random = np.random.default_rng(0)
    ids = random.integers(SPECIAL_IDS, sizes.source_vocabulary, (batch, sizes.length - 1))
    if case["system"] == "keras_attn":
        model = make_model(sizes)
        tokenizers = [make_tokenizer(size) for size in (sizes.source_vocabulary, sizes.target_vocabulary)]
        translator = Translator(model, *tokenizers)
        texts = [" ".join(tokenizers[0].tokens(row.tolist())) for row in ids]
        options = {"beam_size": beam, "batch_size": batch, "tokens_per_batch": 2 * batch * sizes.length}
        options |= {"min_length": steps, "max_length": steps, "return_alignments": False}
        call = partial(translator.generate, texts, **options)
    else:
        source = np.concatenate([ids, np.full((batch, 1), END_ID)], 1)
        peer = make_peer(case["system"], sizes, case["dtype"])
        call = partial(peer.translate, source, beam=beam, steps=steps, start_id=START_ID, end_id=END_ID)

    def run(count):
        for _ in range(count):
            call()

    warm_up = 1 + STEPS_BEFORE_TRACE // steps if keras.backend.backend() == "torch" else 1
    first, seconds, count = steady(run, settings["seconds"], warm_up)
    result = {
        "sentences_per_second": round(batch / seconds, 2),
        "milliseconds_per_call": round(1000 * seconds, 2),
        "calls": count,
        "tokens_per_sentence": steps,
        "first_call_seconds": round(first, 3),
        "compile_seconds": round(max(0.0, first - seconds), 3),
    }
    shape = batch, sizes.length, sizes.length
    moved = search_bytes(sizes, shape, beam, case["dtype"])
    return result | shares(settings, search_flops(sizes, shape, beam), moved, seconds)


def make_tokenizer(vocabulary_size: int) -> Tokenizer:
    """Words of their own for a vocabulary of exactly this size."""
    lines = [f"w{n}" for n in range(vocabulary_size - SPECIAL_IDS)]
    return Tokenizer.train(lines, level="word")


def rates(case: dict, settings: dict) -> dict:
    """The rate of a big matrix product, and of y = x + 1 over a big array (bytes read and written)."""
    size, elements = settings["matrix"], settings["copied"]
    matrix = ops.cast(np.random.default_rng(0).normal(0, size**-0.5, (size, size)), case["dtype"])
    big = ops.zeros((elements,), case["dtype"])

    def repeated(function, start):
        def run(count):
            result = start
            for _ in range(count):
                result = function(result)
            ops.convert_to_numpy(ops.cast(ops.reshape(result, (-1,))[:1], "float32"))

        return run

    _, product, _ = steady(repeated(lambda x: ops.matmul(matrix, x), matrix), settings["seconds"])
    _, copy, _ = steady(repeated(lambda x: ops.add(x, 1), big), settings["seconds"])
    return {
        "matrix_gflops": round(2 * size**3 / product / 1e9, 2),
        "copy_gigabytes_per_second": round(2 * elements * device.itemsize(case["dtype"]) / copy / 1e9, 3),
    }


def shares(settings: dict, flops: float, moved: float, seconds: float) -> dict:
    """The counted work, and its parts of the rates in `settings["rates"]`, if they were measured."""
    result = {"gflops_counted": round(flops / 1e9, 3), "gigabytes_counted": round(moved / 1e9, 4)}
    if rate := settings.get("rates"):
        result["share_of_matrix_rate"] = round(flops / seconds / 1e9 / rate["matrix_gflops"], 4)
        result["share_of_bandwidth"] = round(moved / seconds / 1e9 / rate["copy_gigabytes_per_second"], 4)
    return result


def measure(case: dict, settings: dict) -> dict:
    """The result of a case, with its status: "done", "out of memory" or "failed"."""
    keras.config.set_dtype_policy("mixed_bfloat16" if case["dtype"] == "bfloat16" else "float32")
    keras.utils.set_random_seed(0)
    before = device.reset_peak()
    started = time.perf_counter()
    try:
        if case["kind"] == "rates":
            result = rates(case, settings)
        else:
            sizes = SIZES[settings["size"]][case["model"]]
            result = (train if case["kind"] == "train" else search)(case, settings, sizes)
        result = {"status": "done"} | result | device.peak(before)
    except Exception as error:  # a case must not end the others: it is recorded, and the program's status says so
        traceback.print_exc()
        status = "out of memory" if device.is_out_of_memory(error) else "failed"
        result = {"status": status, "error": f"{type(error).__name__}: {error}"[:500]}
    keras.config.set_dtype_policy("float32")
    keras.utils.clear_session(free_memory=False)
    gc.collect()
    device.free()
    return case | result | {"case_seconds": round(time.perf_counter() - started, 2)}


def main() -> int:
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not stand among the results
    device.allow_tf32()
    sizes = {size: {name: dataclasses.asdict(one) for name, one in models.items()} for size, models in SIZES.items()}
    print(json.dumps(device.facts() | {"sizes": sizes}), file=results)
    for line in sys.stdin:
        print(json.dumps(measure(**json.loads(line))), file=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
