"""Presets and a compiled model of earlier versions load, and compute what they did.

The program, which a version runs when it is released, was `tests/fixtures/make_presets.py` of commit 78bad56.
"""

import json
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import Translator

VERSIONS = sorted((Path(__file__).parents[2] / "fixtures").glob("presets_*.zip"))
NAMES = ["rnnsearch", "rnnsearch_concat", "rnnsearch_tied", "rnn_encoder_decoder", "lstm_seq2seq", "luong"]
NAMES += ["luong_bidirectional", "luong_local", "transformer", "transformer_normalize_first", "ensemble"]


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda path: path.stem)
def presets(request, tmp_path_factory):
    """The folder of presets, the arrays, and the record of one version."""
    folder = tmp_path_factory.mktemp(request.param.stem)
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(folder)
    with np.load(folder / "expected.npz", allow_pickle=False) as file:
        arrays = dict(file)
    return folder, arrays, json.loads((folder / "expected.json").read_text(encoding="utf-8"))


def ids_of(arrays, name):
    return {key: arrays[f"{name}/{key}"] for key in ("encoder_token_ids", "decoder_token_ids")}


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_of_an_earlier_version_translates_as_it_did(presets, name):
    folder, arrays, record = presets
    translator = Translator.from_preset(folder / name)
    logits = ops.convert_to_numpy(translator.model(ids_of(arrays, name)))
    np.testing.assert_allclose(logits, arrays[f"{name}/logits"], atol=1e-5)
    for beam_size, texts in record["translations"][name].items():
        found = translator.generate(record["lines"], beam_size=int(beam_size))
        assert [translation.text for translation in found] == texts
    assert sorted(record["translations"]) == sorted(NAMES)


def test_a_compiled_model_of_an_earlier_version_goes_on_training(presets):
    folder, arrays, _ = presets
    model = keras.saving.load_model(folder / "compiled.keras")
    assert int(model.optimizer.iterations) == 2
    inputs = ids_of(arrays, "compiled")
    losses = [model.train_on_batch(inputs, arrays["compiled/labels"]) for _ in arrays["compiled/losses"]]
    np.testing.assert_allclose(np.array(losses, "float32"), arrays["compiled/losses"], atol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(model(inputs)), arrays["compiled/logits"], atol=1e-4)
