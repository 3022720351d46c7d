"""`--distribute`: the course of one device, interrupted and resumed too; what cannot train is refused before."""

import contextlib
import json
import re

import keras
import pytest

from keras_attn.cli import train
from keras_attn.training import run
from tests.data_parallel import finish, start
from tests.training import small_run
from tests.training.small_run import assert_same_course, write_digits

TRAIN = """
import sys
import keras
from recipes import train
from tests.training.small_run import interrupted

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

ways, *line = sys.argv[1:]
*ways, last = ways.split(",")
def run(way):
    return train.main([*line, "--distribute", way] if way else line)

for epoch, way in enumerate(ways, 3 - len(ways)):
    with interrupted(epoch):
        assert run(way) == 130
    line += [] if "--resume" in line else ["--resume"]
sys.exit(run(last))
"""
# On TensorFlow each replica draws dropout and clips its gradient by itself.
ALONE = ("embedding_dropout=0", "memory_dropout=0", "output_dropout=0", "global_clipnorm=1e9")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The validation split has few pairs."""
    lengths = [3, 7] if keras.backend.backend() == "tensorflow" else [5]  # JAX compiles each, for long
    return write_digits(tmp_path_factory.mktemp("corpora") / "digits", 97, 17, 5, lengths)


def command_line(corpus, out, *settings):
    more = ["epochs=3", "validation_sentences=5", "learning_rate=0.02", "ema_decay=0.5"]
    return small_run.command_line(corpus, out, *more, *settings)


def train_side_by_side(corpus, tmp_path, settings, ways, **environment):
    """Runs by their ways to be distributed: one for each part, between which there are interruptions."""
    outs = {way: tmp_path / f"run-{i}" for i, way in enumerate(ways)}
    started = [
        start("-c", TRAIN, way, *command_line(corpus, out, *settings), **environment) for way, out in outs.items()
    ]
    outputs = []
    for status, output, errors in finish(*started):
        assert status == 0, errors
        outputs.append(output)
    for out in outs.values():
        assert json.loads((out / "report.json").read_text()).keys() >= {"bleu", "history"}
    assert_same_course(*outs.values(), epochs=3)
    return outs, outputs


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="on torch a process has one device")
def test_two_devices_and_then_one_take_the_course_of_one(corpus, tmp_path):
    settings = ["batch_size=16", "scheduled_sampling=linear,k=1,c=0.05"]
    if keras.backend.backend() == "tensorflow":  # where each replica would also draw other tokens
        settings = ["batch_size=16", "scheduled_sampling=linear,k=1e-9,c=1,choose=argmax", *ALONE]
    _, outputs = train_side_by_side(corpus, tmp_path, settings, ["data,", ""])
    assert "Training on 2 devices: cpu:0, cpu:1." in outputs[0]


@pytest.fixture
def eight_devices(monkeypatch):
    monkeypatch.setattr(run, "training_devices", lambda: [f"cpu:{i}" for i in range(8)])


def refusal(capsys, line):
    assert train.main([*line, "--distribute", "data"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("setting", "received"),
    [
        ("batch_size=64", "24 pairs of up to [0-9]+ tokens in the split val"),  # 17 pairs, and a multiple of 8 rows
        ("tokens_per_batch=30", "[0-9] pairs of up to [0-9] tokens in the split train"),
    ],
)
def test_batches_of_few_rows_are_refused(corpus, tmp_path, capsys, monkeypatch, setting, received):
    monkeypatch.setattr(run, "training_devices", lambda: [f"cpu:{i}" for i in range(16)])
    monkeypatch.setattr("keras_attn.backend.data_parallel", lambda *_: contextlib.nullcontext(contextlib.nullcontext))
    error = refusal(capsys, command_line(corpus, tmp_path / "run", setting))
    assert re.search(f"divide among 16 devices: .* Received: {received}", error), error


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.parametrize("name", ["WORLD_SIZE", "KERAS_DISTRIBUTION_NUM_PROCESSES"])
def test_several_processes_are_refused(corpus, tmp_path, capsys, monkeypatch, name):
    monkeypatch.setenv(name, "2")
    error = refusal(capsys, command_line(corpus, tmp_path / "run", "batch_size=16"))
    assert f"{name}=2" in error


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's variable")
def test_several_workers_on_tensorflow_are_refused(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["a:1", "b:1"]}}))
    error = refusal(capsys, command_line(corpus, tmp_path / "run", "batch_size=16"))
    assert "KERAS_BACKEND=jax" in error
    assert "Received: TF_CONFIG=" in error


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a limitation of Keras on TensorFlow")
def test_accumulation_on_several_devices_is_refused_on_tensorflow(corpus, tmp_path, capsys):
    error = refusal(capsys, command_line(corpus, tmp_path / "run", "batch_size=16", "accumulation_steps=2"))
    assert "Use JAX (KERAS_BACKEND=jax). Received: accumulation_steps=2" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="torch's alone")
def test_torch_is_refused(corpus, tmp_path, capsys):
    error = refusal(capsys, command_line(corpus, tmp_path / "run", "batch_size=16"))
    assert "Expected the backend jax or tensorflow for training on several devices" in error
