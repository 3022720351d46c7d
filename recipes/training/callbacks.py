"""What training needs beyond `fit`, as Keras callbacks: a time budget, a validation score, a checkpoint."""

import csv
import json
import math
import textwrap
import time
from pathlib import Path

import keras
import numpy as np

from keras_attn import Translator, files
from keras_attn.evaluation import by_metric
from keras_attn.models import Seq2Seq
from recipes.training.vocabulary import fit_padding


class TimeBudget(keras.callbacks.Callback):
    """Measures the seconds of training and, given a budget, ends training within it.

    Within a budget the learning rate follows the time, as the number of steps is unknown beforehand: constant for
    `hold_fraction` of the time, then linearly down, set anew for each epoch. Such a run does not repeat bit by bit.
    """

    def __init__(self, budget_seconds: float | None, learning_rate: float, hold_fraction: float):
        super().__init__()
        self.budget_seconds = budget_seconds
        self.learning_rate = learning_rate
        self.hold_fraction = hold_fraction
        self.seconds = 0.0  # in `fit`, before a resumption too
        self.training_seconds = 0.0  # without validation and checkpoints
        self._epoch_seconds = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        self._started = self._last_batch = time.monotonic()
        if self.budget_seconds:
            time_done = (self.seconds + self._epoch_seconds / 2) / self.budget_seconds
            done = max(time_done, (epoch + 0.5) / self.params["epochs"])
            fraction = (1 - done) / max(1e-9, 1 - self.hold_fraction)
            self.model.optimizer.learning_rate = self.learning_rate * min(1.0, max(0.02, fraction))

    def on_train_batch_end(self, batch, logs=None):
        self._last_batch = time.monotonic()
        if self.budget_seconds and self.seconds + self._last_batch - self._started > self.budget_seconds:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        logs["seconds"] = round(self._last_batch - self._started, 3)
        self.training_seconds += self._last_batch - self._started

    def add_epoch(self):
        """Counts an epoch whose validation is finished; `Checkpoint` calls it."""
        self._epoch_seconds = time.monotonic() - self._started
        self.seconds += self._epoch_seconds

    def state(self) -> list[float]:
        """What `restore` takes."""
        return [self.seconds, self.training_seconds, self._epoch_seconds]

    def restore(self, state: list[float]) -> None:
        """Continues from the `state()` of an interrupted run."""
        self.seconds, self.training_seconds, self._epoch_seconds = state


class StopAfterSteps(keras.callbacks.Callback):
    """Ends training after `max_steps` batches, in the middle of an epoch if necessary."""

    def __init__(self, max_steps: int, steps_per_epoch: int):
        super().__init__()
        self.max_steps = max_steps
        self.steps_per_epoch = steps_per_epoch

    def on_epoch_begin(self, epoch, logs=None):
        self._before = epoch * self.steps_per_epoch

    def on_train_batch_end(self, batch, logs=None):
        # Counted here, because on JAX the optimizer's own count is updated only after the epoch.
        if self._before + batch + 1 >= self.max_steps:
            self.model.stop_training = True


class Validation(keras.callbacks.EarlyStopping):
    """Scores greedy translations after each epoch: early stopping on that score, with the best weights restored.

    The score is that of `keras_attn.evaluation.by_metric.main_score`; the logs have it as `val_bleu` or `val_wer`. If
    the optimizer keeps an average of the weights, the averaged weights are validated and kept. This does not use
    `SwapEMAWeights`, which on TensorFlow swaps by adding and subtracting, so that training would continue with rounded
    weights.
    """

    def __init__(self, translator: Translator, sources, references, *, metric: str, tokenize: str, patience: float):
        mode = "max" if by_metric.is_better(metric, 1, 0) else "min"
        super().__init__(f"val_{metric}", patience=patience, mode=mode, restore_best_weights=True)
        self.translator = translator
        self.sources = sources
        self.references = references
        self.metric = metric
        self.tokenize = tokenize
        super().on_train_begin()

    def on_train_begin(self, logs=None):
        """Keeps what `Checkpoint` restored, which Keras would reset here."""

    def on_epoch_end(self, epoch, logs=None):
        weights = self.model.trainable_variables
        is_averaged = getattr(self.model.optimizer, "use_ema", False)
        own = [keras.ops.convert_to_numpy(v) for v in weights] if is_averaged else []
        if is_averaged:
            self.model.optimizer.finalize_variable_values(weights)
            # Copies, because on JAX the assignment shares the average's buffer, which translating donates.
            for variable in weights:
                variable.assign(np.array(keras.ops.convert_to_numpy(variable)))
        score = self._score()
        super().on_epoch_end(epoch, {self.monitor: score})
        logs[self.monitor] = round(score, 2)
        for variable, value in zip(weights, own, strict=bool(own)):
            variable.assign(value)

    def _score(self) -> float:
        translations = self.translator.generate(self.sources, beam_size=1, batch_size=128, return_alignments=False)
        texts = [translation.text for translation in translations]
        return by_metric.main_score(self.metric, self.sources, self.references, texts, self.tokenize)


