"""`keras-attn shortlist`, and the commands that search with what it writes."""

import json

import pytest

from keras_attn import Shortlist, with_shortlist
from keras_attn.translation import Translator
from tests.cli.test_score import SOURCES, folder, run  # noqa: F401 - a fixture

pytestmark = pytest.mark.once

PAIR = ("--source", "{f}/source", "--target", "{f}/target")
TOO_FEW = ("--candidates", 1, "--frequent", 1)


def test_translate_and_evaluate_search_in_it(folder, tmp_path, capsys):  # noqa: F811
    output = tmp_path / "short.npz"
    assert run(folder, "shortlist", "{f}/preset", *PAIR, "--output", output, *TOO_FEW) == 0
    assert "4 of 8 source tokens" in capsys.readouterr().out
    translator = Translator.from_preset(folder / "preset")
    expected = with_shortlist(translator, Shortlist.load(output)).generate(SOURCES, beam_size=3)
    texts = [translation.text for translation in expected]
    assert texts != [translation.text for translation in translator.generate(SOURCES, beam_size=3)]
    files = ("--input", "{f}/source", "--output", tmp_path / "translated", "--beam", 3)
    assert run(folder, "translate", "{f}/preset", *files, "--shortlist", output) == 0
    assert (tmp_path / "translated").read_text().splitlines() == texts
    files = ("--input", "{f}/source", "--references", "{f}/target", "--output", tmp_path / "scores")
    assert run(folder, "evaluate", "{f}/preset", *files, "--shortlist", output) == 0
    assert "beam 5, shortlist" in capsys.readouterr().out
    assert json.loads((tmp_path / "scores").read_text())["systems"][0]["shortlist"] == str(output)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["shortlist", "{f}/preset", *PAIR], "--output"),
        (["shortlist", "{f}/preset", *PAIR, "--output", "{f}/source"], "to be a new file"),
        (["shortlist", "{f}/preset", *PAIR, "--output", "{f}/new", "--candidates", 0], "from 1 to"),
        (["shortlist", "{f}/preset", *PAIR[:3], "{f}/short", "--output", "{f}/new"], "for each of 5 sentences"),
        (["export", "{f}/preset", "{f}/new", "--shortlist", "{f}/source"], "`Shortlist.save`"),
        (["translate", "{f}/preset", "--input", "{f}/source", "--shortlist", "{f}/none"], "{f}/none"),
        (["translate", "{f}/preset", "--input", "{f}/source", "--shortlist", "{f}/source"], "`Shortlist.save`"),
    ],
)
def test_what_cannot_be_is_refused(folder, capsys, arguments, sentence):  # noqa: F811
    assert run(folder, *arguments) == 2
    assert sentence.format(f=folder) in capsys.readouterr().err
    assert not (folder / "new").exists()


def test_export_has_it(folder, tmp_path, monkeypatch, capsys):  # noqa: F811
    output = tmp_path / "short.npz"
    assert run(folder, "shortlist", "{f}/preset", *PAIR, "--output", output, *TOO_FEW) == 0
    exported = []

    def export(self, directory, **options):
        exported.append(self.shortlist.fingerprint)
        return directory

    with monkeypatch.context() as patched:
        patched.setattr(Translator, "export", export)
        assert run(folder, "export", "{f}/preset", tmp_path / "served", "--shortlist", output) == 0
    assert exported == [Shortlist.load(output).fingerprint]
    onnx = tmp_path / "onnx"
    assert run(folder, "export", "{f}/preset", onnx, "--format", "onnx", "--shortlist", output) == 2
    assert "without a shortlist for ONNX" in capsys.readouterr().err
    assert not onnx.exists()
