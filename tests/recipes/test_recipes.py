"""Each recipe builds its model, trains a step and reports, on each backend."""

import json

import keras
import numpy as np
import pytest

from keras_attn import Translator
from keras_attn.cli import train
from tests.training import small_run
from tests.training.small_run import SIZES, history, write_digits

NARROW = ("units=8", "embedding_size=8")  # of one width, because the embeddings are the output matrix, too
eagerly = small_run.eagerly
SETTINGS = {
    "gnmt": (*NARROW, "encoder_layers=2", "decoder_layers=2"),
    "hard_monotonic": ("units=6", "num_layers=1", "embedding_size=5", "decoder_units=7", "readout_size=9"),
    "lstm_seq2seq": (*NARROW, "num_layers=1"),
    "luong": (*NARROW, "num_layers=1", "readout_size=8"),
    "nematus": (*NARROW, "attention_units=7"),
    "rnmt_plus": ("units=4", "embedding_size=8", "encoder_layers=2", "decoder_layers=2", "num_heads=2"),
    "rnnencdec": (*NARROW, "readout_size=8"),
    "rnnsearch": SIZES[:-1],
    "transformer": ("units=8", "num_layers=1", "num_heads=2", "feed_forward_units=9"),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("corpora") / "digits", 16, 5, 3)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_recipe_trains_a_step_and_reports(name, corpus, tmp_path):
    out = tmp_path / "run"
    line = [name, "--corpus", str(corpus), "--source", "de", "--target", "fr", "--out", str(out), "--beam", "1"]
    assert (
        train.main([*line, "--no-export", "--set", *SETTINGS[name], "level=word", "batch_size=16", "max_steps=1"]) == 0
    )
    report = json.loads((out / "report.json").read_text())
    assert (report["recipe"], report["backend"], report["updates"]) == (name, keras.backend.backend(), 1)
    assert report["bleu"]["signature"]
    (row,) = history(out)
    assert np.isfinite([row["loss"], row["val_loss"]]).all()
    translator = Translator.from_preset(out)
    assert translator.model.count_params() == report["parameters"]
