"""The shared part of the recipes of tasks: a command line, a timed training, and the folder of a run.

The folder has `report.json`, with which `python -m recipes.pages.results RUN --report CORPUS/NAME` fills the page of
results, `picture.png`, and the weights, `model.keras`.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attn.training import report, surroundings


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
    """

    def __init__(self, name: str, doc: str, argv: Sequence[str] | None, *, epochs: int, items: int | None = None):
        parser = argparse.ArgumentParser(f"python -m recipes.tasks.{name}", description=doc.partition("\n")[0])
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--epochs", type=int, default=epochs)
        parser.add_argument("--items", type=int, default=items, help="training items")
        parser.add_argument("--out", type=Path, default=Path("runs") / name, help="folder of the run")
        options = parser.parse_args(argv)
        self.seed, self.epochs, self.items, self.out = options.seed, options.epochs, options.items, options.out
        command = [parser.prog, "--seed", str(self.seed)]
        for flag, chosen, default in (("--epochs", self.epochs, epochs), ("--items", self.items, items)):
            command += [flag, str(chosen)] if chosen != default else []
        self.report: dict[str, Any] = {"task": name, "title": doc.partition("\n")[0], "command": " ".join(command)}
        self.report |= {"seed": self.seed}
        self.out.mkdir(parents=True, exist_ok=True)
        keras.utils.set_random_seed(self.seed)

    def tests(self, count: int) -> int:
        """The number of test items: `count`, or as many as there are training items, if these are fewer."""
        return min(count, self.items or count)

    def fit(self, model: keras.Model, x: Any, y: Any = None, *, name: str = "model", **options: Any) -> None:
        """`model.fit`, whose seconds and losses the report has, and saves the model under its name."""
        started, used = time.monotonic(), time.process_time()
        history = model.fit(x, y, epochs=self.epochs, verbose=2, **options).history
        spent = {"train_seconds": time.monotonic() - started, "processor_seconds": time.process_time() - used}
        spent = {key: round(self.report.get(key, 0) + seconds, 1) for key, seconds in spent.items()}
        self.report |= {"parameters": model.count_params(), "epochs": self.epochs, **spent}
        losses = {key: [round(float(one), 4) for one in values] for key, values in history.items()}
        self.report.setdefault("history", {})[name] = losses
        model.save(self.out / f"{name.replace(' ', '-')}.keras")

    def finish(self, corpus: str, scores: dict[str, float], measured: str, alt: str, **more: Any) -> None:
        """Writes the report.

        Args:
            corpus: What was learned, in a few words.
            scores: By name, the main one first.
            measured: A sentence: on what, and how.
            alt: What the picture shows.
            **more: Samples, and whatever else belongs to the report.
        """
        scores = {name: round(float(score), 4) for name, score in scores.items()}
        self.report |= {"corpus": corpus, "scores": scores, "measured": measured, "alt": alt, **more}
        report.write(self.out / "report.json", self.report | surroundings())
        print(*(f"{name} {score:g}" for name, score in scores.items()), f"The run is in {self.out}.", sep="\n")


def optimizer(task: Task, batches: int, learning_rate: float) -> keras.optimizers.Optimizer:
    """Adam, whose rate falls to zero along half a cosine over the whole training, with clipped gradients."""
    schedule = keras.optimizers.schedules.CosineDecay(learning_rate, task.epochs * batches)
    return keras.optimizers.Adam(schedule, global_clipnorm=1.0)


def search(model, source: Any, max_length: int, beam_size: int = 4) -> tuple[list[list[int]], list[np.ndarray]]:
    """The best target ids for each row, without the end, and their alignments `(L, S)`, those of the first memory."""
    found = model.generate(source, max_length=max_length, beam_size=beam_size)
    alignments = found.alignments[0] if isinstance(found.alignments, list) else found.alignments
    end = model.target_special_ids.end
    rows = [
        [int(i) for i in ids[:length] if i != end]
        for ids, length in zip(found.token_ids[:, 0], found.lengths[:, 0], strict=True)
    ]
    return rows, list(alignments[:, 0])
