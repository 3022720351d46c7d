"""`--distribute data` with several processes, and SIGTERM: the course of one process that nothing interrupts."""

import json
import shutil
import signal

import keras
import numpy as np
import pytest

from tests.data_parallel import ROOT, finish, free_port, start
from tests.recipes.test_distribution import ALONE, command_line, history

on_jax = pytest.mark.skipif(keras.backend.backend() != "jax", reason="Keras' variables start processes of JAX")

TRAIN = """
import os, signal, sys
from keras_attn.backend import job
from keras_attn.cli import train
from keras_attn.training.stopping import StopTogether

rank, update, number, seconds, *line = sys.argv[1:]
job._SECONDS_TO_MEET = int(seconds)
on_train_batch_end = StopTogether.on_train_batch_end

def interrupted(self, batch, logs=None):
    if self.checkpoint.job.rank == int(rank) and self.batches.number(batch) == int(update):
        os.kill(os.getpid(), int(number))
    on_train_batch_end(self, batch, logs)

StopTogether.on_train_batch_end = interrupted
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
    """Digits, spelled in reverse order, in two buckets."""
    folder = tmp_path_factory.mktemp("corpora") / "digits"
    folder.mkdir()
    names = ["zero", "un", "deux", "trois", "quatre", "cinq"]
    random = np.random.default_rng(5)
    for split, size in (("train", 107), ("val", 17), ("test", 3)):
        rows = [random.integers(0, 6, random.choice([3, 7] if split == "train" else [3])) for _ in range(size)]
        (folder / f"{split}.de").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
        (folder / f"{split}.fr").write_text("".join(" ".join(names[i] for i in row[::-1]) + "\n" for row in rows))
    return folder


def run(*lines, interruption=NOBODY, seconds=200):
    """The exit status and both outputs of each process of a job."""
    address, count = f"127.0.0.1:{free_port()}", str(len(lines))
    job = {"KERAS_DISTRIBUTION_JOB_ADDRESSES": address, "KERAS_DISTRIBUTION_NUM_PROCESSES": count}
    ranks = [job | {"KERAS_DISTRIBUTION_PROCESS_ID": str(rank)} if len(lines) > 1 else {} for rank in range(len(lines))]
    started = (
        start("-c", TRAIN, *interruption, str(seconds), *line, **ENVIRONMENT, **rank)
        for line, rank in zip(lines, ranks, strict=True)
    )
    return finish(*started)


def line_of(corpus, out, *more):
    return [*command_line(corpus, out, "batch_size=16"), "--epochs", "2", *more]


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
    """The second process is terminated in the second epoch; rank 0 decides that both stop an update later."""
    out = tmp_path / "run"
    line = line_of(corpus, out, "--distribute", "data")
    stop = "1", str(UPDATES + 2), str(int(signal.SIGTERM))
    ended = run(line, line, interruption=stop)
    for status, _, errors in ended:
        assert status == 143, errors
        assert "received SIGTERM" in errors
    assert "batch 3 of epoch 2" in ended[0][2] or "batch 4 of epoch 2" in ended[0][2]
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
    assert status == 1, errors
    assert "Expected 2 processes to go on. Another one has ended" in errors
    assert [path.name for path in out.iterdir()] == ["run.json"]


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


@on_jax
def test_an_address_that_nobody_answers_is_a_sentence(corpus, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    job = {"JOB_ADDRESSES": address, "NUM_PROCESSES": "2", "PROCESS_ID": "1"}
    variables = {f"KERAS_DISTRIBUTION_{name}": value for name, value in job.items()}
    line = line_of(corpus, tmp_path / "run", "--distribute", "data")
    ((status, _, errors),) = finish(start("-c", TRAIN, *NOBODY, "3", *line, **ENVIRONMENT, **variables))
    assert status == 1
    assert (
        f"Expected the 2 processes of the job to meet at {job['JOB_ADDRESSES']}. Process 1 waited 3 seconds" in errors
    )


@pytest.fixture
def torchrun(tmp_path):
    """Runs a command line in two processes; returns torchrun's status, and what each process wrote on stderr."""
    if keras.backend.backend() != "torch":
        pytest.skip("torchrun starts processes of torch")
    if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 16):
        pytest.skip(f"Keras has no distribution on torch before 3.16. This is {keras.__version__}.")

    def run(line, interruption=NOBODY, before=""):
        script, logs = tmp_path / "train.py", tmp_path / "logs"
        script.write_text(before + TRAIN)
        shutil.rmtree(logs, ignore_errors=True)
        launcher = "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--log-dir={logs}", "--tee=3"
        ((status, _, errors),) = finish(
            start(*launcher, str(script), *interruption, "200", *line, PYTHONPATH=str(ROOT))
        )
        texts = [path.read_text() for path in sorted(logs.glob("*/attempt_0/*/stderr.log"))]
        assert len(texts) == 2, errors
        return status, *texts

    return run


@pytest.mark.slow
def test_two_processes_of_torchrun_and_then_one_take_the_course_of_one(corpus, tmp_path, torchrun):
    """Without dropout, of which each process draws its own. The second one is terminated in the second epoch."""
    one, two = (line_of(corpus, tmp_path / name, "--set", *ALONE[:3]) for name in ("one", "two"))
    ((status, _, errors),) = run(one)
    assert status == 0, errors
    stop = "1", str(UPDATES + 2), str(int(signal.SIGTERM))
    status, *errors = torchrun([*two, "--distribute", "data"], stop)
    assert status == 1, errors
    assert "batch 3 of epoch 2" in errors[0] or "batch 4 of epoch 2" in errors[0]
    for error in errors:
        assert "received SIGTERM" in error
    together = shutil.copytree(tmp_path / "two", tmp_path / "together")
    ((status, _, errors),) = run([*two, "--resume"])
    assert status == 0, errors
    same_course(tmp_path / "two", tmp_path / "one", 1e-6)
    status, *errors = torchrun([*line_of(corpus, together, "--set", *ALONE[:3]), "--distribute", "data", "--resume"])
    assert status == 0, errors
    same_course(together, tmp_path / "one", 1e-6)
    assert json.loads((together / "report.json").read_text())["processes"] == 2


@pytest.mark.slow
def test_a_process_of_torchrun_that_is_killed_ends_the_other(corpus, tmp_path, torchrun):
    stop = "1", "2", str(int(signal.SIGKILL))
    status, error, _ = torchrun(line_of(corpus, tmp_path / "run", "--distribute", "data"), stop)
    assert status == 1, error
    assert "Expected 2 processes to go on. Another one has ended" in error
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]


@pytest.mark.slow
def test_a_full_disk_of_the_process_that_writes_ends_the_other_one_of_torchrun(corpus, tmp_path, torchrun):
    status, *errors = torchrun(line_of(corpus, tmp_path / "run", "--distribute", "data"), before=FULL_DISK)
    assert status == 1, errors
    assert "recipes.train: Expected room for what is written." in errors[0]
    assert "recipes.train: Process 0 has ended: Expected room for what is written." in errors[1]
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
