"""A corpus of digits, spelled in reverse order, a tiny run on it, and its interruption."""

import contextlib
import csv
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn.training.callbacks import TimeBudget

NAMES = ["zero", "un", "deux", "trois", "quatre", "cinq"]
SIZES = ["units=7", "embedding_size=11", "readout_size=11", "attention_units=5", "decoder_units=13", "level=word"]
SIZES += ["bfloat16_products=false"]  # courses are compared to 1e-5
FINISHED = {
    *("model.keras", "source_tokenizer", "target_tokenizer", "translator.json"),
    *("report.json", "history.csv", "translations.txt", "alignment.png", "curves.png", "README.md"),
}


@pytest.fixture(autouse=True, scope="module")
def eagerly():
    """TensorFlow computes runs of few updates step by step: tracing would take longer."""
    if keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


class Stopped(BaseException):
    """Ends a command as a kill does: no code catches it."""


def write_digits(folder: Path, train: int, val: int, test: int, lengths: Sequence[int] = (3,)) -> Path:
    """Writes so many lines of `de`, digits, and of `fr`; few lengths, because each is compiled."""
    folder.mkdir()
    random = np.random.default_rng(5)
    for split, size in (("train", train), ("val", val), ("test", test)):
        rows = [random.integers(0, 6, random.choice(lengths)) for _ in range(size)]
        (folder / f"{split}.de").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
        (folder / f"{split}.fr").write_text("".join(" ".join(NAMES[i] for i in row[::-1]) + "\n" for row in rows))
    return folder


def command_line(corpus: Path, out: Path, *more: str) -> list[str]:
    """The options of `keras-attn train`; further settings come last."""
    where = ["rnnsearch", "--corpus", str(corpus), "--source", "de", "--target", "fr", "--out", str(out)]
    return [*where, "--beam", "1", "--no-export", "--set", *SIZES, *more]


@contextlib.contextmanager
def interrupted(epoch: int, error: type[BaseException] = KeyboardInterrupt):
    """Inside, an epoch does not begin: the error is raised."""
    on_epoch_begin = TimeBudget.on_epoch_begin

    def stop(self, number, logs=None):
        if number == epoch:
            raise error
        on_epoch_begin(self, number, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TimeBudget, "on_epoch_begin", stop)
        yield


def history(out: Path) -> list[dict[str, float]]:
    """The rows of a run's history."""
    with (out / "history.csv").open() as table:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(table)]


def assert_same_course(out: Path, other: Path, epochs: int, but: Sequence[str] = ("seconds", "val_bleu")) -> None:
    """The two runs have the same history, except for some of its columns."""
    ours, expected = history(out), history(other)
    assert len(ours) == len(expected) == epochs
    for row, one in zip(ours, expected, strict=True):
        for name in row.keys() - {*but}:
            np.testing.assert_allclose(row[name], one[name], rtol=1e-5, err_msg=name)
