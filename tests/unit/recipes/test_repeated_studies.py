"""The studies that repeat runs with several seeds: statistics by hand, runs and their reports."""

import json
import statistics

import pytest

from keras_attn.training import override
from recipes import nematus
from recipes.pages import studies as study_sections
from recipes.studies import ensembles, ingredients, low_resource, options, repeated
from tests.unit.recipes.small_study import command_line

TINY = ["level=word", "batch_size=16", "validation_sentences=7", "units=7", "embedding_size=8"]
NEMATUS = [*TINY, "nematus.attention_units=5"]


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (10, 2.228), (22, 2.074), (120, 1.980)]
)
def test_quantiles_are_those_of_the_printed_tables(freedom, expected):
    assert repeated.student_quantile(freedom) == pytest.approx(expected, abs=0.008)


def test_the_deviation_is_pooled_by_hand():
    # Around the means 2 and 12: squares 1 + 1 and 4 + 4, two degrees of freedom; a single score adds neither.
    spread, freedom = repeated.pooled_deviation([[1.0, 3.0], [10.0, 14.0], [7.0]])
    assert (spread, freedom) == (pytest.approx(5**0.5), 2)
    assert repeated.half_width((spread, freedom), 2) == pytest.approx(4.303 * (5 / 2) ** 0.5, abs=0.005)
    assert repeated.half_width((spread, freedom), 2, 1) == pytest.approx(4.303 * 7.5**0.5, abs=0.005)
    assert repeated.half_width(repeated.pooled_deviation([[1.0], [2.0]]), 1) is None


def report_of(folder):
    text = (folder / "report.json").read_text()
    assert str(folder) not in text
    return json.loads(text)


def check_drawing(report, folder, name):
    """The figure follows from the report."""
    study_sections.draw(report, folder / "drawn")
    assert (folder / "drawn.svg").read_bytes() == (folder / f"{name}.svg").read_bytes()


def test_ingredients_are_compared_with_the_base(corpus, tmp_path, in_process, monkeypatch):
    some = "base", "word-dropout", "recurrent-dropout"
    monkeypatch.setattr(ingredients, "INGREDIENTS", {name: ingredients.INGREDIENTS[name] for name in some})
    out, work = tmp_path / "out", in_process(most=1)
    line = command_line(corpus, out, *NEMATUS, "--ingredients", "word-dropout", steps=2)
    assert ingredients.main(line) == 130, "killed before the second run"
    work.most = 10**9
    assert ingredients.main(line) == 0
    assert [row["interval"] for row in report_of(out)["ingredients"]] == [None, None]
    assert ingredients.main([*line, "--seeds", "2"]) == 0
    names = [f"{name}-seed-{seed}" for seed in (0, 1) for name in ("base", "word-dropout")]
    assert work.done == names, "each is trained once"

    report, trained = report_of(out), [json.loads((out / name / "report.json").read_text()) for name in names]
    assert (report["seeds"], report["max_steps"]) == (2, 2)
    assert report["command"].startswith("python -m recipes.studies.ingredients --corpus digits --source en --target fr")
    assert "--seeds 2 --ingredients base,word-dropout --set level=word" in report["command"]
    assert [(one["seed"], one["config"]["word_dropout"]) for one in trained] == [(0, 0), (0, 0.1), (1, 0), (1, 0.1)]
    for number, one in enumerate(report["ingredients"]):
        scores = [run["bleu"]["score"] for run in trained[number::2]]
        assert one["bleu"]["scores"] == [round(score, 2) for score in scores]
        assert (one["bleu"]["mean"], one["updates"]) == (round(statistics.mean(scores), 2), 2)
    base, row = report["ingredients"]
    assert row["difference"] == round(row["bleu"]["mean"] - base["bleu"]["mean"], 2)
    check_drawing(report, out, "ingredients")

    another, earlier = tmp_path / "another", ["--earlier", str(out / "report.json")]
    line = command_line(corpus, another, *NEMATUS, "--ingredients", "recurrent-dropout", "--seeds", "2", steps=2)
    assert ingredients.main([*line, *earlier]) == 0
    assert work.done[4:] == ["recurrent-dropout-seed-0", "recurrent-dropout-seed-1"], "no other base"
    both = report_of(another)
    assert [one["name"] for one in both["ingredients"]] == ["base", "word-dropout", "recurrent-dropout"]
    scores = [one["bleu"]["scores"] for one in both["ingredients"]]
    for one in both["ingredients"]:
        assert one == one | repeated.difference(one, base, scores)
        assert one["bleu"]["interval"] == repeated.half_width(repeated.pooled_deviation(scores), 2)
    assert [one["command"] for one in both["earlier"]] == [report["command"]]
    assert ingredients.main([*line, *earlier, "--seeds", "3"]) == 2, "means over more seeds than the earlier rows"


