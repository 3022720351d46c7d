"""`keras-attn presets`, `keras-attn upload`, and commands that take a preset by its name."""

import json
import shutil

import pytest

from keras_attn import files, saving
from keras_attn.cli import command, serve
from keras_attn.cli.main import main
from keras_attn.saving import registry
from keras_attn.translation import Translator
from tests.unit.saving.test_registry import ENTRY


@pytest.fixture
def checkout(preset, tmp_path, monkeypatch):
    """A checkout whose registry has the preset as `tiny`."""
    shutil.copytree(preset, tmp_path / "checkout" / "tiny")
    entry = ENTRY | {"files": files.digests(preset)}
    (tmp_path / "registry.json").write_text(json.dumps({"address": None, "presets": {"tiny": entry}}))
    monkeypatch.setattr(registry, "REGISTRY", tmp_path / "registry.json")
    monkeypatch.setattr(registry, "CHECKOUT", tmp_path / "checkout")
    monkeypatch.delenv(registry.VARIABLE, raising=False)
    return tmp_path / "checkout"


def test_presets_are_listed(checkout, capsys):
    assert main(["presets"]) == 0
    assert main(["presets", "--signatures"]) == 0
    names, row, more, signed = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    found = dict(zip(names, row, strict=True))
    expected = {"name": "tiny", "languages": "en-fr", "score": "bleu 12.50", "licence": "apache-2.0", "here": "yes"}
    assert expected.items() <= found.items()
    assert int(found["bytes"]) == saving.presets()["tiny"].size
    assert (more, signed) == ([*names, "signature"], [*row, "nrefs:1"])


def test_a_command_takes_the_name_of_a_preset(checkout, tmp_path, capsys):
    (tmp_path / "in").write_text("eins zwei\n")
    for run in ("tiny", str(checkout / "tiny")):
        assert main(["translate", run, str(tmp_path / "in"), "--beam", "3"]) == 0
    one, other = capsys.readouterr().out.splitlines()
    assert one == other
    assert main(["translate", "tinny"]) == 2
    assert (
        "Expected a preset: one of tiny; hf://USER/NAME; or a folder. Received: 'tinny' (did you mean 'tiny'?)"
        in capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        main(["translate", "hf://tiny"])
    assert "expected hf://user/name" in capsys.readouterr().err.lower()


def test_serving_a_preset_exports_it_once(checkout, tmp_path, monkeypatch, capsys):
    folders = []

    def export(self, folder, **options):
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "saved_model.pb").touch()
        folders.append(folder)

    monkeypatch.setattr(Translator, "export", export)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert serve._exported(checkout / "tiny") == serve._exported(checkout / "tiny") == folders[0]
    assert len(folders) == 1
    assert capsys.readouterr().out.startswith(f"Exporting {checkout / 'tiny'} to {tmp_path}")
    (checkout / "tiny" / "1").mkdir()
    (checkout / "tiny" / "1" / "saved_model.pb").touch()
    assert [command.kind_of(path) for path in (folders[0], folders[0] / "1", checkout, checkout / "tiny")] == [
        *["saved_model"] * 2,
        *["preset"] * 2,
    ]


def test_upload_checks_the_preset_and_prints_its_address(checkout, tmp_path, monkeypatch, capsys):
    pytest.importorskip("huggingface_hub")
    sent = []
    monkeypatch.setattr(saving, "upload", lambda *arguments, private: sent.append((*arguments, private)) or "X")
    assert main(["upload", "tiny", "hf://user/tiny", "--private"]) == 0
    assert sent == [(checkout / "tiny", "hf://user/tiny", True)]
    assert capsys.readouterr().out == "The preset is at X.\n"
    assert main(["upload", str(tmp_path), "hf://user/tiny"]) == 2
    assert len(sent) == 1
    assert "There is no translator.json" in capsys.readouterr().err
