"""Several processes of JAX that resume together, are killed, or find a full disk."""

import signal

import keras
import pytest

from tests.recipes.divided import line_of, run_processes, write_corpus

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="Keras' variables start processes of JAX"),
]
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


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpora") / "digits")


def test_a_process_that_is_killed_ends_the_other(corpus, tmp_path):
    line = line_of(corpus, tmp_path / "run", "--distribute", "data")
    (status, _, errors), (killed, _, _) = run_processes(line, line, interruption=(1, 2, signal.SIGKILL))
    assert killed == -signal.SIGKILL
    assert status, errors
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]


def test_a_full_disk_of_the_process_that_writes_ends_the_other(corpus, tmp_path):
    line = line_of(corpus, tmp_path / "run", "--distribute", "data")
    room = "Expected room for what is written."
    expected = f"keras-attn train: {room}", f"keras-attn train: Process 0 has ended: {room}"
    for (status, _, errors), sentence in zip(run_processes(line, line, before=FULL_DISK), expected, strict=True):
        assert status == 1, errors
        assert sentence in errors
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
