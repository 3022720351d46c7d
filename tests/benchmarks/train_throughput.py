"""Training speed of the 13.0 M configuration on Multi30k de-en, as real target tokens a second.

    KERAS_BACKEND=torch python -m tests.benchmarks.train_throughput --data DIR
    KERAS_BACKEND=torch python -m tests.benchmarks.train_throughput --data DIR --bfloat16-products

The sizes are JoeyNMT's (`tests.benchmarks.joeynmt_sizes`). DIR holds `data/multi30k-tok/` (default:
$KERAS_ATTN_DATA). Sixty updates are timed, in five parts. The last line is JSON. `share_of_gemm` is the model's matrix
products (forward and twice that backward, real and padded positions alike) against the rate of a 2048 x 2048 product
measured before and after in the same process.
"""

import argparse
import contextlib
import json
import statistics
import sys

import keras
import numpy as np

from keras_attn import ParallelDataset, Tokenizer
from keras_attn.backend import bfloat16_products, preferred_jit_compile, tune_process
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.training.report import peak_memory_mb
from tests.benchmarks.accelerator_work import gemm_gflops, training_flops
from tests.benchmarks.joeynmt_sizes import SENTENCES, JoeyNMTSizes
from tests.benchmarks.measuring import parser_of, sentences, timed

UPDATES = 60


class Subset(keras.utils.PyDataset):
    """Some batches of a dataset."""

    def __init__(self, dataset, indices):
        super().__init__()
        self.dataset, self.indices = dataset, list(indices)

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, i):
        return self.dataset[self.indices[i]]


def main(argv=None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--bfloat16-products", action="store_true", help="see keras_attn.backend.bfloat16_products")
    arguments = parser.parse_args(argv)
    with bfloat16_products() if arguments.bfloat16_products else contextlib.nullcontext():
        return run(arguments)


def run(arguments: argparse.Namespace) -> int:
    tune_process()
    keras.utils.set_random_seed(0)
    lines = sentences(arguments.data, "train")
    tokenizers = [Tokenizer.train(side, level="word", min_frequency=2) for side in lines]
    dataset = ParallelDataset.from_text(*lines, *tokenizers, batch_size=SENTENCES, seed=0)
    model = JoeyNMTSizes(*(tokenizer.vocabulary_size for tokenizer in tokenizers))
    optimizer = keras.optimizers.Adam(1e-3, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossentropy(label_smoothing=0.0), jit_compile=preferred_jit_compile())

    shapes = [
        batch[0]["encoder_token_ids"].shape + batch[1].shape[1:]
        for batch in map(dataset.__getitem__, range(len(dataset)))
    ]
    one_of_each = {shape: i for i, shape in enumerate(shapes)}.values()
    print(f"{model.count_params():,} parameters; warming up {len(one_of_each)} shapes ...", flush=True)
    warm_up, _ = timed(lambda: model.fit(Subset(dataset, one_of_each), epochs=2, shuffle=False, verbose=0))

    gemm, rates, steps, work = [gemm_gflops()], [], [], 0.0
    # Every part begins with the dataset's first two batches, which differ in S and T: what the first two share,
    # Keras on TensorFlow takes for static.
    others = np.arange(2, UPDATES)
    parts = [[0, 1, *part] for part in np.array_split(others, 5)]
    for part in parts:
        tokens = sum(int(dataset[i][2].sum()) for i in part)
        subset = Subset(dataset, part)
        seconds, _ = timed(lambda subset=subset: model.fit(subset, epochs=1, shuffle=False, verbose=0))
        rates.append(tokens / seconds)
        steps.append(seconds / len(part))
        work += sum(training_flops(tokenizers[1].vocabulary_size, shapes[i]) for i in part) / seconds / 1e9 / len(parts)
        gemm.append(gemm_gflops())
        print(f"{len(part)} batches: {rates[-1]:.0f} target tokens a second", flush=True)
    result = {
        "benchmark": "train",
        "backend": keras.backend.backend(),
        "compiled": model.jit_compile,
        "target_tokens_per_second": round(statistics.median(rates)),
        "seconds_per_update": round(statistics.median(steps), 3),
        "padding": round(dataset.report()["padding"], 4),
        "gemm_gflops": round(statistics.median(gemm), 1),
        "share_of_gemm": round(work / statistics.median(gemm), 3),
        "parameters": model.count_params(),
        "warm_up_seconds": round(warm_up, 1),
        "peak_memory_mb": round(peak_memory_mb()),
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
