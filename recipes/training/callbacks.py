"""What training needs beyond `fit`, as Keras callbacks: time, a validation score, best weights, a checkpoint."""

import csv
import json
import os
import time
from pathlib import Path

import keras
import numpy as np

from keras_attn.evaluation import by_metric
from keras_attn.translator import Translator


@keras.saving.register_keras_serializable(package="keras_attn_recipes")
class ConstantThenLinear(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that warms up linearly, stays constant for a share of all steps, then falls linearly to zero."""

    def __init__(self, learning_rate: float, total_steps: int, constant_share: float = 0.5, warmup_steps: int = 0):
        self.learning_rate = learning_rate
        self.total_steps = total_steps
        self.constant_share = constant_share
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = keras.ops.cast(step, "float32")
        warm = (step + 1) / max(1, self.warmup_steps)
        left = (1 - step / self.total_steps) / max(1e-9, 1 - self.constant_share)
        return self.learning_rate * keras.ops.clip(keras.ops.minimum(warm, left), 0.0, 1.0)

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "total_steps": self.total_steps,
            "constant_share": self.constant_share,
            "warmup_steps": self.warmup_steps,
        }


class Clock(keras.callbacks.Callback):
    """Counts the seconds of training and, given a budget, ends it in time.

    Within a budget the rate follows the clock, not the steps, whose number nobody knows beforehand: constant
    for `constant_share` of the time, then linearly down, set anew for each epoch. Such a run does not repeat
    bit by bit.
    """

    def __init__(self, budget_seconds: float | None, learning_rate: float, constant_share: float):
        super().__init__()
        self.budget_seconds = budget_seconds
        self.learning_rate = learning_rate
        self.constant_share = constant_share
        self.seconds = 0.0  # all of `fit`, of earlier runs too
        self.training_seconds = 0.0  # without validation and checkpoints
        self._epoch_seconds = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self._started = self._last_batch = time.monotonic()
        if self.budget_seconds:
            time_done = (self.seconds + self._epoch_seconds / 2) / self.budget_seconds
            done = max(time_done, (epoch + 0.5) / self.params["epochs"])
            share = (1 - done) / max(1e-9, 1 - self.constant_share)
            self.model.optimizer.learning_rate = self.learning_rate * min(1.0, max(0.02, share))

    def on_train_batch_end(self, batch, logs=None):
        self._last_batch = time.monotonic()
        if self.budget_seconds and self.seconds + self._last_batch - self._started > self.budget_seconds:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        logs["seconds"] = round(self._last_batch - self._started, 3)
        self.training_seconds += self._last_batch - self._started

    def add_epoch(self):
        """Called when the epoch's validation is over too."""
        self._epoch_seconds = time.monotonic() - self._started
        self.seconds += self._epoch_seconds

    def state(self) -> list[float]:
        return [self.seconds, self.training_seconds, self._epoch_seconds]

    def restore(self, state: list[float]) -> None:
        self.seconds, self.training_seconds, self._epoch_seconds = state


class LastUpdate(keras.callbacks.Callback):
    """Ends training after so many updates, within an epoch if need be."""

    def __init__(self, updates: int, updates_per_epoch: int):
        super().__init__()
        self.updates = updates
        self.updates_per_epoch = updates_per_epoch

    def on_epoch_begin(self, epoch, logs=None):
        self._before = epoch * self.updates_per_epoch

    def on_train_batch_end(self, batch, logs=None):
        # Counted here: on JAX the optimizer's own count stands still within an epoch.
        if self._before + batch + 1 >= self.updates:
            self.model.stop_training = True


class Validation(keras.callbacks.Callback):
    """Scores greedy translations after each epoch, keeps the best weights, stops when they get no better.

    The score is that of `keras_attn.evaluation.by_metric.main_score`; the logs call it `val_bleu` or `val_wer`. With
    `average_decay` in the optimizer the averaged weights are the ones translated and kept. When training ends the
    model has the best weights.
    """

    def __init__(self, translator: Translator, sources, references, *, metric: str, tokenize: str, patience: float):
        super().__init__()
        self.translator = translator
        self.sources = sources
        self.references = references
        self.metric = metric
        self.tokenize = tokenize
        self.patience = patience
        self.best_score: float | None = None
        self.best_epoch = -1
        self.best_weights: list[np.ndarray] = []

    def on_epoch_end(self, epoch, logs=None):
        weights = self.model.trainable_variables
        averaged = getattr(self.model.optimizer, "use_ema", False)
        own = [keras.ops.convert_to_numpy(v) for v in weights] if averaged else []
        if averaged:
            self.model.optimizer.finalize_variable_values(weights)
            # Copies: on JAX the assignment shares the average's buffer, which translating then gives away.
            for variable in weights:
                variable.assign(np.array(keras.ops.convert_to_numpy(variable)))
        found = self.translator.generate(self.sources, beam_size=1, batch_size=128, return_alignments=False)
        texts = [t.text for t in found]
        score = by_metric.main_score(self.metric, self.sources, self.references, texts, self.tokenize)
        logs[f"val_{self.metric}"] = round(score, 2)
        if by_metric.is_better(self.metric, score, self.best_score):
            self.best_score, self.best_epoch = score, epoch
            self.best_weights = self.model.get_weights()
        for variable, value in zip(weights, own, strict=bool(own)):
            variable.assign(value)
        if epoch - self.best_epoch >= self.patience:
            self.model.stop_training = True

    def on_train_end(self, logs=None):
        if self.best_weights:
            self.model.set_weights(self.best_weights)


class Checkpoint(keras.callbacks.Callback):
    """One file after each epoch with all that decides the rest of training, replaced in one move.

    Weights, the random states of dropout, the optimizer, the best weights so far, the clock and the history:
    after `kill -9` a run goes on from the last whole epoch, and on a CPU with TensorFlow ends with the very
    same weights. The history goes into a table of its own as well; `CSVLogger` would keep the line of an
    epoch that is run again.
    """

    def __init__(self, path: Path, history_path: Path, validation: Validation, clock: Clock):
        super().__init__()
        self.path = Path(path)
        self.history_path = Path(history_path)
        self.validation = validation
        self.clock = clock
        self.history: list[dict] = []

    def on_epoch_end(self, epoch, logs=None):
        self.clock.add_epoch()
        self.history.append({"epoch": epoch, **{name: float(value) for name, value in logs.items()}})
        state = {
            "history": self.history,
            "clock": self.clock.state(),
            "best_score": self.validation.best_score,
            "best_epoch": self.validation.best_epoch,
            "stopped": bool(self.model.stop_training),
        }
        arrays = {f"model_{i}": keras.ops.convert_to_numpy(v) for i, v in enumerate(_variables(self.model))}
        arrays |= {
            f"optimizer_{i}": keras.ops.convert_to_numpy(v) for i, v in enumerate(self.model.optimizer.variables)
        }
        arrays |= {f"best_{i}": value for i, value in enumerate(self.validation.best_weights)}
        partial = self.path.with_name(f".tmp-{self.path.name}")
        with partial.open("wb") as file:
            np.savez(file, state=np.frombuffer(json.dumps(state).encode(), "uint8"), **arrays)
        os.replace(partial, self.path)
        with self.history_path.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, self.history[-1].keys())
            table.writeheader()
            table.writerows(self.history)

    def restore(self, model: keras.Model) -> bool:
        """Puts everything back, before `fit`. Returns whether training had ended.

        Raises:
            ValueError: if the checkpoint is not one of this model.
        """
        model.optimizer.build(model.trainable_variables)
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = dict(file)
            state = json.loads(arrays.pop("state").tobytes())
            groups = {
                "model": _variables(model),
                "optimizer": model.optimizer.variables,
                "best": model.weights,
            }
            if len(arrays) != sum(map(len, groups.values())):
                raise KeyError("another number of variables")
            for name, variables in groups.items():
                for i, variable in enumerate(variables):
                    if arrays[f"{name}_{i}"].shape != tuple(variable.shape):
                        raise KeyError(f"another shape of {variable.path}")
        except (OSError, KeyError, ValueError, EOFError) as error:
            raise ValueError(f"Expected {str(self.path)!r} to be a checkpoint of this run. {error}") from None
        for name in ("model", "optimizer"):
            for i, variable in enumerate(groups[name]):
                variable.assign(arrays[f"{name}_{i}"])
        self.validation.best_weights = [arrays[f"best_{i}"] for i in range(len(model.weights))]
        self.validation.best_score, self.validation.best_epoch = state["best_score"], state["best_epoch"]
        self.history = state["history"]
        self.clock.restore(state["clock"])
        return state["stopped"]


def _variables(model):
    """Weights and random states; metrics start anew at each epoch."""
    passing = {id(v) for v in model.metrics_variables}
    return [v for v in model.variables if id(v) not in passing]
