"""A corpus of digits, and a finished run of one epoch on it, which the tests leave as they are."""

import pytest

from keras_attn.cli import train
from tests.training.small_run import command_line, write_digits


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("corpora") / "digits", 16, 4, 19)


@pytest.fixture(scope="session")
def run(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    settings = ["batch_size=16", "validation_sentences=13", "learning_rate=0.02", "epochs=1"]
    assert train.main(command_line(corpus, out, *settings)) == 0
    return out
