"""A run becomes a registered preset: stored, scored as it is stored, described, entered; or it is refused."""

import json
import lzma

import numpy as np
import pytest

from keras_attn import G2P, Tokenizer, Translator, files, saving
from keras_attn.evaluation import bleu
from keras_attn.models import RNNSearch
from keras_attn.saving import registry
from keras_attn.training import corpora
from recipes import named_corpora, publish

LINES = {
    "de": ["ein hund läuft schnell .", "eine frau liest ein buch ."],
    "fr": ["un chien court .", "une femme lit ."],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of a folder, whose report names the corpus `phrases`."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    tokenizers = [Tokenizer.train(lines, level="word") for lines in LINES.values()]
    sizes = {"units": 37, "embedding_size": 31, "readout_size": 29, "attention_units": 41, "decoder_units": 43}
    model = RNNSearch(*(tokenizer.vocabulary_size for tokenizer in tokenizers), **sizes)
    Translator(model, *tokenizers).save_to_preset(folder)
    report = {
        **{"recipe": "rnnsearch", "corpus": "phrases", "source": "de", "target": "fr", "command": "train", "seed": 0},
        "config": {"length_penalty": 1.0, "metric": "bleu", "tokenize": "13a"},
        **{"beam_size": 2, "history": {"loss": [1.0]}, "bleu": {"score": 99.0, "signature": "of the run"}},
    }
    (folder / "report.json").write_text(json.dumps(report))
    return folder


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "REGISTRY", tmp_path / "registry.json")
    registry.REGISTRY.write_text('{"address": null, "presets": {}}')
    monkeypatch.setattr(publish, "PRESETS", tmp_path / "presets")
    monkeypatch.setattr(registry, "CHECKOUT", tmp_path / "presets")
    monkeypatch.delenv(registry.VARIABLE, raising=False)
    corpus = corpora.Corpus("phrases", "de", "fr", {"test": tuple(LINES.values())})
    monkeypatch.setattr(corpora, "load", lambda *_, **__: corpus)
    return tmp_path / "presets"


@pytest.mark.parametrize("dtype", ["int8", None])
def test_a_run_is_published(run, place, dtype, capsys):
    assert publish.main([str(run), "tiny", *(["--dtype", dtype] if dtype else [])]) == 0
    assert "bytes, bleu" in capsys.readouterr().out
    entry = saving.presets()["tiny"]
    assert entry.files == files.digests(place / "tiny")
    assert {"README.md", "report.json", "model.keras", "translator.json"} < entry.files.keys()
    assert (entry.dtype, entry.licence, entry.task) == (dtype or "float32", "apache-2.0", "translation")

    loaded = Translator.from_preset("tiny")
    expected = bleu([t.text for t in loaded.generate(LINES["de"], beam_size=2)], LINES["fr"])
    assert (entry.score, entry.signature) == (round(expected.score, 2), expected.signature), "not the run's own"
    assert entry.parameters == sum(int(np.prod(weight.shape)) for weight in loaded.model.weights)
    card = (place / "tiny" / "README.md").read_text()
    assert 'from_preset("tiny")' in card
    assert "Licence: apache-2.0" in card
    assert expected.signature.replace("|", "\\|") in card
    report = json.loads((place / "tiny" / "report.json").read_text())
    assert report["config"]["length_penalty"] == 1.0
    assert "history" not in report


def test_a_model_of_letters_is_published_with_a_lexicon(run, place, tmp_path, monkeypatch):
    """Its tokenizer cuts words, and the report of its run has the settings of pronunciation."""
    corpus = corpora.Corpus("phrases", "de", "fr", {"test": (["a b", "b a"], ["A B", "B A"])})
    monkeypatch.setattr(corpora, "load", lambda *_, **__: corpus)
    tokenizers = [Tokenizer.train(lines, level="symbol") for lines in corpus.splits["test"]]
    model = RNNSearch(6, 6, units=3, embedding_size=5, readout_size=7, attention_units=4, decoder_units=6)
    Translator(model, *tokenizers).save_to_preset(tmp_path / "run")
    report = json.loads((run / "report.json").read_text())
    report["config"]["metric"] = "wer"
    (tmp_path / "run" / "report.json").write_text(json.dumps(report))
    lexicon = tmp_path / "lexicon.xz"
    lexicon.write_bytes(lzma.compress(b"ab Q\n"))
    assert publish.main([str(tmp_path / "run"), "tiny", "--lexicon", str(lexicon)]) == 0
    assert saving.presets()["tiny"].files == files.digests(place / "tiny")
    g2p = G2P.from_preset("tiny")
    assert (g2p("AB"), g2p.translator.source_tokenizer.pieces("Ba")) == ("Q", ["b", "a"])


def test_what_cannot_be_published_is_refused_before_any_work(run, place, tmp_path, monkeypatch, capsys):
    def refused(folder, name, part):
        assert publish.main([str(folder), name]) == 2
        error = capsys.readouterr().err
        assert error.startswith("recipes.publish: Expected")
        assert part in error

    refused(run, "../tiny", "lower-case letters")
    refused(tmp_path / "none", "tiny", "no report.json")
    assert publish.main([str(run), "taken"]) == 0
    refused(run, "taken", "one that is registered")
    report = json.loads((run / "report.json").read_text())
    for corpus, part in (("multi30k",) * 2, ("phrases+news-en-fr", "news-en-fr"), ("my_folder",) * 2):
        (tmp_path / "report.json").write_text(json.dumps(report | {"corpus": corpus}))
        refused(tmp_path, "tiny", part)
    monkeypatch.setattr(publish, "LARGEST", 1000)
    refused(run, "tiny", "1,000 bytes")
    assert list(saving.presets()) == ["taken"]
    assert [path.name for path in place.iterdir()] == ["taken"]


def test_a_run_that_was_killed_before_its_entry_is_published_anew(run, place, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publish, "add_preset", interrupted)
        assert publish.main([str(run), "tiny"]) == 130
    assert (place / "tiny").exists()
    assert publish.main([str(run), "tiny", "--dtype", "int8"]) == 0
    assert saving.presets()["tiny"].files == files.digests(place / "tiny")


def test_every_named_corpus_has_an_origin():
    for name in corpora.names():
        (origin,) = named_corpora.origins(name)
        assert origin.title != f"The folder {name}", name
    licences = [origin.licence for origin in named_corpora.origins("phrases+g2p/dut+mine")]
    assert licences == ["apache-2.0", "cc-by-sa-3.0", None]
