"""What scheduled sampling gains where teacher forcing misleads: a chain of states, seen through noisy words.

    python -m tests.benchmarks.scheduled_sampling docs/scheduled_sampling.json [--seeds 0 1 2]

A target sentence is a chain of 20 states: each follows from the last by a fixed permutation, or, one time in ten, is
any state. The source has a word for each state, which is wrong every other time. A teacher-forced model reads the true
last state, beside which the word says next to nothing: it learns to follow the chain, and in translation, where it
reads its own last state, one jump puts it off the chain for good. A model that reads its own states in training learns
to weigh all words. The best possible share of right states, by the forward-backward algorithm that knows the chain, is
in the report, too.

Each system trains RNNsearch for as many updates on the same sentences, translates other sentences greedily, and is
scored by the share of right states. The report is JSON.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import keras
import numpy as np

from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch
from keras_attn.search import greedy_search

STATES, LENGTH, FIRST_ID = 12, 20, 4
JUMP, WRONG = 0.1, 0.5
SIZES = {"units": 32, "embedding_size": 24, "readout_size": 48, "attention_units": 32, "decoder_units": 48}
SYSTEMS = {"teacher forcing": None, "scheduled sampling": "inverse_sigmoid,k=40,seed=0"}


def sentences(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Words and states, each (count, 20) from 0."""
    states = np.empty((count, LENGTH), "int64")
    states[:, 0] = rng.integers(STATES, size=count)
    for t in range(1, LENGTH):
        jumps = rng.random(count) < JUMP
        states[:, t] = np.where(jumps, rng.integers(STATES, size=count), (5 * states[:, t - 1] + 1) % STATES)
    wrong = rng.random(states.shape) < WRONG
    return np.where(wrong, rng.integers(STATES, size=states.shape), states), states


def best_possible(words: np.ndarray, states: np.ndarray) -> float:
    """The share of right states of the most probable state at each step, given all words and the chain itself."""
    follow = np.full((STATES, STATES), JUMP / STATES)
    follow[np.arange(STATES), (5 * np.arange(STATES) + 1) % STATES] += 1 - JUMP
    seen = np.full((STATES, STATES), WRONG / STATES) + (1 - WRONG) * np.eye(STATES)
    likelihood = seen[:, words].transpose(1, 2, 0)  # (B, T, states)
    forward, backward = likelihood.copy(), np.ones_like(likelihood)
    for t in range(1, LENGTH):
        forward[:, t] *= forward[:, t - 1] @ follow
        forward[:, t] /= forward[:, t].sum(-1, keepdims=True)
    for t in reversed(range(LENGTH - 1)):
        backward[:, t] = (backward[:, t + 1] * likelihood[:, t + 1]) @ follow.T
        backward[:, t] /= backward[:, t].sum(-1, keepdims=True)
    return float(((forward * backward).argmax(-1) == states).mean())


def with_ends(ids: np.ndarray) -> np.ndarray:
    return np.pad(ids + FIRST_ID, ((0, 0), (0, 1)), constant_values=3).astype("int32")


class Greedy(keras.Model):
    """Greedy search as a compiled model."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.compile()

    def call(self, encoder_token_ids):
        memory, state = self.model.encode(encoder_token_ids)
        return greedy_search(self.model.step, memory, state, max_length=LENGTH + 1).token_ids[:, 0]


def train(sampling: str | None, seed: int, pairs: int, epochs: int) -> dict:
    """Trains a system and scores it."""
    keras.utils.set_random_seed(seed)
    words, states = sentences(pairs, np.random.default_rng([seed, 0]))
    test_words, test_states = sentences(1000, np.random.default_rng([seed, 1]))
    vocabulary = FIRST_ID + STATES
    model = RNNSearch(vocabulary, vocabulary, **SIZES, initializer="glorot_uniform", scheduled_sampling=sampling)

    def batch(words, states):
        labels = with_ends(states)
        given = np.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=2)
        return {"encoder_token_ids": with_ends(words), "decoder_token_ids": given}, labels

    updates = epochs * -(-pairs // 64)
    rate = keras.optimizers.schedules.CosineDecay(5e-3, updates)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0), SmoothedCrossentropy(0.0))
    started = time.perf_counter()
    model.fit(*batch(words, states), batch_size=64, epochs=epochs, verbose=0)
    seconds = time.perf_counter() - started
    found = Greedy(model).predict(with_ends(test_words), batch_size=250, verbose=0)[:, :LENGTH] - FIRST_ID
    forced = model.predict(batch(test_words, test_states)[0], batch_size=250, verbose=0).argmax(-1)[:, :LENGTH]
    return {
        "updates": updates,
        "training_seconds": round(seconds, 1),
        "right_states": round(float((found == test_states).mean()), 4),
        "right_states_with_true_history": round(float((forced - FIRST_ID == test_states).mean()), 4),
        "best_possible": round(best_possible(test_words, test_states), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--pairs", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=14)
    options = parser.parse_args()
    rows = []
    for seed in options.seeds:
        for name, sampling in SYSTEMS.items():
            row = train(sampling, seed, options.pairs, options.epochs)
            rows.append({"system": name, "scheduled_sampling": sampling, "seed": seed, **row})
            print(json.dumps(rows[-1]), flush=True)
    report = {
        "benchmark": "scheduled_sampling",
        "command": f"python -m tests.benchmarks.{Path(__file__).stem} {' '.join(sys.argv[1:])}",
        "backend": keras.backend.backend(),
        "machine": f"{platform.system()} {platform.machine()}, one of two shared cores",
        "rows": rows,
    }
    options.report.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
