"""`--distribute`: the course of one device, interrupted and resumed too; what cannot train is refused before."""

import contextlib
import csv
import json

import keras
import numpy as np
import pytest

from keras_attn import Translator
from keras_attn.cli import train
from keras_attn.training import distribution, vocabulary
from tests.data_parallel import finish, start

TRAIN = """
import sys
import keras
from recipes import train
from keras_attn.training.callbacks import TimeBudget

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

def interrupted(self, epoch, logs=None):
    if epoch == 3 - len(ways):
        raise KeyboardInterrupt
    on_epoch_begin(self, epoch, logs)

on_epoch_begin = TimeBudget.on_epoch_begin
ways, *line = sys.argv[1:]
*ways, last = ways.split(",")
TimeBudget.on_epoch_begin = interrupted
def run(way):
    return train.main([*line, "--distribute", way] if way else line)

while ways:  # each ends with another epoch
    assert run(ways[0]) == 130
    line += [] if "--resume" in line else ["--resume"]
    del ways[0]
TimeBudget.on_epoch_begin = on_epoch_begin
sys.exit(run(last))
"""
# On TensorFlow each replica draws dropout and clips its gradient by itself.
ALONE = ("embedding_dropout=0", "memory_dropout=0", "output_dropout=0", "global_clipnorm=1e9")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Digits, spelled in reverse order; the validation split has few pairs."""
    folder = tmp_path_factory.mktemp("corpora") / "digits"
    folder.mkdir()
    names = ["zero", "un", "deux", "trois", "quatre", "cinq"]
    random = np.random.default_rng(5)
    lengths = [3, 7] if keras.backend.backend() == "tensorflow" else [5]  # JAX compiles each, for long
    for split, size in (("train", 97), ("val", 17), ("test", 5)):
        rows = [random.integers(0, 6, random.choice(lengths)) for _ in range(size)]
        (folder / f"{split}.de").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
        (folder / f"{split}.fr").write_text("".join(" ".join(names[i] for i in row[::-1]) + "\n" for row in rows))
    return folder


def command_line(corpus, out, *settings):
    options = ["rnnsearch", "--corpus", str(corpus), "--source", "de", "--target", "fr", "--out", str(out)]
    sizes = ["units=7", "embedding_size=11", "readout_size=11", "attention_units=5", "decoder_units=13", "level=word"]
    sizes += ["validation_sentences=5", "learning_rate=0.02", "ema_decay=0.5"]
    return [*options, "--no-export", "--epochs", "3", "--beam", "1", "--set", *sizes, *settings]


def history(out):
    with (out / "history.csv").open() as table:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(table)]


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
    ours, expected = (history(out) for out in outs.values())
    assert len(ours) == len(expected) == 3
    for row, one in zip(ours, expected, strict=True):
        for name in ("loss", "perplexity", "accuracy", "val_loss", "val_perplexity", "val_accuracy"):
            np.testing.assert_allclose(row[name], one[name], rtol=1e-5, err_msg=name)
    return outs, outputs


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="on torch a process has one device")
def test_two_devices_and_then_one_take_the_course_of_one(corpus, tmp_path):
    settings = ["batch_size=16", "scheduled_sampling=linear,k=1,c=0.05"]
    if keras.backend.backend() == "tensorflow":  # where each replica would also draw other tokens
        settings = ["batch_size=16", "scheduled_sampling=linear,k=1e-9,c=1,choose=argmax", *ALONE]
    _, outputs = train_side_by_side(corpus, tmp_path, settings, ["data,", ""])
    assert "Training on 2 devices: cpu:0, cpu:1." in outputs[0]


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="Keras divides variables on JAX alone")
def test_a_divided_vocabulary_takes_the_course_of_one_device_and_leaves_its_files(corpus, tmp_path):
    """Both vocabularies have 10 words: 10 rows on one device, where this run begins, and 12 in three parts."""
    flags = "--xla_force_host_platform_device_count=3"
    outs, outputs = train_side_by_side(corpus, tmp_path, ["batch_size=15"], [",model=3", ""], XLA_FLAGS=flags)
    assert outputs[0].count("the vocabulary in 3 parts.") == 1
    reports = [json.loads((out / "report.json").read_text()) for out in outs.values()]
    assert reports[0]["parameters"] == reports[1]["parameters"]
    ours, expected = ((out / "translations.txt").read_text() for out in outs.values())
    assert ours == expected
    ours, expected = (Translator.from_preset(out).model for out in outs.values())
    assert ours.target_embedding.embeddings.shape == (10, 11)
    for values, one in zip(ours.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(values, one, rtol=1e-4, atol=1e-5)


@pytest.fixture
def eight_devices(monkeypatch):
    monkeypatch.setattr(distribution, "training_devices", lambda: [f"cpu:{i}" for i in range(8)])


def refusal(capsys, line, distribute="data"):
    assert train.main([*line, "--distribute", distribute]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.parametrize(
    ("batch_size", "sentence"),
    [
        (12, "divide among 8 devices. Received: batch_size=12. With --set batch_size=8 or 16 they do."),
        (5, "divide among 8 devices. Received: batch_size=5. With --set batch_size=8 they do."),
    ],
)
def test_batches_that_do_not_divide_are_refused(corpus, tmp_path, capsys, batch_size, sentence):
    assert sentence in refusal(capsys, command_line(corpus, tmp_path / "run", f"batch_size={batch_size}"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("count", "advice"),
    [(16, "With --set batch_size=16 they do."), (32, "Use at most 24 devices, or a larger split.")],
)
def test_batches_of_a_small_split_are_refused(corpus, tmp_path, capsys, monkeypatch, count, advice):
    """Its batches have 24 rows: its 17 pairs, rounded up to a multiple of 8."""
    monkeypatch.setattr(distribution, "training_devices", lambda: [f"cpu:{i}" for i in range(count)])
    monkeypatch.setattr("keras_attn.backend.data_parallel", lambda *_: contextlib.nullcontext(contextlib.nullcontext))
    error = refusal(capsys, command_line(corpus, tmp_path / "run", "batch_size=64"))
    assert f"among {count} devices. Received: batches of 24 in the small split val. {advice}" in error


@pytest.mark.once
@pytest.mark.parametrize(
    ("count", "advice"),
    [(8, "With --set tokens_per_batch=48 or more they do."), (3, "Set batch_size in place of tokens_per_batch.")],
)
def test_batches_of_tokens_that_do_not_divide_are_refused(corpus, tmp_path, capsys, monkeypatch, count, advice):
    monkeypatch.setattr(distribution, "training_devices", lambda: [f"cpu:{i}" for i in range(count)])
    monkeypatch.setattr("keras_attn.backend.data_parallel", lambda *_: contextlib.nullcontext(contextlib.nullcontext))
    error = refusal(capsys, command_line(corpus, tmp_path / "run", "tokens_per_batch=30"))
    assert f"divide among {count} devices. Received: 5 pairs of up to 6 tokens in the split train. {advice}" in error


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.parametrize("word", ["model", "model=0", "model=two", "model=-2", "batch", "data=2", "model=9999999"])
def test_other_words_are_refused(corpus, tmp_path, capsys, word):
    error = refusal(capsys, command_line(corpus, tmp_path / "run", "batch_size=16"), word)
    assert f"Expected --distribute data or model=N, such as model=2. Received: {word}\n" in error


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="Keras divides variables on JAX alone")
@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (3, "divide the 8 devices of this machine, as model=2 or model=4 or model=8 does. Received: model=3"),
        (16, "divide the 8 devices of this machine, as model=2 or model=4 or model=8 does. Received: model=16"),
        (2, "among 4 groups of 2 devices. Received: batch_size=15. With --set batch_size=12 or 16 they do."),
    ],
)
def test_parts_that_do_not_fit_are_refused(corpus, tmp_path, capsys, parts, sentence):
    assert sentence in refusal(capsys, command_line(corpus, tmp_path / "run", "batch_size=15"), f"model={parts}")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX divides variables")
def test_parts_on_other_backends_are_refused(corpus, tmp_path, capsys):
    error = refusal(capsys, command_line(corpus, tmp_path / "run", "batch_size=16"), "model=2")
    assert f"Received: --distribute model=2 on {keras.backend.backend()}" in error


@pytest.mark.once
@pytest.mark.parametrize(
    ("array", "shape", "expected"),
    [
        ([[1, 2], [3, 4], [0, 0]], (2, 2), [[1, 2], [3, 4]]),
        ([[1, 2], [3, 4], [0, 1]], (2, 2), None),  # no padding
        ([[1, 0], [3, 0]], (2, 1), None),  # no vocabulary: both have 2 words or 3
        ([[1, 2, 3]], (1, 4), [[1, 2, 3, 0]]),
        ([[1, 2, 3]], (2, 4), None),
        ([1, 2, 3, 0], (3,), [1, 2, 3]),
        ([1, 2, 3], (3, 1), None),
    ],
)
def test_padding_of_saved_arrays_is_cut_and_made(array, shape, expected):
    array = np.array(array)
    np.testing.assert_array_equal(vocabulary.fit_padding(array, shape, [2, 3]), array if expected is None else expected)


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
    assert "2 workers" in error


@pytest.mark.usefixtures("eight_devices")
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a limitation of Keras on TensorFlow")
def test_accumulation_on_several_devices_is_refused_on_tensorflow(corpus, tmp_path, capsys):
    error = refusal(capsys, command_line(corpus, tmp_path / "run", "batch_size=16", "accumulation_steps=2"))
    assert "Use JAX (KERAS_BACKEND=jax). Received: accumulation_steps=2" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="torch's alone")
def test_torch_is_refused_before_keras_3_16(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(keras, "__version__", "3.15.1")
    error = refusal(capsys, command_line(corpus, tmp_path / "run", "batch_size=16"))
    assert "Expected Keras 3.16 or later" in error
    assert "Received: torch with Keras 3.15.1" in error
