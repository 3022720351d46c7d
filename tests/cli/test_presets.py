"""`keras-attn presets`, `keras-attn upload`, and commands that take a preset by its name."""

import json

import pytest

from keras_attn import Tokenizer, Translator, files, saving
from keras_attn.cli.main import main
from keras_attn.models import RNNSearch
from keras_attn.saving import registry
from tests.saving.test_registry import ENTRY

pytestmark = pytest.mark.once

LINES = ["ein hund läuft", "eine frau liest"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    words = Tokenizer.train(LINES, level="word")
    sizes = {"units": 3, "embedding_size": 4, "readout_size": 4, "attention_units": 3, "decoder_units": 3}
    model = RNNSearch(words.vocabulary_size, words.vocabulary_size, **sizes)
    folder = tmp_path_factory.mktemp("checkout")
    Translator(model, words, words).save_to_preset(folder / "tiny", dtype="float16")
    (folder / "tiny" / "report.json").write_text(json.dumps({"config": {"length_penalty": 0.5}}))
    return folder


@pytest.fixture(autouse=True)
def registered(checkout, tmp_path, monkeypatch):
    path = tmp_path / "registry.json"
    entry = ENTRY | {"files": files.digests(checkout / "tiny")}
    path.write_text(json.dumps({"address": None, "presets": {"tiny": entry}}))
    monkeypatch.setattr(registry, "REGISTRY", path)
    monkeypatch.setattr(registry, "CHECKOUT", checkout)
    monkeypatch.delenv(registry.VARIABLE, raising=False)


def test_presets_are_listed(capsys):
    assert main(["presets"]) == 0
    assert main(["presets", "--signatures"]) == 0
    names, row, more, signed = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    found = dict(zip(names, row, strict=True))
    assert found["name"] == "tiny"
    assert found["languages"] == "en-fr"
    assert found["score"] == "bleu 12.50"
    assert found["licence"] == "apache-2.0"
    assert int(found["bytes"]) == saving.presets()["tiny"].size
    assert (more, signed) == ([*names, "signature"], [*row, "nrefs:1"])


def test_a_command_takes_a_presets_name(checkout, tmp_path, capsys):
    (tmp_path / "in").write_text(LINES[0] + "\n")
    for run in ("tiny", str(checkout / "tiny")):
        assert main(["translate", run, "--input", str(tmp_path / "in"), "--beam", "2"]) == 0
    one, other = capsys.readouterr().out.splitlines()
    assert one == other
    assert main(["translate", "tinny"]) == 2
    assert "Expected a preset: one of tiny; hf://USER/NAME; or a folder. Received: 'tinny'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["translate", "hf://tiny"])
    assert "expected hf://user/name" in capsys.readouterr().err.lower()


def test_upload_checks_the_preset_and_says_where_it_is(checkout, tmp_path, monkeypatch, capsys):
    pytest.importorskip("huggingface_hub")
    sent = []
    monkeypatch.setattr(
        saving, "upload", lambda folder, address, private: sent.append((folder, address, private)) or "X"
    )
    assert main(["upload", "tiny", "hf://user/tiny", "--private"]) == 0
    assert sent == [(checkout / "tiny", "hf://user/tiny", True)]
    assert capsys.readouterr().out == "The preset is at X.\n"
    assert main(["upload", str(tmp_path), "hf://user/tiny"]) == 2
    assert len(sent) == 1
    assert "There is no translator.json" in capsys.readouterr().err
