"""Presets whose files were changed by someone who also mended the manifest; saves that were killed, or meet."""

import hashlib
import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from keras_attn import Tokenizer, Translator, files
from keras_attn.models import RNNSearch
from keras_attn.saving import manifest, preset

pytestmark = pytest.mark.once

LINES = ["ein hund läuft", "eine frau liest ein buch"]


@pytest.fixture(scope="module")
def translator():
    words, pieces = Tokenizer.train(LINES, level="word"), Tokenizer.train(LINES, vocabulary_size=280)
    sizes = {"units": 3, "embedding_size": 4, "readout_size": 4, "attention_units": 3, "decoder_units": 3}
    return Translator(RNNSearch(words.vocabulary_size, pieces.vocabulary_size, **sizes), words, pieces)


@pytest.fixture(scope="module")
def saved(translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets") / "whole"
    translator.save_to_preset(folder)
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def digest(recorded):
    return hashlib.sha256(json.dumps(recorded, sort_keys=True).encode()).hexdigest()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def mend(folder, **changes):
    """Makes a manifest that fits the files; the changes replace its entries."""
    path = folder / preset.MANIFEST
    recorded = json.loads(path.read_text())
    path.unlink()
    digests = {name: digest for name, digest in files.digests(folder).items() if name != preset.CARD}
    path.write_text(json.dumps(recorded | {"files": digests} | changes))


def rewrite(path, compression=zipfile.ZIP_STORED, **parts):
    """Replaces parts of `model.keras`; None leaves one out."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content |= {{"config": "config.json", "weights": "model.weights.h5"}[name]: part for name, part in parts.items()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, part in content.items():
            if part is not None:
                archive.writestr(name, part)


def config_of(path):
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("config.json"))


def refused(folder, match):
    with pytest.raises(ValueError, match=match) as error:
        Translator.from_preset(folder)
    assert str(error.value).startswith("Expected")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"files": {}}, "truncated or changed"),
        ({"files": {"model.keras": {"size": 1, "sha256": ""}}}, "truncated or changed"),
        ({"options": {}}, "truncated or changed"),
        ({"options": {"max_length_ratio": 10**400, "max_length_constant": 1}}, "truncated or changed"),
        ({"options": {"max_length_ratio": 1.5, "max_length_constant": float("nan")}}, "truncated or changed"),
        ({"options": {"max_length_ratio": "1e999", "max_length_constant": 1}}, "truncated or changed"),
        (
            {"options": {"max_length_ratio": 1, "max_length_constant": 1, "trained_length": 0.5}},
            "truncated or changed",
        ),
    ],
)
def test_a_manifest_says_all_that_it_must(copy, changes, match):
    mend(copy, **changes)
    refused(copy, match)


def test_the_longest_text_of_training_is_saved_if_it_is_known(translator, saved, tmp_path):
    assert Translator.from_preset(saved).trained_length is None
    mend(shutil.copytree(saved, tmp_path / "old"), options={"max_length_ratio": 1.5, "max_length_constant": 10})
    assert Translator.from_preset(tmp_path / "old").limits() == translator.limits()
    parts = translator.model, translator.source_tokenizer, translator.target_tokenizer
    Translator(*parts, trained_length=7).save_to_preset(tmp_path / "new")
    again = Translator.from_preset(tmp_path / "new")
    assert (again.trained_length, again.limits().longest(99)) == (7, 31)


def test_a_manifest_is_small_and_flat(copy):
    for text in ("[" * 100_000, '{"format": "' + "x" * (1 << 20) + '"}'):
        (copy / preset.MANIFEST).write_text(text)
        refused(copy, "truncated or changed")


@pytest.mark.parametrize("content", [b"", b"PK", b"<html>log in</html>", b"[]", b"{}", b"null", b"[" * 99_999])
@pytest.mark.parametrize("part", ["file", "config", "weights"])
def test_a_model_that_is_none_is_a_sentence(copy, part, content):
    path = copy / "model.keras"
    path.write_bytes(content) if part == "file" else rewrite(path, **{part: content})
    mend(copy)
    refused(copy, r"model\.keras' to be a model of keras_attn\. Received: ")


def change(value, name, by):
    """Changes each entry of this name in a nested config."""
    if isinstance(value, list):
        return [change(one, name, by) for one in value]
    if isinstance(value, dict):
        return {key: by if key == name else change(one, name, by) for key, one in value.items()}
    return value


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("class_name", "Nonesuch"),
        ("registered_name", "os>system"),
        ("units", "many"),
        ("units", 1e400),
        ("units", 10**9),
        ("module", "os"),
        ("config", None),
    ],
)
def test_a_config_that_fits_no_model_is_a_sentence(copy, name, by):
    path = copy / "model.keras"
    rewrite(path, config=json.dumps(change(config_of(path), name, by)).encode())
    mend(copy)
    refused(copy, r"model\.keras' to be a model of keras_attn\. Received: ")


def test_another_kind_of_model_is_refused(copy):
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]).save(copy / "model.keras")
    mend(copy)
    refused(copy, "Received: Sequential")


def test_a_bomb_is_refused_before_it_is_unpacked(copy):
    path = copy / "model.keras"
    rewrite(path, zipfile.ZIP_DEFLATED, config=bytes(50_000_000))
    mend(copy)
    refused(copy, "not compressed")
    rewrite(path, config=b'{"x": "' + b" " * (1 << 24) + b'"}')
    mend(copy)
    refused(copy, "more than 16,777,216 bytes")


def test_weights_that_declare_more_than_they_have_are_refused(copy):
    file = io.BytesIO()
    with h5py.File(file, "w") as weights:
        weights.create_dataset("layers/embedding/vars/0", (1 << 28, 3), "float32", fillvalue=1.0, chunks=(1024, 3))
    rewrite(copy / "model.keras", weights=file.getvalue())
    mend(copy)
    refused(copy, "Its weights have 3,221,225,472 bytes")


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
def test_a_tokenizer_that_is_none_is_a_sentence(copy, change):
    path = copy / "source_tokenizer" / "tokenizer.json"
    recorded = json.loads(path.read_text())
    change(recorded)
    rest = {name: value for name, value in recorded.items() if name not in ("format", "sha256")}
    path.write_text(json.dumps(recorded | {"sha256": digest(rest)}))
    mend(copy)
    with pytest.raises((ValueError, FileNotFoundError), match=r"^Expected .*(tokenizer\.json|sentencepiece\.model)"):
        Translator.from_preset(copy)


@pytest.mark.parametrize("name", ["tokenizer.json", "sentencepiece.model"])
def test_a_tokenizer_that_is_too_large_is_not_read(copy, name):
    folder = copy / "target_tokenizer"
    os.truncate(folder / name, 1 << 40)
    with pytest.raises(ValueError, match=rf"{name} to be what Tokenizer\.save wrote"):
        Tokenizer.load(folder)


def test_a_sentencepiece_model_that_is_none_is_a_sentence(copy):
    folder = copy / "target_tokenizer"
    (folder / "sentencepiece.model").write_bytes(b"no model")
    recorded = json.loads((folder / "tokenizer.json").read_text())
    recorded["sentencepiece_sha256"] = files.sha256(folder / "sentencepiece.model")
    del recorded["sha256"], recorded["format"]
    whole = recorded | {"format": 1, "sha256": digest(recorded)}
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    mend(copy)
    refused(copy, r"sentencepiece\.model")


# Saving.


@pytest.mark.parametrize("moved", range(5))
def test_a_save_that_was_killed_is_undone_by_the_next_one(translator, saved, tmp_path, moved):
    """`moved` of the four parts had been moved into place, of another translator."""
    (tmp_path / "history.csv").write_text("epoch\n")
    staged = tmp_path / f".tmp-{'a' * 32}" / "preset"
    shutil.copytree(saved, staged, ignore=shutil.ignore_patterns(preset.CARD))
    for name in preset.NAMES[:moved]:
        shutil.move(staged / name, tmp_path / name)
    if moved == len(preset.NAMES):  # it was complete
        with pytest.raises(FileExistsError, match="never overwritten"):
            translator.save_to_preset(tmp_path)
    else:
        translator.save_to_preset(tmp_path)
    card = [] if moved == len(preset.NAMES) else [preset.CARD]
    assert names(tmp_path) == sorted([*preset.NAMES, *card, "history.csv"])
    found = Translator.from_preset(tmp_path).model.get_weights()
    for one, other in zip(found, translator.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_of_two_saves_at_once_one_is_refused(translator, tmp_path, monkeypatch):
    write = manifest.write

    def meanwhile(*arguments):
        monkeypatch.setattr(manifest, "write", write)
        translator.save_to_preset(tmp_path / "new")
        write(*arguments)

    monkeypatch.setattr(manifest, "write", meanwhile)
    with pytest.raises(FileExistsError, match="never overwritten"):
        translator.save_to_preset(tmp_path / "new")
    assert names(tmp_path / "new") == sorted([*preset.NAMES, preset.CARD])
    Translator.from_preset(tmp_path / "new")