@pytest.mark.filterwarnings("ignore:No installed font has the characters:UserWarning")  # bytes, of untrained models
def test_low_resource_systems_read_equally_many_sentences(corpus, tmp_path, in_process):
    out, work = tmp_path / "out", in_process()
    own = ["word_dropout=0.3", "source_vocabulary_size=269", "target_vocabulary_size=290"]
    sizes = ["source_vocabulary_size=270", "target_vocabulary_size=300"]
    line = command_line(corpus, out, *sizes, *NEMATUS[1:], "--sizes", "8", "--adapted", *own, steps=2)
    for _ in range(2):
        assert low_resource.main(line) == 0
    names = ["plain-8-seed-0", "adapted-8-seed-0"]
    assert work.done == names, "nothing is trained twice"

    text = (out / "train-8" / "train.fr").read_text().splitlines()
    assert len(text) == 8
    assert set(text) <= set((corpus / "train.fr").read_text().splitlines())
    assert (out / "train-8" / "test.en").read_text() == (corpus / "test.en").read_text()

    report = report_of(out)
    assert report["corpus"] == "digits"
    assert f"--sizes 8 --adapted {' '.join(own)} --set source_vocabulary_size=270" in report["command"]
    # Half of the updates for a quarter of the pairs; the adapted system has batches of half the size.
    assert [row["updates"] for row in report["systems"]] == [1, 2]
    plain, adapted = (json.loads((out / name / "report.json").read_text())["config"] for name in names)
    for name, expected in (
        ("batch_size", (16, 8)),
        ("word_dropout", (0, 0.3)),
        ("bpe_dropout", (0, 0.1)),
        ("source_vocabulary_size", (270, 269)),
    ):
        assert (plain[name], adapted[name]) == expected, name
    means = [row["bleu"]["mean"] for row in report["systems"]]
    gain = {"size": 8, "difference": round(means[1] - means[0], 2), "interval": None}
    assert report["gains"] == [gain]
    check_drawing(report, out, "low_resource")


def test_the_settings_of_a_named_corpus_are_those_of_its_recipe():
    """A part of a named corpus is a folder, for which recipes have their defaults."""
    assert "source_vocabulary_size=6000" in options.settings_for("nematus", "multi30k")
    assert "memory_dropout=0.3" in options.settings_for("nematus", "multi30k")
    assert options.settings_for("nematus", "a folder") == []


@pytest.mark.parametrize(("size", "vocabulary"), [(5000, 2000), (10000, 3000), (29000, 5000)])
def test_adapted_systems_have_smaller_vocabularies_for_less_text(size, vocabulary):
    settings = low_resource.adapted(size, 7, options.settings_for("nematus", "multi30k"), ["word_dropout=0.3"])
    config = override(nematus.Config(), list(settings))
    assert config.source_vocabulary_size == config.target_vocabulary_size == vocabulary
    assert (config.max_steps, config.batch_size, config.word_dropout, config.memory_dropout) == (14, 48, 0.3, 0.3)


def test_ensembles_of_the_first_seeds_are_scored(corpus, tmp_path, in_process):
    out, work = tmp_path / "out", in_process()
    line = command_line(corpus, out, *TINY, "decoder_units=8", "readout_size=8", "attention_units=5", steps=2)
    for seeds in ("2", "3"):
        assert ensembles.main([*line, "--recipe", "rnnsearch", "--seed", "3", "--seeds", seeds]) == 0
    names = ["rnnsearch-seed-3", "rnnsearch-seed-4", "ensemble-seeds-3-4", "rnnsearch-seed-5", "ensemble-seeds-3-5"]
    assert work.done == names, "each is made once"

    report = report_of(out)
    assert "--seeds 3 --recipe rnnsearch --set" in report["command"]
    runs = [json.loads((out / name / "report.json").read_text()) for name in names if "search" in name]
    single = report["single"]["bleu"]
    assert single["scores"] == [round(run["bleu"]["score"], 2) for run in runs]
    assert [row["models"] for row in report["ensembles"]] == [2, 3]
    for row, name in zip(report["ensembles"], names[2::2], strict=True):
        (scored,) = json.loads((out / f"{name}.json").read_text())["systems"]
        assert len(scored["ensemble"]) == row["models"] - 1
        assert row["bleu"] == round(scored["bleu"]["score"], 2)
        assert row["gain"] == round(row["bleu"] - single["mean"], 2)
