"""Callbacks of Keras: time, validation score, checkpoint, and when training ends early."""

import collections
import csv
import hashlib
import json
import math
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from keras_attn import ParallelDataset, Translator, files
from keras_attn.backend import Job, build_optimizer, random_state, set_random_state, sync_variables
from keras_attn.evaluation import by_metric
from keras_attn.models import mean_weights
from keras_attn.training.termination import Termination


class TimeBudget(keras.callbacks.Callback):
    """Measures the seconds of training and, given a budget, notes when they are used up.

    Within a budget the learning rate follows the time, as the number of steps is unknown beforehand: constant for
    `hold_fraction` of the time, then linearly down to a fiftieth, set anew for each epoch, without a warm-up. Such a
    run does not repeat bit by bit. In a job of several processes the clock is that of rank 0.

    Attributes:
        seconds: In `fit`, before a resumption too.
        training_seconds: Those without validation and checkpoints.
        is_over: True if the budget was used up at the end of the last batch.
    """

    def __init__(
        self, budget_seconds: float | None, learning_rate: float, hold_fraction: float, job: Job | None = None
    ):
        super().__init__()
        self.job = job or Job()
        self.budget_seconds = budget_seconds
        self.learning_rate = learning_rate
        self.hold_fraction = hold_fraction
        self.seconds = 0.0
        self.training_seconds = 0.0
        self.is_over = False
        self._started: float | None = None  # of this epoch
        self._earlier_seconds = 0.0  # of this epoch, before a resumption

    def on_epoch_begin(self, epoch, logs=None):
        self._last_batch = time.monotonic()
        self._started, self._earlier_seconds = self._last_batch - self._earlier_seconds, 0.0
        if self.budget_seconds:
            half_an_epoch = self.seconds / max(1, epoch) / 2
            done = max((self.seconds + half_an_epoch) / self.budget_seconds, (epoch + 0.5) / self.params["epochs"])
            fraction = (1 - done) / max(1e-9, 1 - self.hold_fraction)
            rate = self.learning_rate * min(1.0, max(0.02, fraction))
            self.model.optimizer.learning_rate = self.job.broadcast(rate)

    def on_train_batch_end(self, batch, logs=None):
        self._last_batch = time.monotonic()
        if self.budget_seconds:
            self.is_over = self.seconds + self._last_batch - self._started > self.budget_seconds

    def on_epoch_end(self, epoch, logs=None):
        """After `Validation`, whose seconds count, and before `Checkpoint`."""
        logs["seconds"] = round(self._last_batch - self._started, 3)
        self.training_seconds += self._last_batch - self._started
        self.seconds += time.monotonic() - self._started
        self._started = None

    def seconds_left(self) -> float:
        """Returns the rest of the budget; infinity without one."""
        return (self.budget_seconds or math.inf) - self.seconds - self.state()[-1]

    def state(self) -> list[float]:
        """The arguments of `restore`."""
        of_epoch = 0.0 if self._started is None else time.monotonic() - self._started
        return [self.seconds, self.training_seconds, of_epoch]

    def restore(self, seconds: float, training_seconds: float, seconds_of_epoch: float) -> None:
        """Continues from the `state()` of an interrupted run."""
        self.seconds, self.training_seconds, self._earlier_seconds = seconds, training_seconds, seconds_of_epoch


