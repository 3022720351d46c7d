"""What training needs beyond `fit`, as Keras callbacks: a time budget and a validation score."""

import collections
import time

import keras
import numpy as np

from keras_attn import Translator
from keras_attn.backend import Job
from keras_attn.evaluation import by_metric
from keras_attn.models import mean_weights


class TimeBudget(keras.callbacks.Callback):
    """Measures the seconds of training and, given a budget, ends training within it.

    Within a budget the learning rate follows the time, as the number of steps is unknown beforehand: constant for
    `hold_fraction` of the time, then linearly down to a fiftieth, set anew for each epoch, without a warm-up. Such a
    run does not repeat bit by bit. In a job of several processes the clock is that of rank 0.
    """

    def __init__(
        self, budget_seconds: float | None, learning_rate: float, hold_fraction: float, job: Job | None = None
    ):
        super().__init__()
        self.job = job or Job()
        self.budget_seconds = budget_seconds
        self.learning_rate = learning_rate
        self.hold_fraction = hold_fraction
        self.seconds = 0.0  # in `fit`, before a resumption too
        self.training_seconds = 0.0  # without validation and checkpoints
        self.is_over = False  # the budget was used up at the end of the last batch
        self._epoch_seconds = 0.0
        self._earlier_seconds = 0.0  # of this epoch, before a resumption

    def on_epoch_begin(self, epoch, logs=None):
        self._last_batch = time.monotonic()
        self._started, self._earlier_seconds = self._last_batch - self._earlier_seconds, 0.0
        if self.budget_seconds:
            time_done = (self.seconds + self._epoch_seconds / 2) / self.budget_seconds
            done = max(time_done, (epoch + 0.5) / self.params["epochs"])
            fraction = (1 - done) / max(1e-9, 1 - self.hold_fraction)
            rate = self.learning_rate * min(1.0, max(0.02, fraction))
            self.model.optimizer.learning_rate = self.job.broadcast(rate)

    def on_train_batch_end(self, batch, logs=None):
        self._last_batch = time.monotonic()
        if self.budget_seconds:
            self.is_over = self.seconds + self._last_batch - self._started > self.budget_seconds
            if self.is_over and self.job.count == 1:  # else `StopTogether` decides
                self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if self.budget_seconds and self.job.broadcast(self.is_over):
            self.model.stop_training = True
        logs["seconds"] = round(self._last_batch - self._started, 3)
        self.training_seconds += self._last_batch - self._started

    def add_epoch(self):
        """Counts an epoch whose validation is finished; `Checkpoint` calls it."""
        self._epoch_seconds = time.monotonic() - self._started
        self.seconds += self._epoch_seconds

    def state(self) -> list[float]:
        """What `restore` takes."""
        return [self.seconds, self.training_seconds, self._epoch_seconds]

    def seconds_of_epoch(self) -> float:
        """The seconds of the epoch that has begun."""
        return time.monotonic() - self._started

    def restore(self, state: list[float], seconds_of_epoch: float = 0.0) -> None:
        """Continues from the `state()` of an interrupted run, in an epoch of which some seconds have passed."""
        self.seconds, self.training_seconds, self._epoch_seconds = state
        self._earlier_seconds = seconds_of_epoch


class Validation(keras.callbacks.EarlyStopping):
    """Scores greedy translations after each epoch: early stopping on that score, with the best weights restored.

    The score is that of `keras_attn.evaluation.by_metric.main_score`; the logs have it as `val_bleu` or `val_wer`. If
    the optimizer keeps an average of the weights, the averaged weights are validated and kept. This does not use
    `SwapEMAWeights`, which on TensorFlow swaps by adding and subtracting, so that training would continue with rounded
    weights.

    Attributes:
        recent: The weights of the last `average_checkpoints` validations, see `choose_average`.
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
        texts = [translation.text for translation in translations]
        return by_metric.main_score(self.metric, self.sources, self.references, texts, self.tokenize)
