"""The study of heads: the weights are the model's own, what is counted, its page and figures, refusals."""

import argparse
import json
import shutil

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import Tokenizer, Translator, models
from keras_attn.evaluation import bleu
from recipes.pages import studies as pages
from recipes.studies import figures, heads
from tests.recipes.small_study import write_digits

pytestmark = pytest.mark.once

TRAINED = {"corpus": "digits", "source": "en", "target": "fr", "seed": 0, "parameters": 1}
LINES, LANGUAGES = (3, 1), ("en", "fr")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("heads") / "digits")


@pytest.fixture(scope="module")
def runs(corpus, tmp_path_factory):
    """A model with one attention and one with two layers of two heads, untrained, whose tokens are words."""
    keras.utils.set_random_seed(4)
    tokenizers = [
        Tokenizer.train((corpus / f"train.{one}").read_text().splitlines(), level="word") for one in LANGUAGES
    ]
    sizes = [tokenizer.vocabulary_size for tokenizer in tokenizers]
    narrow = {"units": 6, "embedding_size": 5, "readout_size": 4, "initializer": "glorot_uniform"}
    built = {
        "rnnsearch": (models.RNNSearch(*sizes, **narrow, attention_units=7), {}),
        "transformer": (
            models.TransformerSeq2Seq(*sizes, units=8, num_layers=2, num_heads=2, feed_forward_units=9),
            {"num_heads": 2},
        ),
    }
    folder = tmp_path_factory.mktemp("runs")
    for name, (model, config) in built.items():
        report = TRAINED | {"recipe": name, "config": config, "command": f"python -m recipes.train {name}"}
        Translator(model, *tokenizers).save_to_preset(folder / name, report=report)
        (folder / name / "report.json").write_text(json.dumps(report))
    return [folder / name for name in built]


