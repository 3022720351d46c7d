"""The shared part of the recipes of tasks: a command line, a timed training, and the folder of a run.

The folder has `report.json`, with which `python -m recipes.pages.results RUN --report CORPUS/NAME` fills the page of
results, `picture.png`, and the weights, `model.keras`.
"""

import argparse
import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attn import Translator
from keras_attn.cli.command import between
from keras_attn.files import is_empty
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.training import report, surroundings
from keras_attn.translation import Translation


class Task:
    """A run of a recipe.

    Args:
        name: Of the recipe's module.
        doc: Its docstring: the first line begins with the task and its paper.
        argv: The command line; None: the process's own.
        epochs: Of the training, unless the command line has others.
        items: The number of training items, likewise; None: all that there are.

    Attributes:
        seed, epochs, items, out: Of the command line.
        picture: The file of the picture.
        scores: By name, the main one first.
    """

    def __init__(self, name: str, doc: str, argv: Sequence[str] | None, *, epochs: int, items: int | None = None):
        parser = argparse.ArgumentParser(f"python -m recipes.tasks.{name}", description=doc.partition("\n")[0])
        count = between(int, 1, 10**9)
        parser.add_argument("--seed", type=between(int, 0, 2**32 - 1), default=0)
        parser.add_argument("--epochs", type=count, default=epochs)
        parser.add_argument("--items", type=count, default=items, help="training items")
        parser.add_argument("--out", type=Path, default=Path("runs") / name, help="folder of the run")
        options = parser.parse_args(argv)
        if options.out.exists() and not is_empty(options.out):
            parser.error(f"Expected --out to be a new or empty folder. {str(options.out)!r} has other files.")
        self.seed, self.epochs, self.items, self.out = options.seed, options.epochs, options.items, options.out
        self.picture = self.out / "picture.png"
        self.scores: dict[str, float] = {}
        command = [parser.prog, "--seed", str(self.seed)]
        for flag, chosen, default in (("--epochs", self.epochs, epochs), ("--items", self.items, items)):
            command += [flag, str(chosen)] if chosen != default else []
        self.report: dict[str, Any] = {"task": name, "title": doc.partition("\n")[0], "command": " ".join(command)}
        self.report["seed"] = self.seed
        self.out.mkdir(parents=True, exist_ok=True)
        keras.utils.set_random_seed(self.seed)

    def tests(self, count: int) -> int:
        """The number of test items: `count`, or as many as there are training items, if these are fewer."""
        return min(count, self.items or count)

    def count(self, what: str, right: Sequence[bool], note: str = "") -> None:
        """Sets the score "`what` right in percent", with a note behind it."""
        self.scores[f"{what} right in percent{note}"] = 100 * float(np.mean(right))

    def fit(self, model: keras.Model, x: Any, y: Any = None, *, learning_rate: float, **options: Any) -> None:
        """Compiles, trains and saves a model; the report has its seconds and losses.

        Args:
            model: A model, of whose outputs the first is trained.
            x, y: A dataset; or arrays and labels.
            learning_rate: Of Adam. It falls to zero along half a cosine over the whole training.
            **options: `loss`, instead of the cross-entropy of logits; `name` of the file; `batch_size` of arrays.
        """
        name, loss, metrics = options.pop("name", "model"), options.pop("loss", None), None
        if loss is None and y is None:
            loss = SmoothedCrossentropy(0.0)
        elif loss is None:
            loss, metrics = keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"]
        trained = keras.Model(model.input, model.outputs[0]) if len(model.outputs) > 1 else model
        batches = len(x) if y is None else -(-len(y) // options["batch_size"])
        schedule = keras.optimizers.schedules.CosineDecay(learning_rate, self.epochs * batches)
        trained.compile(keras.optimizers.Adam(schedule, global_clipnorm=1.0), loss, metrics=metrics)
        started, used = time.monotonic(), time.process_time()
        history = trained.fit(x, y, epochs=self.epochs, verbose=2, **options).history
        spent = {"train_seconds": time.monotonic() - started, "processor_seconds": time.process_time() - used}
        spent = {key: round(self.report.get(key, 0) + seconds, 1) for key, seconds in spent.items()}
        self.report |= {"parameters": trained.count_params(), "epochs": self.epochs, **spent}
        losses = {key: [round(float(one), 4) for one in values] for key, values in history.items()}
        self.report.setdefault("history", {})[name] = losses
        trained.save(self.out / f"{name.replace(' ', '-')}.keras")

    def finish(self, corpus: str, measured: str, samples: Mapping[str, Sequence] | None = None) -> None:
        """Writes the report, and prints the scores.

        Args:
            corpus: What was learned, in a few words.
            measured: A sentence: on what, and how.
            samples: Columns by name, such as references and outputs, of which the report has the first rows.
        """
        scores = {name: round(float(score), 4) for name, score in self.scores.items()}
        self.report |= {"corpus": corpus, "scores": scores, "measured": measured}
        if samples:
            rows = itertools.islice(zip(*samples.values(), strict=True), 20)
            self.report["samples"] = [dict(zip(samples, row, strict=True)) for row in rows]
        report.write(self.out / "report.json", self.report | surroundings())
        print(*(f"{name} {score:g}" for name, score in scores.items()), f"The run is in {self.out}.", sep="\n")


def search(parts: Sequence, source: Any, references: Sequence[str], max_length: int):
    """The translations by a beam of 4, their texts, which of them are right, and the number of the longest such one.

    `parts` are the model and the two tokenizers of a translator.
    """
    found: list[Translation] = Translator(*parts).generate(source, max_length=max_length, beam_size=4)
    texts = [one.text for one in found]
    right = np.array(texts) == np.array(references)
    return found, texts, right, longest(right, [len(one.tokens) for one in found])


def longest(right: Sequence[bool], lengths: Sequence[int]) -> int:
    """The number of the longest of the first 50 items that are right: the one to be drawn."""
    return max(range(min(50, len(right))), key=lambda n: (right[n], lengths[n]))
