"""Runs of `keras-attn train` on several devices or in several processes, which a signal can interrupt."""

import contextlib
import os
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn.training.callbacks import Stopping
from tests.data_parallel import finish, free_port, start
from tests.training import small_run

ENVIRONMENT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=1", "JAX_PLATFORMS": "cpu"}
PROCESS = """
import sys
from keras_attn.cli import train
from tests.recipes.divided import signalled

rank, update, number = map(int, sys.argv[1:4])
with signalled(update, number, rank):
    sys.exit(train.main(sys.argv[4:]))
"""
UPDATES = 7  # of an epoch of `corpus`


def write_corpus(folder: Path) -> Path:
    """Two buckets in training."""
    return small_run.write_digits(folder, 107, 17, 3, lengths=(3, 7))


def line_of(corpus: Path, out: Path, *more: str) -> list[str]:
    """A run of two epochs of `UPDATES` updates."""
    settings = ["validation_sentences=5", "learning_rate=0.02", "ema_decay=0.5", "batch_size=16", "epochs=2"]
    return [*small_run.command_line(corpus, out, *settings), *more]


@contextlib.contextmanager
def signalled(update: int, number: int, rank: int = 0):
    """Inside, the process gets a signal after so many updates of a run, if it has this rank."""
    on_train_batch_end = Stopping.on_train_batch_end

    def interrupted(self, batch, logs=None):
        if self.checkpoint.job.rank == rank and self.batches.number(batch) == update:
            os.kill(os.getpid(), number)
        on_train_batch_end(self, batch, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stopping, "on_train_batch_end", interrupted)
        yield


def run_processes(*lines: list[str], interruption=(0, 0, 0), before: str = "") -> list[tuple[int, str, str]]:
    """The exit status and both outputs of each process of a job.

    Args:
        *lines: The command line of each process.
        interruption: The rank, the update and the signal. There is no update 0.
        before: Statements that run before.
    """
    job = {"KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{free_port()}"}
    job["KERAS_DISTRIBUTION_NUM_PROCESSES"] = str(len(lines))
    command = ["-c", before + PROCESS, *(str(int(one)) for one in interruption)]
    ranks = [job | {"KERAS_DISTRIBUTION_PROCESS_ID": str(n)} for n in range(len(lines))]
    return finish(*(start(*command, *line, **ENVIRONMENT, **one) for line, one in zip(lines, ranks, strict=True)))


def assert_same_run(out: Path, other: Path) -> None:
    """Two runs of two epochs have the same history, scores included, and the same weights."""
    small_run.assert_same_course(out, other, epochs=2, but=("seconds",))
    models = [keras.saving.load_model(folder / "model.keras") for folder in (out, other)]
    for weights, same in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(weights, same, atol=1e-5)
