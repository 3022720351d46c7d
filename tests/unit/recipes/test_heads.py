"""The study of heads: the weights are the model's own, the counts, its page and figures."""

import argparse
import json

import numpy as np
import pytest
from keras import ops

from keras_attn import Translator
from keras_attn.evaluation import bleu
from recipes.studies import figures, heads, options

LINES = (3, 1)


@pytest.fixture(scope="module")
def study(runs, corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("studies") / "heads"
    lines = ["--lines", *map(str, LINES), "--max-words", "9"]
    assert heads.main([*map(str, runs), *lines, "--corpus", str(corpus), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def report(study):
    return json.loads((study / "report.json").read_text())


@pytest.fixture(scope="module")
def pairs(corpus):
    return list(zip(*((corpus / f"test.{one}").read_text().splitlines() for one in ("en", "fr")), strict=True))


@pytest.fixture(scope="module")
def alignments(runs, pairs):
    """By model and sentence, the alignments of each head (N, T, S)."""
    found = []
    for run in runs:
        translator = Translator.from_preset(run)
        start, end = translator.model.target_special_ids.start, translator.model.source_special_ids.end
        found.append([])
        for source, target in pairs:
            ids = (
                [*translator.source_tokenizer.encode(source), end],
                [start, *translator.target_tokenizer.encode(target)],
            )
            _, weights = translator.model.align(*(ops.convert_to_tensor([row]) for row in ids), each_head=True)
            found[-1].append(np.moveaxis(ops.convert_to_numpy(weights)[0], 1, 0))
    return found


def test_the_weights_are_those_of_the_model(pairs, alignments, report):
    single, several = report["systems"]
    assert [one["name"] for one in single["attentions"]] == [""]
    names = ["mean of 4 heads"] + [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)]
    assert [one["name"] for one in several["attentions"]] == names
    assert (heads.named(single), heads.named(several)) == ("rnnsearch", "transformer, mean of 4 heads")
    for n, line in enumerate(LINES):
        source, target = ([*side.split(), "</s>"] for side in pairs[line - 1])
        assert report["sentences"][n] == {"line": line, "source": source, "target": target}
        one, heads_of_several = (own[line - 1] for own in alignments)
        expected = [one], [heads_of_several.mean(axis=0)[None], *heads_of_several[:, None]]
        for system, weights in zip(report["systems"], expected, strict=True):
            for attention, (own,) in zip(system["attentions"], weights, strict=True):
                np.testing.assert_allclose(heads.weights(attention, n), own, atol=0.00051)


def test_words_on_the_same_source_word_are_counted_by_hand(pairs, alignments, report):
    chosen = [n for n, pair in enumerate(pairs) if len(pair[0].split()) <= 9]
    assert report["measured"] == len(chosen) == 4
    first, other = ([own[n] for n in chosen] for own in alignments)
    linked = np.concatenate([one[0][:-1].argmax(axis=1) for one in first])
    for number, one in enumerate(report["systems"][1]["attentions"][1:]):
        same = linked == np.concatenate([two[number][:-1].argmax(axis=1) for two in other])
        assert one["same_word"] == pytest.approx(100 * same.mean(), abs=0.051)
        largest = np.concatenate([two[number].max(axis=1) for two in other]).mean()
        assert one["largest_weight"] == pytest.approx(largest, abs=0.00051)
    assert report["systems"][0]["attentions"][0]["same_word"] == 100


def test_bleu_is_that_of_the_beam_that_the_report_names(runs, pairs, report):
    sources, references = zip(*(pair for pair in pairs if len(pair[0].split()) <= 9), strict=True)
    for run, system in zip(runs, report["systems"], strict=True):
        found = Translator.from_preset(run).generate(sources, beam_size=report["beam_size"])
        assert system["bleu"]["score"] == round(bleu([one.text for one in found], references).score, 2)


def test_the_command_is_the_one_that_was_run(report, tmp_path):
    start = "python -m recipes.studies.heads rnnsearch transformer --lines 3 1"
    assert report["command"] == f"{start} --max-words 9 --corpus digits"
    runs = [tmp_path / "rnnsearch", tmp_path / "transformer"]
    corpus = argparse.Namespace(name="digits", source="en", target="fr")
    given = argparse.Namespace(corpus=None, split="val")
    head = options.comparison("heads", given, runs, corpus, ["--lines", "3", "1"])
    assert head["command"] == f"{start} --split val"


def test_the_pages_and_the_figures_have_each_model_and_each_head(study, report, tmp_path):
    page = (study / "heads.html").read_text()
    assert (page.count("<section>"), page.count("<article ")) == (2, 2 * (1 + 5))
    assert "transformer, layer 2, head 1" in page
    assert len(figures.heads(report, 0).axes) == 2
    figure = figures.heads(report, 1, tmp_path / "heads.svg", of="transformer")
    assert [text.get_text() for text in figure.texts] == [f"layer {n}, head {m}" for n in (1, 2) for m in (1, 2)]
    rows = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert rows == [report["sentences"][1]["target"], [""] * len(rows[0])] * 2
    assert (tmp_path / "heads.svg").stat().st_size > 1000
