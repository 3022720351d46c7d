"""Presets whose files were damaged, or changed by someone who also mended the manifest; saves that meet."""

import errno
import io
import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from keras_attn import Tokenizer, Translator, files
from keras_attn.models import LSTMSeq2Seq, RNNSearch
from keras_attn.saving import manifest, preset, quantization
from tests.hostile import mend, mended_tokenizer, parts_of, write_parts

LINES = ["ein hund läuft", "eine frau liest ein buch"]


@pytest.fixture(scope="module")
def translator():
    words, pieces = Tokenizer.train(LINES, level="word"), Tokenizer.train(LINES, vocabulary_size=280)
    sizes = {"units": 3, "embedding_size": 64, "readout_size": 4, "attention_units": 3, "decoder_units": 3}
    return Translator(RNNSearch(words.vocabulary_size, pieces.vocabulary_size, **sizes), words, pieces)


@pytest.fixture(scope="module")
def saved(translator, tmp_path_factory):
    """The translator as a preset, whole and with its embedding of pieces in fewer bits."""
    folder = tmp_path_factory.mktemp("presets")
    for dtype in (None, "float16", "int8"):
        translator.save_to_preset(folder / (dtype or "whole"), dtype=dtype)
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return Path(shutil.copytree(saved / "whole", tmp_path / "copy"))


def rewrite(folder, compression=zipfile.ZIP_STORED, **parts):
    """Replaces parts of `model.keras`, and the manifest with it."""
    names = {"config": "config.json", "weights": "model.weights.h5"}
    content = parts_of(folder / "model.keras") | {names[name]: part for name, part in parts.items()}
    write_parts(folder / "model.keras", content, compression)
    mend(folder)


def rewrite_config(folder, name, by):
    """Changes each entry of this name in the nested config."""

    def changed(value):
        if isinstance(value, list):
            return [changed(one) for one in value]
        if isinstance(value, dict):
            return {key: by if key == name else changed(one) for key, one in value.items()}
        return value

    config = json.loads(parts_of(folder / "model.keras")["config.json"])
    rewrite(folder, config=json.dumps(changed(config)).encode())


def refused(folder, match):
    with pytest.raises(ValueError, match=match) as error:
        Translator.from_preset(folder)
    assert str(error.value).startswith("Expected")


NO_MODEL = r"model\.keras' to be a model of keras_attn\. Received: "
LENGTHS = {"max_length_ratio": 1.5, "max_length_constant": 10}


@pytest.mark.parametrize(
    "changes",
    [
        {"files": {}},
        {"files": {"model.keras": {"size": 1, "sha256": ""}}},
        {"options": {}},
        {"options": {"max_length_ratio": 10**400, "max_length_constant": 1}},
        {"options": {"max_length_ratio": 1.5, "max_length_constant": float("nan")}},
        {"options": {"max_length_ratio": "1e999", "max_length_constant": 1}},
        {"options": LENGTHS | {"trained_length": 0.5}},
        {"options": LENGTHS | {"trained_length": 0}},
    ],
)
def test_a_changed_manifest_is_refused(copy, changes):
    mend(copy, **changes)
    refused(copy, "truncated or changed")


def change_manifest(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda f: (f / "translator.json").unlink(), FileNotFoundError, "no translator.json"),
        (lambda f: change_manifest(f / "translator.json", version=99), ValueError, "'version': 99"),
        (lambda f: shutil.copy(f / "model.keras", f / "other") and mend(f), ValueError, "truncated or changed"),
        (lambda f: (f / "model.keras").unlink(), FileNotFoundError, "model.keras. It is missing"),
        (lambda f: os.truncate(f / "model.keras", 100), ValueError, "truncated"),
        (lambda f: flip_a_byte(f / "model.keras"), ValueError, "SHA-256 has changed"),
        (lambda f: shutil.rmtree(f / "source_tokenizer"), FileNotFoundError, "source_tokenizer/tokenizer.json"),
    ],
)
def test_a_damaged_preset_is_refused(copy, damage, error, message):
    damage(copy)
    with pytest.raises(error, match=message):
        Translator.from_preset(copy)