@pytest.fixture(scope="module")
def study(runs, corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("studies") / "heads"
    lines = ["--lines", *map(str, LINES), "--max-words", "9"]
    assert heads.main([*map(str, runs), *lines, "--corpus", str(corpus), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def report(study):
    return json.loads((study / "report.json").read_text())


def pairs(corpus):
    return list(zip(*((corpus / f"test.{one}").read_text().splitlines() for one in LANGUAGES), strict=True))


def align(run, source, target):
    """The model's alignments of each head `(N, T, S)`."""
    translator = Translator.from_preset(run)
    ids = translator.source_tokenizer.encode(source), translator.target_tokenizer.encode(target)
    special = translator.model.source_special_ids, translator.model.target_special_ids
    inputs = [*ids[0], special[0].end], [special[1].start, *ids[1]]
    _, alignments = translator.model.align(*(ops.convert_to_tensor([row]) for row in inputs), each_head=True)
    return np.moveaxis(ops.convert_to_numpy(alignments)[0], 1, 0)


def test_the_weights_are_those_of_the_model(runs, corpus, report):
    for n, line in enumerate(LINES):
        source, target = pairs(corpus)[line - 1]
        assert report["sentences"][n] == {
            "line": line,
            "source": [*source.split(), "</s>"],
            "target": [*target.split(), "</s>"],
        }
        for run, system in zip(runs, report["systems"], strict=True):
            expected = align(run, source, target)
            several = [expected.mean(axis=0), *expected] if len(expected) > 1 else expected
            for one, weights in zip(system["attentions"], several, strict=True):
                np.testing.assert_allclose(heads.weights(one, n), weights, atol=0.00051)


def test_attentions_have_the_names_of_their_layer_and_head(report):
    single, several = report["systems"]
    assert [one["name"] for one in single["attentions"]] == [""]
    names = ["mean of 4 heads"] + [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)]
    assert [one["name"] for one in several["attentions"]] == names
    assert (heads.named(single), heads.named(several)) == ("rnnsearch", "transformer, mean of 4 heads")


def test_words_on_the_same_source_word_are_counted_by_hand(runs, corpus, report):
    chosen = [pair for pair in pairs(corpus) if len(pair[0].split()) <= 9]
    assert report["measured"] == len(chosen) == 4
    first, other = ([align(run, *pair) for pair in chosen] for run in runs)
    for number in range(4):
        same = [
            a == b
            for one, two in zip(first, other, strict=True)
            for a, b in zip(one[0][:-1].argmax(axis=1), two[number][:-1].argmax(axis=1), strict=True)
        ]
        one = report["systems"][1]["attentions"][1 + number]
        assert one["same_word"] == pytest.approx(100 * sum(same) / len(same), abs=0.051)
        largest = np.concatenate([two[number].max(axis=1) for two in other]).mean()
        assert one["largest_weight"] == pytest.approx(largest, abs=0.00051)
    assert report["systems"][0]["attentions"][0]["same_word"] == 100


def test_bleu_is_that_of_the_page(runs, corpus, report):
    """By the beam that it names; greedy search has another."""
    sources, references = zip(*(pair for pair in pairs(corpus) if len(pair[0].split()) <= 9), strict=True)
    for run, system in zip(runs, report["systems"], strict=True):
        found = Translator.from_preset(run).generate(sources, beam_size=report["beam_size"])
        assert system["bleu"]["score"] == round(bleu([one.text for one in found], references).score, 2)


def test_the_command_is_the_one_that_was_run(report, tmp_path):
    start = "python -m recipes.studies.heads rnnsearch transformer --lines 3 1"
    assert report["command"] == f"{start} --max-words 9 --corpus digits"
    runs = [tmp_path / "rnnsearch", tmp_path / "transformer"]
    given = argparse.Namespace(runs=runs, lines=[3, 1], max_words=None, corpus=None, split="val")
    assert heads.command_line(given, "digits") == f"{start} --split val"


def test_the_page_and_the_figures_have_each_model_and_each_head(study, report, tmp_path):
    page = (study / "heads.html").read_text()
    assert page.count("<section>") == 2
    assert page.count("<article ") == 2 * (1 + 5)
    assert "transformer, layer 2, head 1" in page
    assert len(figures.heads(report, 0).axes) == 2
    figure = figures.heads(report, 1, tmp_path / "heads.svg", of="transformer")
    assert [text.get_text() for text in figure.texts] == [f"layer {n}, head {m}" for n in (1, 2) for m in (1, 2)]
    rows = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert rows == [report["sentences"][1]["target"], [""] * len(rows[0])] * 2
    assert (tmp_path / "heads.svg").stat().st_size > 1000


def test_the_results_page_has_each_model(report):
    (text,) = pages.section("digits/heads", report)
    assert "(reports/digits/heads.html)" in text
    assert "4 sentences of at most 9 words" in text
    assert all(f"{one['name']} {one['bleu']['score']:.1f} BLEU" in text for one in report["systems"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{0}", "{tmp}", "--lines", "1"], "different runs"),
        (["{0}", "--lines", "1", "8"], "--lines of test, from 1 to 7, that are not blank. Received: 8"),
        (["{0}", "--lines", "1", "2", "1"], "--lines that differ. Received: 1 2 1"),
        (["{0}", "--lines", "1", "--split", "dev"], "among: train, val, test"),
        (["{0}", "--lines", "1", "--max-words", "1"], "at most 1 words"),
    ],
)
def test_refuses_with_a_sentence(arguments, message, runs, corpus, tmp_path, capfd):
    where = ["--corpus", str(corpus), "--out", str(tmp_path / "out")]
    (tmp_path / "empty").mkdir()
    chosen = [one.format(*runs, tmp=tmp_path / "empty") for one in arguments]
    assert heads.main([*where, *chosen]) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_runs_of_other_tags_are_refused(runs, corpus, tmp_path, capfd):
    tagged = shutil.copytree(runs[0], tmp_path / "tagged")
    report = json.loads((tagged / "report.json").read_text())
    (tagged / "report.json").write_text(json.dumps(report | {"tags": "target"}))
    arguments = [str(runs[0]), str(tagged), "--lines", "1", "--corpus", str(corpus), "--out", str(tmp_path / "out")]
    assert heads.main(arguments) == 2
    assert "the same --tags" in capfd.readouterr().err
    assert heads.main(arguments[1:]) == 2
    assert "a source vocabulary with the tag <2fr>" in capfd.readouterr().err