class Validation(keras.callbacks.EarlyStopping):
    """Scores greedy translations after each epoch: early stopping on that score, with the best weights restored.

    The score is that of `keras_attn.evaluation.by_metric.main_score`; the logs have it as `val_bleu` or `val_wer`. If
    the optimizer keeps an average of the weights, the averaged weights are translated with and kept; Keras' own
    `val_loss` and metrics are of the weights that are trained. This does not use
    `SwapEMAWeights`, which on TensorFlow swaps by adding and subtracting, so that training would continue with rounded
    weights.

    Attributes:
        recent: The weights of the last `average_checkpoints` validations, see `choose_average`.
        texts: The translations of the last validation.
        samples: int, number of the first sentences that are translated once more, with alignments.
        sample_translations: These `Translation`s.
    """

    def __init__(
        self,
        translator: Translator,
        sources,
        references,
        *,
        metric: str,
        tokenize: str,
        patience: float,
        average_checkpoints: int = 0,
    ):
        mode = "max" if by_metric.is_better(metric, 1, 0) else "min"
        super().__init__(f"val_{metric}", patience=patience, mode=mode, restore_best_weights=True)
        self.translator = translator
        self.sources = sources
        self.references = references
        self.metric = metric
        self.tokenize = tokenize
        self.texts: list[str] = []
        self.samples, self.sample_translations = 0, []
        self.recent: collections.deque[list[np.ndarray]] = collections.deque(maxlen=average_checkpoints)
        super().on_train_begin()

    def on_train_begin(self, logs=None):
        """Keeps what `Checkpoint` restored, which Keras would reset here."""

    def on_epoch_end(self, epoch, logs=None):
        weights = self.model.trainable_variables
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)  # of one that scales losses
        is_averaged = getattr(optimizer, "use_ema", False)
        own = [keras.ops.convert_to_numpy(v) for v in weights] if is_averaged else []
        if is_averaged:
            optimizer.finalize_variable_values(weights)
            # Copies, because on JAX the assignment shares the average's buffer, which translating donates.
            for variable in weights:
                variable.assign(np.array(keras.ops.convert_to_numpy(variable)))
        score = self._score()
        super().on_epoch_end(epoch, {self.monitor: score})
        logs[self.monitor] = round(score, 2)
        if self.recent.maxlen:
            self.recent.append(self.model.get_weights())
        for variable, value in zip(weights, own, strict=bool(own)):
            variable.assign(value)

    def choose_average(self) -> dict:
        """Gives the model, at the end of training, the mean of its last weights, unless the best ones score better.

        The mean of the last checkpoints is often better than each of them (Vaswani 2017, section 6.1).

        Returns:
            What a report says of it: `averaged_checkpoints`, a dict of their number, the score of their mean and
            whether the model has it now; empty without a mean.
        """
        if len(self.recent) < 2:
            return {}
        self.model.set_weights(mean_weights(self.recent))
        score = self._score()
        if is_kept := not by_metric.is_better(self.metric, self.best, score):
            self.best_weights = self.model.get_weights()
        else:
            self.model.set_weights(self.best_weights)
        figures = {"number": len(self.recent), self.monitor: round(score, 2), "is_kept": is_kept}
        return {"averaged_checkpoints": figures}

    def _score(self) -> float:
        translations = self.translator.generate(self.sources, beam_size=1, batch_size=128, return_alignments=False)
        self.texts = [translation.text for translation in translations]
        if self.samples:
            self.sample_translations = self.translator.generate(self.sources[: self.samples], beam_size=1)
        return by_metric.main_score(self.metric, self.sources, self.references, self.texts, self.tokenize)


