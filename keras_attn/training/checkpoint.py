"""The checkpoint of a run: one file with all that determines the rest of training."""

import csv
import hashlib
import json
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from keras_attn import files
from keras_attn.backend import Job, build_optimizer, random_state, set_random_state, sync_variables
from keras_attn.training.callbacks import TimeBudget, Validation


class Checkpoint(keras.callbacks.Callback):
    """Writes one file after each epoch, and when it is asked to, with all that determines the rest of training.

    It has the weights, the random states of dropout, the optimizer, the best weights so far, the time and the history,
    within an epoch also the sums of the metrics and the number of batches, and replaces its predecessor in one move:
    after `kill -9` a run continues from the last whole epoch, and on a CPU with TensorFlow ends with the very same
    weights. `keras.callbacks.BackupAndRestore` saves the weights and the optimizer only, so that the best weights, the
    time and the history of the earlier epochs would be lost. The history is also written as a table; `CSVLogger` would
    keep the line of an epoch that is run again. In a job of several processes rank 0 writes, and all read.
    """

    def __init__(
        self, path: Path, history_path: Path, validation: Validation, time_budget: TimeBudget, job: Job | None = None
    ):
        super().__init__()
        self.job = job or Job()
        self.path = Path(path)
        self.history_path = Path(history_path)
        self.validation = validation
        self.time_budget = time_budget
        self.history: list[dict] = []
        self.first_batch = 0  # of the epoch to go on with
        self._metrics: list[np.ndarray] = []  # their sums up to there
        self._random: list[np.ndarray] = []

    def on_epoch_begin(self, epoch, logs=None):
        if not self.first_batch:  # on torch the iterator over an epoch's batches, which is made next, draws a number
            self.on_train_batch_begin(0)

    def on_train_batch_begin(self, batch, logs=None):
        set_random_state(self._random)
        self._random = []

    def on_train_batch_end(self, batch, logs=None):
        if not self._metrics:
            return
        # On TensorFlow the variables are there only now. All are sums, so what is missing can be added.
        sync_variables(self.model)
        for variable, value in zip(self.model.metrics_variables, self._metrics, strict=True):
            variable.assign(variable + value)
        self._metrics = []

    def on_epoch_end(self, epoch, logs=None):
        self.first_batch = 0
        self.time_budget.add_epoch()
        self.history.append({"epoch": epoch, **{name: float(value) for name, value in logs.items()}})
        self.job.on_rank_0(self._write)

    def save_within_epoch(self, batches: int) -> None:
        """Writes the state after some batches of an epoch. After it, training cannot go on in this process."""
        sync_variables(self.model)
        within = {"batches": batches, "seconds": self.time_budget.seconds_of_epoch()}
        metrics = [keras.ops.convert_to_numpy(v) for v in self.model.metrics_variables]
        self.job.on_rank_0(lambda: self._write(within, metrics))

    def _write(self, within_epoch: dict | None = None, metrics: Sequence[np.ndarray] = ()) -> None:
        state = {
            "history": self.history,
            "time": self.time_budget.state(),
            "best_score": self.validation.best,
            "best_epoch": self.validation.best_epoch,
            "wait": self.validation.wait,
            "stopped": bool(self.model.stop_training),
            "recent": len(self.validation.recent),
            "within_epoch": within_epoch,
        }
        groups = {
            "model": [keras.ops.convert_to_numpy(v) for v in _variables(self.model)],
            "optimizer": [keras.ops.convert_to_numpy(v) for v in self.model.optimizer.variables],
            "best": self.validation.best_weights or [],
            "recent": [weight for weights in self.validation.recent for weight in weights],
            "metrics": metrics,
            "random": random_state(),
        }
        arrays = {f"{name}_{i}": _storable(value) for name, values in groups.items() for i, value in enumerate(values)}
        with files.replacing(self.path) as partial, partial.open("wb") as file:
            np.savez(file, state=np.frombuffer(json.dumps(state).encode(), "uint8"), **arrays)
        self._write_history()

    def _write_history(self) -> None:
        if not self.history:
            return
        with files.replacing(self.history_path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, self.history[-1].keys())
            table.writeheader()
            table.writerows(self.history)

    def restore(self, model: keras.Model) -> bool:
        """Restores everything, before `fit`. Returns whether training had ended.

        Raises:
            ValueError: if the checkpoint is not one of this model, or another process reads another one.
        """
        build_optimizer(model)
        groups = {"model": _variables(model), "optimizer": model.optimizer.variables, "best": model.weights}
        try:
            files.check_archive(self.path)
            with np.load(self.path, allow_pickle=False) as file:
                arrays = dict(file)
            state_bytes = arrays.pop("state").tobytes()
            state = json.loads(state_bytes)
            history, within = state["history"], state.get("within_epoch") or {"batches": 0, "seconds": 0.0}
            metrics, random = (
                [arrays.pop(name) for name in sorted(arrays, key=_number) if name.startswith(group)]
                for group in ("metrics_", "random_")
            )
            if not history:  # no epoch has been scored yet
                groups["best"] = []
            groups["recent"] = model.weights * int(state.get("recent", 0))
            if len(arrays) != sum(map(len, groups.values())):
                raise ValueError("It has another number of variables.")
            for name, variables in groups.items():
                for i, variable in enumerate(variables):
                    array = arrays[f"{name}_{i}"]
                    if array.shape != tuple(variable.shape) or array.dtype.kind not in "fiu":
                        raise ValueError(f"It has another shape or type of {variable.path}.")
            if any(row.keys() != history[0].keys() or not all(map(math.isfinite, row.values())) for row in history):
                raise ValueError("Its history is no table of numbers.")
            seconds = [float(value) for value in state["time"]]
            best = float(state["best_score"]) if history else None, int(state["best_epoch"]), int(state["wait"])
            first_batch, seconds_of_epoch = int(within["batches"]), float(within["seconds"])
            if not (history or first_batch) or len(seconds) != len(self.time_budget.state()):
                raise ValueError("It has no history.")
            if first_batch < 0 or bool(first_batch) != bool(metrics):
                raise ValueError("It has no whole epoch, nor what belongs to a part of one.")
        except Exception as error:  # a damaged file fails in as many ways as it has parts
            name = "" if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: "
            reason = textwrap.shorten(f"{name}{error}", 300)
            raise ValueError(
                f"Expected {str(self.path)!r} to be a checkpoint of this run. {reason} Train again in a new folder."
            ) from error
        self.job.assert_equal({"checkpoint": hashlib.sha256(state_bytes).hexdigest()})
        self.time_budget.restore(seconds, seconds_of_epoch)
        self.validation.best, self.validation.best_epoch, self.validation.wait = best
        self.history, self.first_batch, self._metrics, self._random = history, first_batch, metrics, random
        for name in ("model", "optimizer"):
            for i, variable in enumerate(groups[name]):
                variable.assign(arrays[f"{name}_{i}"])
        self.validation.best_weights = [arrays[f"best_{i}"] for i in range(len(groups["best"]))] or None
        recent, count = [arrays[f"recent_{i}"] for i in range(len(groups["recent"]))], len(model.weights)
        self.validation.recent.clear()
        self.validation.recent.extend(recent[i : i + count] for i in range(0, len(recent), count))
        self.job.on_rank_0(self._write_history)  # without its last line if the process was killed between the two files
        return bool(state["stopped"])


def _storable(array: np.ndarray) -> np.ndarray:
    """The array, or in float32 that of a dtype that NumPy itself does not have, such as bfloat16."""
    return array.astype("float32") if array.dtype.kind == "V" else array


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])


def _variables(model):
    """Weights and random states, without the metrics, which start anew with each epoch."""
    metrics = {id(v) for v in model.metrics_variables}
    return [v for v in model.variables if id(v) not in metrics]
