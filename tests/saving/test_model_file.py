"""Models stored in float16 and int8: their size, what is loaded, a full disk, and files that are made to harm."""

import errno
import io
import json
import os
import tempfile
import zipfile

import h5py
import keras
import numpy as np
import pytest

from keras_attn import Tokenizer, Translator, files
from keras_attn.models import LSTMSeq2Seq, RNNSearch
from keras_attn.saving import quantization, rounded_model
from tests.saving.test_preset import change, config_of, mend, refused, rewrite

pytestmark = pytest.mark.by_turns

LINES = ["ein hund läuft", "eine frau liest ein buch", "zwei hunde lesen"]
SIZES = {"units": 37, "embedding_size": 31, "readout_size": 29, "attention_units": 41, "decoder_units": 43}


@pytest.fixture(scope="module")
def translator():
    words = Tokenizer.train(LINES, level="word")
    return Translator(RNNSearch(words.vocabulary_size, words.vocabulary_size, **SIZES), words, words)


@pytest.fixture(scope="module", params=["float16", "int8"])
def dtype(request):
    return request.param


@pytest.fixture
def preset(translator, dtype, tmp_path):
    translator.save_to_preset(tmp_path / "narrow", dtype=dtype)
    return tmp_path / "narrow"


def test_a_stored_model_has_the_quantized_weights_in_its_own_dtype(translator, preset, dtype):
    loaded = Translator.from_preset(preset)
    expected = rounded_model(translator.model, dtype)
    changed = 0
    for weight, other, before in zip(
        loaded.model.weights, expected.weights, translator.model.get_weights(), strict=True
    ):
        assert keras.backend.standardize_dtype(weight.dtype) == "float32"
        value = keras.ops.convert_to_numpy(weight)
        np.testing.assert_array_equal(value, keras.ops.convert_to_numpy(other), err_msg=weight.path)
        changed += not np.array_equal(value, before)
    assert changed > 5
    assert [t.text for t in loaded.generate(LINES)] == [
        t.text for t in Translator(expected, *(translator.source_tokenizer,) * 2).generate(LINES)
    ]


