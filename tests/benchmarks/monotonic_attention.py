"""What monotonic attention learns in hard mode: sentences of 60 words, translated word by word.

    python -m tests.benchmarks.monotonic_attention docs/monotonic_attention.json [--seeds 0 1 2]

A source sentence has 60 words, drawn from 10, so that each occurs six times: what a word is does not say where it
stands. Each word is translated by its own, but two of the ten become two words, and one becomes none: nor does the
number of the step say where.

Each system is the same RNNsearch with another attention, trained for as many updates on the same sentences, first of 7
to 15 words, then of 15 to 30, then of 30 to 60, and translates others of 60 words greedily. Monotonic attention does it
in hard mode (Raffel 2017, section 2.2): each step reads one word, found by going on from where the last step stood. Its
settings:

- Noise with a deviation of 4 (section 2.5): hard mode reads the sign of the score alone, so the probabilities that are
  learned must be near 0 and 1. The third system has a deviation of 1.
- A bias of 0. At first p is then about 1/2, and a step goes on by one word. With -1 it would go on by three, and the
  attention would be past the end after about twenty steps.
- Mode "recursive" in training, which is exact for probabilities near 1, too.

The score is the share of target tokens, the end token included, that are right at their place. For monotonic attention
it is also given for the expectation that training computes. The report is JSON, rewritten after each training.
"""

import argparse
import json
import platform
import shlex
import sys
import time
from pathlib import Path

import keras
import numpy as np

from keras_attn import BahdanauAttention, BahdanauMonotonicAttention
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch
from keras_attn.search import greedy_search

WORDS, DOUBLED, SILENT = 10, (0, 1), (2,)  # the words that become two, and none
LENGTH, END_ID, FIRST_ID = 60, 3, 4
STAGES = ((15, 500), (30, 500), (60, 1200))  # the longest sentences, and updates
BATCH, UNITS = 32, 32
SIZES = {"units": 48, "embedding_size": 24, "readout_size": 48, "decoder_units": 64}


def monotonic(sigmoid_noise: float) -> BahdanauMonotonicAttention:
    return BahdanauMonotonicAttention(
        UNITS, normalize=True, mode="recursive", sigmoid_noise=sigmoid_noise, inference_mode="hard"
    )


SYSTEMS = {
    "monotonic": lambda: monotonic(4.0),
    "softmax": lambda: BahdanauAttention(UNITS),
    "monotonic, noise 1": lambda: monotonic(1.0),
}


def sentences(count: int, shortest: int, longest: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Source (count, longest + 1) and target (count, T) ids, each with the end token and padding."""
    sources, targets = [], []
    for length in rng.integers(shortest, longest + 1, size=count):
        words = rng.integers(WORDS, size=length)
        sources.append(words + FIRST_ID)
        targets.append([])
        for word in words:
            if word not in SILENT:
                targets[-1].append(FIRST_ID + word)
            if word in DOUBLED:
                targets[-1].append(FIRST_ID + WORDS + word)
    return _padded(sources, longest + 1), _padded(targets, max(map(len, targets)) + 1)


def _padded(rows, width: int) -> np.ndarray:
    ids = np.zeros((len(rows), width), "int32")
    for row, words in zip(ids, rows, strict=True):
        row[: len(words) + 1] = [*words, END_ID]
    return ids


class Greedy(keras.Model):
    """Greedy search as a compiled model."""

    def __init__(self, model, max_length: int):
        super().__init__()
        self.model, self.max_length = model, max_length
        self.compile()

    def call(self, encoder_token_ids):
        memory, state = self.model.encode(encoder_token_ids)
        return greedy_search(self.model.step, memory, state, max_length=self.max_length).token_ids[:, 0]


def score(model, source, target) -> tuple[float, float]:
    """The shares of right tokens, and of sentences all of whose tokens are right."""
    found = Greedy(model, target.shape[1]).predict(source, batch_size=100, verbose=0)
    right, real = found == target, target > 0
    return round(float(right[real].mean()), 4), round(float((right | ~real).all(axis=1).mean()), 4)


def train(system: str, seed: int) -> dict:
    """Trains a system and scores it."""
    keras.utils.set_random_seed(seed)
    rng, test_rng = (np.random.default_rng([seed, i]) for i in range(2))
    attention = SYSTEMS[system]()
    vocabularies = FIRST_ID + WORDS, FIRST_ID + WORDS + len(DOUBLED)
    model = RNNSearch(*vocabularies, **SIZES, attention=attention, initializer="glorot_uniform")
    total = sum(updates for _, updates in STAGES)
    rate = keras.optimizers.schedules.CosineDecay(5e-3, total, alpha=0.02)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0), SmoothedCrossentropy(0.0))
    started = time.perf_counter()
    for longest, updates in STAGES:
        source, target = sentences(updates * BATCH, longest // 2, longest, rng)
        given = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=2)
        inputs = {"encoder_token_ids": source, "decoder_token_ids": np.where(given == END_ID, 0, given)}
        weights = (target > 0).astype("float32")
        model.fit(inputs, target, sample_weight=weights, batch_size=BATCH, verbose=0)
    row = {"updates": total, "training_seconds": round(time.perf_counter() - started, 1)}
    source, target = sentences(200, LENGTH, LENGTH, test_rng)
    row["right_tokens"], row["right_sentences"] = score(model, source, target)
    if isinstance(attention, BahdanauMonotonicAttention):
        attention.inference_mode = None
        row["right_tokens_in_expectation"] = score(model, source, target)[0]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    options = parser.parse_args()
    report = {
        "benchmark": "monotonic_attention",
        "command": f"python -m tests.benchmarks.{Path(__file__).stem} {shlex.join(sys.argv[1:])}",
        "backend": keras.backend.backend(),
        "machine": f"{platform.system()} {platform.machine()}, one of two shared cores",
        "rows": [],
    }
    for name in options.systems:
        for seed in options.seeds:
            report["rows"].append({"system": name, "seed": seed, **train(name, seed)})
            print(json.dumps(report["rows"][-1]), flush=True)
            options.report.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
