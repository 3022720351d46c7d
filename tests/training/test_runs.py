"""Runs on each backend: from files in half batches, interrupted and resumed."""

import gzip
import json
import lzma

import keras
import pytest

from keras_attn.cli import train
from tests.training import small_run
from tests.training.small_run import assert_same_course, command_line, history, interrupted, write_digits

# Words of a model that is hardly trained may have characters that no font has.
pytestmark = pytest.mark.filterwarnings("ignore:No installed font has the characters:UserWarning")
eagerly = small_run.eagerly

# Without dropout, whose masks depend on the size of a batch; without shuffled batches, which halves would not follow.
PLAIN = ["embedding_dropout=0", "memory_dropout=0", "output_dropout=0", "curriculum_epochs=99"]
PLAIN += ["learning_rate=0.02", "warmup_steps=3", "validation_sentences=5", "max_steps=7", "validate_every=3"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = write_digits(tmp_path_factory.mktemp("corpora") / "digits", 65, 16, 19, lengths=(5,))
    for language in ("de", "fr"):
        lines = (folder / f"train.{language}").read_text().splitlines()
        (folder / f"train.{language}").write_text("\n".join(["", *lines[1:]]))
    return folder


def test_from_files_in_half_batches_a_run_takes_the_course_of_one_in_memory(corpus, tmp_path):
    """Seven updates are almost two passes, scored after updates 3, 6 and 7; it is interrupted in the first pass.

    A batch of 16 pairs is one update there, and two batches of 48 positions, 8 pairs of 6, here.
    """
    parts = tmp_path / "parts" / corpus.name
    parts.mkdir(parents=True)
    for path in corpus.iterdir():
        split, language = path.name.split(".")
        lines = path.read_bytes().splitlines(keepends=True)
        if split == "train":  # in parts, compressed and not
            (parts / f"train.1.{language}.gz").write_bytes(gzip.compress(b"".join(lines[:30])))
            (parts / f"train.2.{language}.xz").write_bytes(lzma.compress(b"".join(lines[30:50])))
            (parts / f"train.3.{language}").write_bytes(b"".join(lines[50:]))
        else:
            (parts / path.name).write_bytes(b"".join(lines))
    whole, streamed = tmp_path / "whole", tmp_path / "streamed"
    assert train.main(command_line(corpus, whole, *PLAIN, "batch_size=16")) == 0
    line = command_line(parts, streamed, *PLAIN, "tokens_per_batch=48", "accumulation_steps=2")
    line += ["--stream", "--cache", str(tmp_path / "cache")]
    with interrupted(1):
        assert train.main(line) == 130
    assert len(history(streamed)) == 1
    assert train.main([*line, "--resume"]) == 0
    assert_same_course(streamed, whole, epochs=3)
    reports = [json.loads((out / "report.json").read_text()) for out in (whole, streamed)]
    for name in ("updates", "epochs", "training_pairs", "test_sources_in_training", "tokenizers", "bleu"):
        assert reports[0].get(name) == reports[1].get(name), name
    assert reports[0]["updates"] == 7
    assert "--stream" in reports[1]["command"]


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the others have products in bfloat16")
def test_bfloat16_products_are_refused_before_the_run_begins(corpus, tmp_path, capfd):
    assert train.main(command_line(corpus, tmp_path / "out", "bfloat16_products=true")) == 2
    assert "Expected TensorFlow or torch for products in bfloat16" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