class Checkpoint(keras.callbacks.Callback):
    """Writes one file after each epoch, and when it is asked to, with all that determines the rest of training.

    It has the weights, the random states of dropout, the optimizer, the best weights so far, the time and the history,
    within an epoch also the sums of the metrics and the number of batches, and replaces its predecessor in one move:
    after `kill -9` a run continues from the last whole epoch, and on a CPU with TensorFlow ends with the very same
    weights. `keras.callbacks.BackupAndRestore` saves the weights and the optimizer only, so that the best weights, the
    time and the history of the earlier epochs would be lost. The history is also written as a table; `CSVLogger` would
    keep the line of an epoch that is run again. In a job of several processes rank 0 writes, and all read.

    Args:
        path: The file.
        history_path: The table.
        validation, time_budget: Callbacks, which come before this one.
        job: The processes.

    Attributes:
        history: A row for each epoch.
        first_batch: int, the batch of the epoch to go on with.
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
        self.first_batch = 0
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
        self.history.append({"epoch": epoch, **{name: float(value) for name, value in logs.items()}})
        self.job.on_rank_0(self._write)

    def save_within_epoch(self, batches: int) -> None:
        """Writes the state after some batches of an epoch. After it, training cannot go on in this process."""
        sync_variables(self.model)
        metrics = [keras.ops.convert_to_numpy(v) for v in self.model.metrics_variables]
        self.job.on_rank_0(lambda: self._write(batches, metrics))

    def _write(self, batches: int = 0, metrics: Sequence[np.ndarray] = ()) -> None:
        groups = {
            "model": [keras.ops.convert_to_numpy(v) for v in _variables(self.model)],
            "optimizer": [keras.ops.convert_to_numpy(v) for v in self.model.optimizer.variables],
            "best": self.validation.best_weights or [],
            "recent": [weight for weights in self.validation.recent for weight in weights],
            "metrics": metrics,
            "random": random_state(),
        }
        state = {
            "history": self.history,
            "time": self.time_budget.state(),
            "best": [self.validation.best, self.validation.best_epoch, self.validation.wait],
            "stopped": bool(self.model.stop_training),
            "batches": batches,
            "sizes": {name: len(values) for name, values in groups.items()},
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
        try:
            files.check_archive(self.path)
            with np.load(self.path, allow_pickle=False) as file:
                arrays = dict(file)
            state_bytes = arrays["state"].tobytes()
            state = json.loads(state_bytes)
            groups = {name: [arrays[f"{name}_{i}"] for i in range(size)] for name, size in state["sizes"].items()}
            history, times = state["history"], [float(value) for value in state["time"]]
            best, best_epoch, wait = state["best"]
            best = (float(best) if history else None), int(best_epoch), int(wait)  # no epoch may have been scored yet
            first_batch, metrics, random = int(state["batches"]), groups["metrics"], groups["random"]
            expected = {"model": _variables(model), "optimizer": model.optimizer.variables}
            expected |= {"best": model.weights if history else []}
            expected |= {"recent": model.weights * (len(groups["recent"]) // len(model.weights))}
            for name, variables in expected.items():
                shapes = [array.shape for array in groups[name] if array.dtype.kind in "fiu"]
                if shapes != [tuple(variable.shape) for variable in variables]:
                    raise ValueError(f"It has another number, shape or type of variables of the group {name}.")
            if any(row.keys() != history[0].keys() or any(map(math.isnan, row.values())) for row in history):
                raise ValueError("Its history is no table of numbers.")
            if not (history or first_batch) or bool(first_batch) != bool(metrics) or len(times) != 3:
                raise ValueError("It has no whole epoch, nor what belongs to a part of one.")
        except Exception as error:  # a damaged file fails in as many ways as it has parts
            name = "" if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: "
            reason = textwrap.shorten(f"{name}{error}", 300)
            raise ValueError(
                f"Expected {str(self.path)!r} to be a checkpoint of this run. {reason} Train again in a new folder."
            ) from error
        self.job.assert_equal({"checkpoint": hashlib.sha256(state_bytes).hexdigest()})
        self.time_budget.restore(*times)
        self.validation.best, self.validation.best_epoch, self.validation.wait = best
        self.history, self.first_batch, self._metrics, self._random = history, first_batch, metrics, random
        for name in ("model", "optimizer"):
            for variable, array in zip(expected[name], groups[name], strict=True):
                variable.assign(array)
        self.validation.best_weights = groups["best"] or None
        self.validation.recent.clear()
        count = len(model.weights)
        self.validation.recent.extend(groups["recent"][i : i + count] for i in range(0, len(groups["recent"]), count))
        self.job.on_rank_0(self._write_history)  # without its last line if the process was killed between the two files
        return bool(state["stopped"])


def _storable(array: np.ndarray) -> np.ndarray:
    """The array, or in float32 that of a dtype that NumPy itself does not have, such as bfloat16."""
    return array.astype("float32") if array.dtype.kind == "V" else array


def _variables(model):
    """Weights and random states, without the metrics, which start anew with each epoch."""
    metrics = {id(v) for v in model.metrics_variables}
    return [v for v in model.variables if id(v) not in metrics]


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
        epochs, path = len(self.checkpoint.history), self.checkpoint.path
        kept = f"{str(path)!r} has the last state that was saved." if path.exists() else "Nothing was saved."
        raise RuntimeError(
            f"Training diverged: the {name} is {logs[name]} in epoch {epochs + 1:,}, {where}. {kept} "
            "Train with a lower learning_rate in a new folder."
        )


class RunBatches(keras.utils.PyDataset):
    """The rows that one process has of each batch of a dataset.

    All processes make the same batches and take contiguous rows of them, so that the batches of a run, their order and
    the place of each row do not depend on the number of processes.

    Args:
        dataset: The whole batches, whose rows divide among the processes.
        shard: (index, count), the part of this process.

    Attributes:
        first: int, the number of batches that are left out at the beginning of the epoch, see `start`.
    """

    def __init__(self, dataset: ParallelDataset, shard: tuple[int, int] = (0, 1)):
        super().__init__()
        self.dataset = dataset
        self.shard = shard
        self.start(0)

    def start(self, first: int) -> None:
        """Before each `fit`: sets `first`, which counts from `begin` on.

        Until then the batches are those of the whole epoch, because Keras on TensorFlow takes the first two for its
        view of the shapes, and `ParallelDataset` lets these vary.
        """
        self.first = first
        self._offset = 0

    def begin(self, epoch: int) -> None:
        """Begins an epoch."""
        self.dataset.set_epoch(epoch)
        self._offset = self.first

    def number(self, batch: int) -> int:
        """The number of batches of the whole run after the one that Keras numbers so in this epoch."""
        return self.dataset.epoch * len(self.dataset) + self.first + batch + 1

    def __len__(self) -> int:
        return len(self.dataset) - self.first

    def __getitem__(self, index: int):
        index_of_shard, count = self.shard
        inputs, labels, weights = self.dataset[self._offset + index]
        size = len(labels) // count
        rows = slice(index_of_shard * size, (index_of_shard + 1) * size)
        return {name: ids[rows] for name, ids in inputs.items()}, labels[rows], weights[rows]

    def on_epoch_end(self) -> None:
        self.dataset.on_epoch_end()


class Stopping(keras.callbacks.Callback):
    """Ends training in all processes of a job after the same batch.

    It ends after `max_batches`, when the time of rank 0 is over, after the rest of an epoch that was resumed (whose
    checkpoint is then restored for the next ones), or at SIGTERM or Ctrl+C in one process: then all that determines the
    rest of training is saved, within an epoch too. This callback is the last.

    Args:
        max_batches: Of the run, which may end in the middle of an epoch.
        termination: Notes the signals.
        budget: The time.
        checkpoint: Saves the state, and has the job.
        batches: Those of the run, whose epochs begin here: Keras prepares the batches of an epoch one epoch early on
            some backends, so that epoch n has the order of epoch n after --resume too.

    Raises:
        Terminated, KeyboardInterrupt: After SIGTERM or Ctrl+C, when the checkpoint is written.
    """

    def __init__(
        self,
        max_batches: int,
        termination: Termination,
        budget: TimeBudget,
        checkpoint: Checkpoint,
        batches: RunBatches,
    ):
        super().__init__()
        self.max_batches = max_batches
        self.termination = termination
        self.budget = budget
        self.checkpoint = checkpoint
        self.batches = batches

    def on_epoch_begin(self, epoch, logs=None):
        self.batches.begin(epoch)

    def on_train_batch_end(self, batch, logs=None):
        # Counted here, because on JAX the optimizer's own count is updated only after the epoch.
        if self.batches.number(batch) >= self.max_batches:
            self.model.stop_training = True
        job = self.checkpoint.job
        wish = 2 if self.termination.requested else int(job.rank == 0 and self.budget.is_over)
        decision = job.stop_together(wish)
        if decision == 1:
            self.model.stop_training = True
        # Before validation, `Checkpoint` is about to save the epoch. Keras cannot resume with no batch left, nor on
        # TensorFlow with one, which it would compare with the shape of another bucket.
        if decision == 2 and not self.model.stop_training and batch + 2 < len(self.batches):
            done = self.batches.first + batch + 1
            self.checkpoint.save_within_epoch(done)
            self._end(f"batch {done:,} of epoch {len(self.checkpoint.history) + 1:,}")
        self.termination.requested |= decision == 2

    def on_epoch_end(self, epoch, logs=None):
        if self.checkpoint.job.stop_together(int(self.termination.requested)):
            self._end(f"epoch {epoch + 1:,}")
        if self.batches.first:  # for Keras all epochs are equally long, so that this rest of one was a fit of its own
            self.model.stop_training = True

    def _end(self, moment: str):
        where = f"{str(self.checkpoint.path)!r} has the state after {moment}"
        raise self.termination.error(f"{where}: continue with --resume.")