def test_a_model_in_bfloat16_is_stored_narrow_too(translator, dtype, tmp_path):
    words = translator.source_tokenizer
    model = RNNSearch(words.vocabulary_size, words.vocabulary_size, **SIZES, dtype="bfloat16")
    Translator(model, words, words).save_to_preset(tmp_path / "narrow", dtype=dtype)
    stored = zipfile.ZipFile(tmp_path / "narrow" / "model.keras").read("model.weights.h5")
    with h5py.File(io.BytesIO(stored)) as weights:
        found = []
        weights.visititems(lambda _, one: found.append(one.dtype) if isinstance(one, h5py.Dataset) else None)
    assert np.dtype(dtype) in found
    loaded = Translator.from_preset(tmp_path / "narrow").model
    for one, other in zip(loaded.weights, model.weights, strict=True):
        assert keras.backend.standardize_dtype(one.dtype) == "bfloat16"
        values = [keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")) for x in (one, other)]
        np.testing.assert_allclose(*values, atol=0.02 * np.abs(values[1]).max())


@pytest.mark.once
def test_it_is_smaller(translator, preset, dtype, tmp_path):
    translator.save_to_preset(tmp_path / "whole")
    arrays = sum(int(np.prod(w.shape)) for w in translator.model.weights if quantization.is_quantized(w))
    whole, narrow = ((folder / "model.keras").stat().st_size for folder in (tmp_path / "whole", preset))
    assert whole - narrow > 0.9 * arrays * {"float16": 2, "int8": 3}[dtype] - 20_000
    files.check_archive(preset / "model.keras")


@pytest.mark.once
def test_keras_alone_loads_float16_and_refuses_int8(preset, dtype):
    if dtype == "float16":
        assert keras.saving.load_model(preset / "model.keras").count_params() > 0
    else:
        with pytest.raises(Exception, match=r"(?i)group|dataset"):
            keras.saving.load_model(preset / "model.keras")


@pytest.mark.once
def test_another_dtype_is_refused_before_anything_is_written(translator, tmp_path):
    with pytest.raises(ValueError, match='Expected `dtype` to be None, "float16" or "int8"'):
        translator.save_to_preset(tmp_path / "new", dtype="int4")
    assert not (tmp_path / "new").exists()


def changed_weights(folder, change):
    """Changes the HDF5 file in `model.keras`, and the manifest with it."""
    with zipfile.ZipFile(folder / "model.keras") as archive:
        file = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(file, "a") as weights:
        groups = []
        weights.visititems(lambda name, item: groups.append(item.parent) if name.endswith("/scale") else None)
        change(weights, groups)
    rewrite(folder / "model.keras", weights=file.getvalue())
    mend(folder)


def replaced(name, value):
    def change(weights, groups):
        del groups[0][name]
        groups[0][name] = value(groups[0])

    return change


NO_MODEL = r"model\.keras' to be a model of keras_attn\. Received: "
ELSEWHERE = {"external": [("/etc/hostname", 0, 12)]}


@pytest.mark.once
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced("scale", lambda group: np.ones((4096, 1), "float32")), NO_MODEL),
        (replaced("scale", lambda group: np.ones(3, "float32")), NO_MODEL),
        (replaced("values", lambda group: h5py.ExternalLink("/etc/passwd", "/")), NO_MODEL),
        (lambda weights, groups: weights.__delitem__(groups[0].name), NO_MODEL),
        (
            lambda weights, _: weights.create_dataset("x", (3,), "float32", **ELSEWHERE),
            "are in other files",
        ),
        # Four hundred of them took Keras half a minute.
        (lambda weights, _: weights.create_group("/".join("g" * 400)), "groups nested more than 32 deep"),
    ],
)
def test_a_damaged_int8_model_is_a_sentence(translator, tmp_path, change, message):
    translator.save_to_preset(tmp_path / "narrow", dtype="int8")
    changed_weights(tmp_path / "narrow", change)
    refused(tmp_path / "narrow", message)


def linked_into_each_other(weights, groups):
    """Each of forty groups has the next one twice: copied link by link, they would be 2^40."""
    inner = weights.create_group("g0")
    for n in range(1, 41):
        outer = weights.create_group(f"g{n}")
        outer["one"], outer["other"] = inner, inner
        inner = outer
    inner["again"] = inner


@pytest.mark.once
def test_groups_linked_into_each_other_take_no_more_time_than_they_are(translator, tmp_path):
    translator.save_to_preset(tmp_path / "narrow", dtype="int8")
    changed_weights(tmp_path / "narrow", linked_into_each_other)
    Translator.from_preset(tmp_path / "narrow").generate(LINES[:1])


@pytest.mark.once
def test_a_config_asks_for_no_more_layers_than_have_weights(tmp_path):
    """10**9 layers would be made one by one."""
    words = Tokenizer.train(LINES, level="word")
    model = LSTMSeq2Seq(words.vocabulary_size, words.vocabulary_size, units=5, embedding_size=7, num_layers=2)
    Translator(model, words, words).save_to_preset(tmp_path / "deep")
    path = tmp_path / "deep" / "model.keras"
    rewrite(path, config=json.dumps(change(config_of(path), "num_layers", 10**9)).encode())
    mend(tmp_path / "deep")
    refused(tmp_path / "deep", "1,000,000,000 as num_layers, with weights of [0-9]+ arrays")


@pytest.mark.once
def test_no_room_for_temporary_files_is_no_fault_of_the_preset(translator, tmp_path, monkeypatch):
    translator.save_to_preset(tmp_path / "narrow", dtype="int8")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match=rf"Expected room for what is written\. Received: '{tmp_path}', No space left"):
        Translator.from_preset(tmp_path / "narrow")