def test_a_manifest_is_small_and_flat(copy):
    for text in ("[" * 100_000, '{"format": "' + "x" * (1 << 20) + '"}', '{"format": ', "[1]"):
        (copy / preset.MANIFEST).write_text(text)
        refused(copy, "truncated or changed")


def test_the_longest_text_of_training_is_saved_if_it_is_known(translator, saved, copy, tmp_path):
    assert Translator.from_preset(saved / "whole").trained_length is None
    mend(copy, options=LENGTHS)  # of an earlier version
    assert Translator.from_preset(copy).limits() == translator.limits()
    parts = translator.model, translator.source_tokenizer, translator.target_tokenizer
    Translator(*parts, trained_length=7).save_to_preset(tmp_path / "new")
    again = Translator.from_preset(tmp_path / "new")
    assert (again.trained_length, again.limits().longest(99)) == (7, 31)


@pytest.mark.parametrize("content", [b"", b"<html>log in</html>", b"[]", b"null", b"[" * 99_999])
@pytest.mark.parametrize("part", ["file", "config", "weights"])
def test_another_file_is_no_model(copy, part, content):
    if part == "file":
        (copy / "model.keras").write_bytes(content)
        mend(copy)
    else:
        rewrite(copy, **{part: content})
    refused(copy, NO_MODEL)


@pytest.mark.parametrize(
    ("name", "by"),
    [("registered_name", "os>system"), ("units", "many"), ("units", 1e400), ("units", 10**9), ("config", None)],
)
def test_a_config_that_fits_no_model_is_refused(copy, name, by):
    rewrite_config(copy, name, by)
    refused(copy, NO_MODEL)


def test_another_kind_of_model_is_refused(copy):
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]).save(copy / "model.keras")
    mend(copy)
    refused(copy, "Received: Sequential")


def test_a_config_asks_for_no_more_layers_than_have_weights(tmp_path):
    """10**9 layers would be made one by one."""
    words = Tokenizer.train(LINES, level="word")
    model = LSTMSeq2Seq(words.vocabulary_size, words.vocabulary_size, units=5, embedding_size=7, num_layers=2)
    Translator(model, words, words).save_to_preset(tmp_path / "deep")
    rewrite_config(tmp_path / "deep", "num_layers", 10**9)
    refused(tmp_path / "deep", "1,000,000,000 as num_layers, with weights of [0-9]+ arrays")


def test_bombs_are_refused_before_they_are_unpacked(copy):
    rewrite(copy, zipfile.ZIP_DEFLATED, config=bytes(5_000_000))
    refused(copy, "not compressed")
    rewrite(copy, config=b'{"x": "' + b" " * (1 << 24) + b'"}')
    refused(copy, "more than 16,777,216 bytes")
    file = io.BytesIO()
    with h5py.File(file, "w") as weights:
        weights.create_dataset("layers/embedding/vars/0", (1 << 28, 3), "float32", fillvalue=1.0, chunks=(1024, 3))
    rewrite(copy, config=b"{}", weights=file.getvalue())
    refused(copy, "Its weights have 3,221,225,472 bytes")


# Matrices in fewer bits.


def test_narrow_models_are_smaller_and_keras_alone_refuses_int8(translator, saved, tmp_path):
    arrays = sum(int(np.prod(w.shape)) for w in translator.model.weights if quantization.is_quantized(w))
    assert arrays > 1000
    whole, half, byte = ((saved / name / "model.keras").stat().st_size for name in ("whole", "float16", "int8"))
    assert whole - half > 1.8 * arrays - 1000
    assert half - byte > 0.7 * arrays  # beside scales and groups
    assert keras.saving.load_model(saved / "float16" / "model.keras").count_params() > 0
    with pytest.raises(Exception, match=r"(?i)group|dataset"):
        keras.saving.load_model(saved / "int8" / "model.keras")
    with pytest.raises(ValueError, match='Expected `dtype` to be None, "float16" or "int8"'):
        translator.save_to_preset(tmp_path / "new", dtype="int4")
    assert not (tmp_path / "new").exists()