class Checkpoint(keras.callbacks.Callback):
    """Writes one file after each epoch with all that determines the rest of training.

    It has the weights, the random states of dropout, the optimizer, the best weights so far, the time and the history,
    and replaces its predecessor in one move: after `kill -9` a run continues from the last whole epoch, and on a CPU
    with TensorFlow ends with the very same weights. `keras.callbacks.BackupAndRestore` saves the weights and the
    optimizer only, so that the best weights, the time and the history of the earlier epochs would be lost. The history
    is also written as a table; `CSVLogger` would keep the line of an epoch that is run again.
    """

    def __init__(self, path: Path, history_path: Path, validation: Validation, time_budget: TimeBudget):
        super().__init__()
        self.path = Path(path)
        self.history_path = Path(history_path)
        self.validation = validation
        self.time_budget = time_budget
        self.history: list[dict] = []

    def on_epoch_end(self, epoch, logs=None):
        self.time_budget.add_epoch()
        self.history.append({"epoch": epoch, **{name: float(value) for name, value in logs.items()}})
        state = {
            "history": self.history,
            "time": self.time_budget.state(),
            "best_score": self.validation.best,
            "best_epoch": self.validation.best_epoch,
            "wait": self.validation.wait,
            "stopped": bool(self.model.stop_training),
        }
        groups = {
            "model": [keras.ops.convert_to_numpy(v) for v in _variables(self.model)],
            "optimizer": [keras.ops.convert_to_numpy(v) for v in self.model.optimizer.variables],
            "best": self.validation.best_weights,
        }
        arrays = {f"{name}_{i}": value for name, values in groups.items() for i, value in enumerate(values)}
        with files.replacing(self.path) as partial, partial.open("wb") as file:
            np.savez(file, state=np.frombuffer(json.dumps(state).encode(), "uint8"), **arrays)
        self._write_history()

    def _write_history(self) -> None:
        with files.replacing(self.history_path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, self.history[-1].keys())
            table.writeheader()
            table.writerows(self.history)

    def restore(self, model: keras.Model) -> bool:
        """Restores everything, before `fit`. Returns whether training had ended.

        Raises:
            ValueError: if the checkpoint is not one of this model.
        """
        model.optimizer.build(model.trainable_variables)
        groups = {"model": _variables(model), "optimizer": model.optimizer.variables, "best": model.weights}
        try:
            files.check_archive(self.path)
            with np.load(self.path, allow_pickle=False) as file:
                arrays = dict(file)
            state = json.loads(arrays.pop("state").tobytes())
            if len(arrays) != sum(map(len, groups.values())):
                raise ValueError("It has another number of variables.")
            for name, variables in groups.items():
                for i, variable in enumerate(variables):
                    array = fit_padding(arrays[f"{name}_{i}"], variable.shape, _vocabularies(model))
                    arrays[f"{name}_{i}"] = array
                    if array.shape != tuple(variable.shape) or array.dtype.kind not in "fiu":
                        raise ValueError(f"It has another shape or type of {variable.path}.")
            history = state["history"]
            if any(row.keys() != history[0].keys() or not all(map(math.isfinite, row.values())) for row in history):
                raise ValueError("Its history is no table of numbers.")
            seconds = [float(value) for value in state["time"]]
            best = float(state["best_score"]), int(state["best_epoch"]), int(state["wait"])
            if not history or len(seconds) != len(self.time_budget.state()):
                raise ValueError("It has no history.")
        except Exception as error:  # a damaged file fails in as many ways as it has parts
            name = "" if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: "
            reason = textwrap.shorten(f"{name}{error}", 300)
            raise ValueError(
                f"Expected {str(self.path)!r} to be a checkpoint of this run. {reason} Train again in a new folder."
            ) from error
        self.time_budget.restore(seconds)
        self.validation.best, self.validation.best_epoch, self.validation.wait = best
        self.history = history
        for name in ("model", "optimizer"):
            for i, variable in enumerate(groups[name]):
                variable.assign(arrays[f"{name}_{i}"])
        self.validation.best_weights = [arrays[f"best_{i}"] for i in range(len(model.weights))]
        self._write_history()  # without its last line if the process was killed between the two files
        return bool(state["stopped"])


class StopIfNotFinite(keras.callbacks.Callback):
    """Ends training with an error at the first loss that is not finite, so that nothing is saved after it.

    Args:
        checkpoint: Keeps the state after the last whole epoch.

    Raises:
        RuntimeError: if the loss of a batch, or the validation loss of an epoch, is NaN or infinite.
    """

    def __init__(self, checkpoint: Checkpoint):
        super().__init__()
        self.checkpoint = checkpoint

    def on_train_batch_end(self, batch, logs=None):
        self._check("loss", logs, f"batch {batch + 1:,}")

    def on_epoch_end(self, epoch, logs=None):
        self._check("val_loss", logs, "validation")

    def _check(self, name: str, logs: dict, where: str) -> None:
        if math.isfinite(logs[name]):
            return
        epochs = len(self.checkpoint.history)
        kept = (
            f"{str(self.checkpoint.path)!r} has the state after epoch {epochs:,}." if epochs else "Nothing was saved."
        )
        raise RuntimeError(
            f"Training diverged: the {name} is {logs[name]} in epoch {epochs + 1:,}, {where}. {kept} "
            "Train with a lower learning_rate in a new folder."
        )


def _vocabularies(model) -> list[int]:
    return (
        [getattr(model, f"{side}_vocabulary_size") for side in ("source", "target")]
        if isinstance(model, Seq2Seq)
        else []
    )


def _variables(model):
    """Weights and random states, without the metrics, which start anew with each epoch."""
    metrics = {id(v) for v in model.metrics_variables}
    return [v for v in model.variables if id(v) not in metrics]
