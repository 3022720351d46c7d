"""`--distribute` and SIGTERM: the course of one device that nothing interrupts; what cannot train is refused before."""

import contextlib
import json
import re
import signal

import keras
import numpy as np
import pytest

from keras_attn.cli import train
from keras_attn.training import run
from tests.data_parallel import finish, start
from tests.recipes import divided
from tests.recipes.divided import UPDATES, line_of, run_processes, signalled
from tests.training import small_run
from tests.training.small_run import assert_same_course, write_digits

eagerly = small_run.eagerly
BACKEND = keras.backend.backend()
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="Keras' variables start processes of JAX")
TWO_THEN_ONE = """
import sys
import keras
from keras_attn.cli import train
from tests.training.small_run import interrupted

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

line = sys.argv[1:]
with interrupted(1):
    assert train.main([*line, "--distribute", "data"]) == 130
sys.exit(train.main([*line, "--resume"]))
"""
# On TensorFlow each replica draws dropout and clips its gradient by itself.
ALONE = ("embedding_dropout=0", "memory_dropout=0", "output_dropout=0", "global_clipnorm=1e9")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return divided.write_corpus(tmp_path_factory.mktemp("corpora") / "digits")


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    """The folder of a run of one process."""
    out = tmp_path_factory.mktemp("runs") / "one"
    assert train.main(line_of(corpus, out)) == 0
    assert json.loads((out / "report.json").read_text())["updates"] == 2 * UPDATES
    return out


def test_a_run_that_was_ended_within_an_epoch_goes_on_there(corpus, uninterrupted, tmp_path, capsys):
    """In its first epoch, before there is a score or a line of the history; by either signal it leaves the same."""
    ends = {"int": (signal.SIGINT, 130, "interrupted"), "term": (signal.SIGTERM, 143, "received SIGTERM")}
    left = []
    for name, (number, status, said) in ends.items():
        out = tmp_path / name
        with signalled(3, number):
            assert train.main(line_of(corpus, out)) == status
        where = f"{str(out / 'checkpoint.npz')!r} has the state after batch 3 of epoch 1"
        assert f"{said}. {where}: continue with --resume.\n" in capsys.readouterr().err
        assert {path.name for path in out.iterdir()} == {"run.json", "checkpoint.npz"}
        with np.load(out / "checkpoint.npz") as state:
            left.append({key: state[key] for key in state if key != "state"})  # which has the seconds
    assert left[0].keys() == left[1].keys()
    for key, value in left[0].items():
        np.testing.assert_array_equal(left[1][key], value, err_msg=key)
    assert train.main(line_of(corpus, out, "--resume")) == 0
    divided.assert_same_run(out, uninterrupted)


@on_jax
def test_two_processes_and_then_one_take_the_course_of_one(corpus, uninterrupted, tmp_path):
    """The second process is terminated in the second epoch; both stop after that update."""
    out = tmp_path / "run"
    line = line_of(corpus, out, "--distribute", "data")
    ended = run_processes(line, line, interruption=(1, UPDATES + 2, signal.SIGTERM))
    for status, _, errors in ended:
        assert status == 143, errors
        assert "received SIGTERM" in errors
    assert "batch 2 of epoch 2" in ended[0][2]
    assert "Training on 2 devices" in ended[0][1]
    assert "Training" not in ended[1][1]
    assert train.main(line_of(corpus, out, "--resume")) == 0
    divided.assert_same_run(out, uninterrupted)


@on_jax
def test_other_text_is_refused_in_all_processes(corpus, tmp_path):
    other = tmp_path / "digits"
    other.mkdir()
    for path in corpus.iterdir():
        (other / path.name).write_text(path.read_text().replace("5", "4"))
    lines = (line_of(folder, tmp_path / "run", "--distribute", "data") for folder in (corpus, other))
    for status, _, errors in run_processes(*lines):
        assert status == 2
        assert "Expected the same text of the split train, text of the split val" in errors


@pytest.mark.skipif(BACKEND == "torch", reason="on torch a process has one device")
def test_two_devices_and_then_one_take_the_course_of_one(tmp_path):
    corpus = write_digits(tmp_path / "digits", 97, 17, 5, [5])  # one length, because each is compiled
    settings = ["scheduled_sampling=linear,k=1,c=0.05", "recurrent_dropout=0.3"]
    if BACKEND == "tensorflow":  # where each replica would also draw other tokens
        settings = ["scheduled_sampling=linear,k=1e-9,c=1,choose=argmax", *ALONE]
    two, one = tmp_path / "two", tmp_path / "one"
    started = start("-c", TWO_THEN_ONE, *line_of(corpus, two, *settings))
    assert train.main(line_of(corpus, one, *settings)) == 0
    ((status, output, errors),) = finish(started)
    assert status == 0, errors
    assert_same_course(two, one, epochs=2)
    assert "Training on 2 devices: cpu:0, cpu:1." in output


@pytest.fixture
def refusal(corpus, tmp_path, capsys, monkeypatch):
    """Returns the error of a command, on a machine of so many devices if there is a number."""

    def train_on(devices, *settings):
        if devices:
            monkeypatch.setattr(run, "training_devices", lambda: [f"cpu:{i}" for i in range(devices)])
        line = line_of(corpus, tmp_path / "run", *settings, "--distribute", "data")
        assert train.main(line) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert not list(tmp_path.glob("run/*"))
        return error

    return train_on


@pytest.mark.parametrize(
    ("setting", "received"),
    [
        ("batch_size=64", "24 pairs of up to [0-9]+ tokens in the split val"),  # 17 pairs, and a multiple of 8 rows
        ("tokens_per_batch=30", "[0-9] pairs of up to [0-9] tokens in the split train"),
    ],
)
def test_batches_of_few_rows_are_refused(refusal, monkeypatch, setting, received):
    monkeypatch.setattr("keras_attn.backend.data_parallel", lambda *_: contextlib.nullcontext(contextlib.nullcontext))
    error = refusal(16, setting)
    assert re.search(f"divide among 16 devices: .* Received: {received}", error), error


@pytest.mark.parametrize("name", ["WORLD_SIZE", "KERAS_DISTRIBUTION_NUM_PROCESSES"])
def test_several_processes_are_refused(refusal, monkeypatch, name):
    monkeypatch.setenv(name, "2")
    assert f"{name}=2" in refusal(8)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="limits of TensorFlow alone")
def test_several_workers_and_accumulation_are_refused_on_tensorflow(refusal, monkeypatch):
    assert "Use JAX (KERAS_BACKEND=jax). Received: accumulation_steps=2" in refusal(8, "accumulation_steps=2")
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1", "b:1"]}}))
    error = refusal(8)
    assert "KERAS_BACKEND=jax" in error
    assert "Received: TF_CONFIG=" in error


@pytest.mark.skipif(BACKEND != "torch", reason="torch's alone")
def test_torch_is_refused(refusal):
    assert "Expected the backend jax or tensorflow for training on several devices" in refusal(None)