def rewrite_weights(saved, folder, change):
    """A copy of the int8 preset with its HDF5 file changed."""
    shutil.copytree(saved / "int8", folder)
    file = io.BytesIO(parts_of(folder / "model.keras")["model.weights.h5"])
    with h5py.File(file, "a") as weights:
        groups = []
        weights.visititems(lambda name, item: groups.append(item.parent) if name.endswith("/scale") else None)
        change(weights, groups)
    rewrite(folder, weights=file.getvalue())


def replaced(name, value):
    def change(weights, groups):
        del groups[0][name]
        groups[0][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced("scale", np.ones((4096, 1), "float32")), NO_MODEL),
        (replaced("scale", np.ones(3, "float32")), NO_MODEL),
        (replaced("values", h5py.ExternalLink("/etc/passwd", "/")), NO_MODEL),
        (lambda weights, groups: weights.__delitem__(groups[0].name), NO_MODEL),
        (
            lambda weights, _: weights.create_dataset("x", (3,), "float32", external=[("/etc/hostname", 0, 12)]),
            "are in other files",
        ),
        # Four hundred of them took Keras half a minute.
        (lambda weights, _: weights.create_group("/".join("g" * 400)), "groups nested more than 32 deep"),
    ],
)
def test_a_damaged_int8_model_is_refused(saved, tmp_path, change, message):
    rewrite_weights(saved, tmp_path / "narrow", change)
    refused(tmp_path / "narrow", message)


def test_groups_linked_into_each_other_are_read_once(saved, tmp_path):
    """Each of forty groups has the next one twice: copied link by link, they would be 2^40."""

    def link(weights, groups):
        inner = weights.create_group("g0")
        for n in range(1, 41):
            outer = weights.create_group(f"g{n}")
            outer["one"], outer["other"] = inner, inner
            inner = outer
        inner["again"] = inner

    rewrite_weights(saved, tmp_path / "narrow", link)
    Translator.from_preset(tmp_path / "narrow")


def test_no_room_for_temporary_files_is_no_fault_of_the_preset(saved, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(OSError, match=rf"Expected room for what is written\. Received: '{tmp_path}', No space left"):
        Translator.from_preset(saved / "int8")


# Tokenizers.


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("level"),
        lambda m: m.update(level=["word"]),
        lambda m: m.update(lowercase="yes"),
        lambda m: m["vocabulary"].append(7),
        lambda m: m["vocabulary"].append("\ud800"),
        lambda m: m.update(character_table={"ab": "c"}),
        lambda m: m.update(level="bpe"),
    ],
)
def test_a_changed_tokenizer_is_refused(copy, change):
    path = copy / "source_tokenizer" / "tokenizer.json"
    recorded = json.loads(path.read_text())
    change(recorded)
    path.write_bytes(mended_tokenizer(recorded))
    mend(copy)
    with pytest.raises((ValueError, FileNotFoundError), match=r"^Expected .*(tokenizer\.json|sentencepiece\.model)"):
        Translator.from_preset(copy)


def test_files_of_a_tokenizer_that_are_too_large_or_no_model_are_refused(copy):
    folder = copy / "target_tokenizer"
    (folder / "sentencepiece.model").write_bytes(b"no model")
    recorded = json.loads((folder / "tokenizer.json").read_text())
    recorded["sentencepiece_sha256"] = files.sha256(folder / "sentencepiece.model")
    (folder / "tokenizer.json").write_bytes(mended_tokenizer(recorded))
    mend(copy)
    refused(copy, r"sentencepiece\.model")
    for name in ("sentencepiece.model", "tokenizer.json"):
        os.truncate(folder / name, 1 << 40)
        with pytest.raises(ValueError, match=rf"{name} to be what Tokenizer\.save wrote"):
            Tokenizer.load(folder)


# Saving.


def test_of_two_saves_at_once_one_is_refused(translator, tmp_path, monkeypatch):
    write = manifest.write

    def meanwhile(*arguments):
        monkeypatch.setattr(manifest, "write", write)
        translator.save_to_preset(tmp_path / "new")
        write(*arguments)

    monkeypatch.setattr(manifest, "write", meanwhile)
    with pytest.raises(FileExistsError, match="never overwritten"):
        translator.save_to_preset(tmp_path / "new")
    assert set(os.listdir(tmp_path / "new")) == {*preset.NAMES, preset.CARD}
    Translator.from_preset(tmp_path / "new")
