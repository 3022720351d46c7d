"""`--distribute data` with several processes, and SIGTERM: the course of one process that nothing interrupts."""

import json
import shutil
import signal

import keras
import numpy as np
import pytest

from tests.data_parallel import finish, free_port, start
from tests.recipes.test_distribution import command_line
from tests.training.small_run import history, write_digits

on_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="Keras' variables start processes of JAX")

TRAIN = """
import os, signal, sys
from keras_attn.cli import train
from keras_attn.training.callbacks import Stopping

rank, update, number, *line = sys.argv[1:]
on_train_batch_end = Stopping.on_train_batch_end

def interrupted(self, batch, logs=None):
    if self.checkpoint.job.rank == int(rank) and self.batches.number(batch) == int(update):
        os.kill(os.getpid(), int(number))
    on_train_batch_end(self, batch, logs)

Stopping.on_train_batch_end = interrupted
sys.exit(train.main(line))
"""
FULL_DISK = """
import contextlib
from keras_attn import files
replacing = files.replacing

@contextlib.contextmanager
def full(path):
    with replacing(path) as partial:
        yield partial
        if path.name == "checkpoint.npz":
            raise OSError(28, "No space left on device")

files.replacing = full
"""
NOBODY = "9", "0", "0"
UPDATES = 7  # of an epoch
ENVIRONMENT = {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}  # one device


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two buckets in training."""
    return write_digits(tmp_path_factory.mktemp("corpora") / "digits", 107, 17, 3, lengths=(3, 7))


def run(*lines, interruption=NOBODY, before=""):
    """The exit status and both outputs of each process of a job."""
    address, count = f"127.0.0.1:{free_port()}", str(len(lines))
    job = {"KERAS_DISTRIBUTION_JOB_ADDRESSES": address, "KERAS_DISTRIBUTION_NUM_PROCESSES": count}
    ranks = [job | {"KERAS_DISTRIBUTION_PROCESS_ID": str(rank)} if len(lines) > 1 else {} for rank in range(len(lines))]
    started = (
        start("-c", before + TRAIN, *interruption, *line, **ENVIRONMENT, **rank)
        for line, rank in zip(lines, ranks, strict=True)
    )
    return finish(*started)


def line_of(corpus, out, *more):
    return [*command_line(corpus, out, "batch_size=16", "epochs=2"), *more]


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    """The folder of a run of one process."""
    out = tmp_path_factory.mktemp("runs") / "one"
    ((status, _, errors),) = run(line_of(corpus, out))
    assert status == 0, errors
    assert json.loads((out / "report.json").read_text())["updates"] == 2 * UPDATES
    return out


def same_course(out, uninterrupted, tolerance=1e-5):
    ours, expected = history(out), history(uninterrupted)
    assert len(ours) == len(expected) == 2
    for row, one in zip(ours, expected, strict=True):
        for name in row.keys() - {"seconds"}:
            np.testing.assert_allclose(row[name], one[name], rtol=tolerance, err_msg=name)
    models = [keras.saving.load_model(folder / "model.keras") for folder in (out, uninterrupted)]
    for weights, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(weights, other, atol=1e-5)


@pytest.mark.slow
@pytest.mark.once  # JAX has it in the test of two processes, too
def test_a_run_that_was_terminated_within_an_epoch_goes_on_there(corpus, uninterrupted, tmp_path):
    """In its first epoch, before there is a score or a line of the history."""
    out = tmp_path / "run"
    stop = "0", "3", str(int(signal.SIGTERM))
    ((status, _, errors),) = run(line_of(corpus, out), interruption=stop)
    assert status == 143, errors
    where = f"{str(out / 'checkpoint.npz')!r} has the state after batch 3 of epoch 1"
    assert f"received SIGTERM. {where}: continue with --resume.\n" in errors
    assert {path.name for path in out.iterdir()} == {"run.json", "checkpoint.npz"}
    ((status, _, errors),) = run(line_of(corpus, out, "--resume"))
    assert status == 0, errors
    same_course(out, uninterrupted)


@on_jax
@pytest.mark.slow
def test_two_processes_and_then_one_take_the_course_of_one(corpus, uninterrupted, tmp_path):
    """The second process is terminated in the second epoch; both stop after that update."""
    out = tmp_path / "run"
    line = line_of(corpus, out, "--distribute", "data")
    stop = "1", str(UPDATES + 2), str(int(signal.SIGTERM))
    ended = run(line, line, interruption=stop)
    for status, _, errors in ended:
        assert status == 143, errors
        assert "received SIGTERM" in errors
    assert "batch 2 of epoch 2" in ended[0][2]
    assert "Training on 2 devices" in ended[0][1]
    assert "Training" not in ended[1][1]
    together = shutil.copytree(out, tmp_path / "together")
    ((status, _, errors),) = run(line_of(corpus, out, "--resume"))
    assert status == 0, errors
    same_course(out, uninterrupted)
    line = line_of(corpus, together, "--distribute", "data", "--resume")
    for status, _, errors in run(line, line):
        assert status == 0, errors
    same_course(together, uninterrupted)
    assert json.loads((together / "report.json").read_text())["processes"] == 2


@on_jax
@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_other(corpus, tmp_path):
    out = tmp_path / "run"
    line = line_of(corpus, out, "--distribute", "data")
    stop = "1", "2", str(int(signal.SIGKILL))
    (status, _, errors), (killed, _, _) = run(line, line, interruption=stop)
    assert killed == -signal.SIGKILL
    assert status, errors
    assert [path.name for path in out.iterdir()] == ["run.json"]


@on_jax
@pytest.mark.slow
def test_a_full_disk_of_the_process_that_writes_ends_the_other(corpus, tmp_path):
    line = line_of(corpus, tmp_path / "run", "--distribute", "data")
    said = (
        "keras-attn train: Expected room for what is written.",
        "keras-attn train: Process 0 has ended: Expected room",
    )
    for (status, _, errors), sentence in zip(run(line, line, before=FULL_DISK), said, strict=True):
        assert status == 1, errors
        assert sentence in errors
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]


@on_jax
def test_other_text_is_refused_in_all_processes(corpus, tmp_path):
    other = tmp_path / "digits"
    other.mkdir()
    for path in corpus.iterdir():
        (other / path.name).write_text(path.read_text().replace("5", "4"))
    lines = (line_of(folder, tmp_path / "run", "--distribute", "data") for folder in (corpus, other))
    for status, _, errors in run(*lines):
        assert status == 2
        assert "Expected the same text of the split train, text of the split val" in errors
