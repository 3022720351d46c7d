"""Early ends of training: after a number of updates, at a loss that is not finite, at SIGTERM."""

import math

import keras

from keras_attn.training.callbacks import TimeBudget
from keras_attn.training.checkpoint import Checkpoint
from keras_attn.training.run_batches import RunBatches
from keras_attn.training.termination import Terminated, Termination


class StopAfterSteps(keras.callbacks.Callback):
    """Ends training after `max_steps` batches, in the middle of an epoch if necessary."""

    def __init__(self, max_steps: int, batches: RunBatches):
        super().__init__()
        self.max_steps = max_steps
        self.batches = batches

    def on_train_batch_end(self, batch, logs=None):
        # Counted here, because on JAX the optimizer's own count is updated only after the epoch.
        if self.batches.number(batch) >= self.max_steps:
            self.model.stop_training = True


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


class StopTogether(keras.callbacks.Callback):
    """Ends training in all processes of a job after the same batch: at SIGTERM in one, or when rank 0's time is over.

    At SIGTERM all that determines the rest of training is saved, within an epoch too. At its end, this callback comes
    after `Checkpoint`.

    Raises:
        Terminated: After SIGTERM, when the checkpoint is written.
    """

    def __init__(self, termination: Termination, budget: TimeBudget, checkpoint: Checkpoint, batches: RunBatches):
        super().__init__()
        self.termination = termination
        self.budget = budget
        self.checkpoint = checkpoint
        self.batches = batches

    def on_train_batch_end(self, batch, logs=None):
        job = self.checkpoint.job
        wish = 2 if self.termination.requested else int(job.count > 1 and job.rank == 0 and self.budget.is_over)
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

    def _end(self, moment: str):
        where = f"{str(self.checkpoint.path)!r} has the state after {moment}"
        raise Terminated(f"received SIGTERM. {where}: continue with --resume.")
