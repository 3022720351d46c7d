"""What the pointer-generator gains where words must be copied that training has never seen.

    python -m tests.benchmarks.pointer_generator docs/pointer_generator.json [--seeds 0 1 2]

A sentence says who does what to whom, and its translation says it the other way round, with the actor named twice:
"n12 calls n7 ." becomes "n7 is called by n12 , says n12 .". Names come from two disjoint sets, one for training and one
for the test, and the vocabulary has the commonest names of training alone: to write a name of the test set a model must
copy it. Both systems are the same RNNsearch, trained for as many updates on the same sentences, with and without
`pointer=True`; both translate with beam search. The plain model is also scored with its unknown words replaced by the
source words that it attends to most, which takes no training (Jean et al. 2015).

The report is JSON: for each seed and system the shares of sentences and of names that are right.
"""

import argparse
import json
import platform
import sys
import time
from pathlib import Path

import keras
import numpy as np

from keras_attn import ParallelDataset, Tokenizer, Translator
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch

VERBS = {"calls": "called", "sees": "seen", "likes": "liked", "helps": "helped", "asks": "asked"}
TRAINING_NAMES = [f"n{i}" for i in range(1000)]
UNSEEN_NAMES = [f"m{i}" for i in range(1000)]
SIZES = {"units": 48, "embedding_size": 32, "readout_size": 48, "attention_units": 48, "decoder_units": 64}


def sentences(count: int, names: list[str], rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Pairs of lines."""
    sources, targets = [], []
    for _ in range(count):
        actor, other = rng.choice(names, 2, replace=False)
        verb = rng.choice(list(VERBS))
        sources.append(f"{actor} {verb} {other} .")
        targets.append(f"{other} is {VERBS[verb]} by {actor} , says {actor} .")
    return sources, targets


def scores(found: list[str], references: list[str]) -> dict[str, float]:
    """The shares of right sentences, and of right names at their places."""
    right = [one == other for one, other in zip(found, references, strict=True)]
    names = [
        i < len(line.split()) and line.split()[i] == word
        for line, reference in zip(found, references, strict=True)
        for i, word in enumerate(reference.split())
        if word in UNSEEN_NAMES
    ]
    return {"sentences": round(float(np.mean(right)), 4), "names": round(float(np.mean(names)), 4)}


def measure(seed: int, pointer: bool, epochs: int) -> dict[str, dict[str, float]]:
    """Trains one model; returns its scores, by system."""
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    training, test = sentences(6000, TRAINING_NAMES, rng), sentences(500, UNSEEN_NAMES, rng)
    tokenizer = Tokenizer.train([line for side in training for line in side], level="word", vocabulary_size=100)
    size = tokenizer.vocabulary_size
    data = ParallelDataset.from_text(*training, tokenizer, tokenizer, batch_size=64, seed=seed, pointer=pointer)
    model = RNNSearch(size, size, **SIZES, initializer="glorot_uniform", pointer=pointer)
    model.compile(keras.optimizers.Adam(3e-3, global_clipnorm=1.0), SmoothedCrossentropy(0.0))
    start = time.perf_counter()
    model.fit(data, epochs=epochs, verbose=0)
    seconds = {"seconds": round(time.perf_counter() - start, 1)}
    translator = Translator(model, tokenizer, tokenizer)
    systems = {"pointer-generator": False} if pointer else {"plain": False, "plain, unknown words replaced": True}
    results = {}
    for name, replace in systems.items():
        found = translator.generate(test[0], beam_size=4, replace_unknown=replace)
        results[name] = scores([one.text for one in found], test[1]) | seconds
    return results


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, help="the file to write")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args(argv)
    results = {}
    for seed in arguments.seeds:
        for pointer in (False, True):
            for name, scored in measure(seed, pointer, arguments.epochs).items():
                results.setdefault(name, {})[seed] = scored
                print(f"seed {seed}: {name}: {scored}", file=sys.stderr, flush=True)
    report = {
        "command": f"python -m tests.benchmarks.pointer_generator {arguments.report.as_posix()}",
        "backend": keras.backend.backend(),
        "keras": keras.__version__,
        "python": platform.python_version(),
        "seeds": arguments.seeds,
        "epochs": arguments.epochs,
        "results": results,
    }
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
