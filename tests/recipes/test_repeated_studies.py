"""The studies that repeat runs with several seeds: statistics by hand, what is trained, reports, pages, refusals."""

import json
import statistics

import pytest

from keras_attn.training import override
from recipes import nematus
from recipes.pages import studies as study_sections
from recipes.studies import ensembles, ingredients, low_resource, options, repeated
from tests.recipes.small_study import write_digits

pytestmark = pytest.mark.once

TINY = [
    "source_vocabulary_size=270",
    "target_vocabulary_size=300",
    "batch_size=16",
    "validation_sentences=7",
    "nematus.units=7",
    "embedding_size=8",
    "attention_units=5",
]


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


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("corpora") / "digits")


def command_line(corpus, out, *more):
    where = ["--corpus", str(corpus), "--source", "en", "--target", "fr", "--out", str(out)]
    return [*where, "--max-steps", "6", "--beam", "1", "--set", *TINY, *more]


@pytest.mark.slow
def test_ingredients_are_compared_with_the_base(corpus, tmp_path, in_process):
    line = command_line(corpus, tmp_path / "out", "--ingredients", "word-dropout")
    names = [f"{name}-seed-{seed}" for seed in (0, 1) for name in ("base", "word-dropout")]
    first = in_process(most=1)
    assert ingredients.main(line) == 130, "killed before the second run"
    work = in_process()
    assert ingredients.main(line) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [row["interval"] for row in report["ingredients"]] == [None, None]
    assert "One seed" in study_sections.section("x/y", report)[0]
    more = in_process()
    assert ingredients.main([*line, "--seeds", "2"]) == 0
    assert [name for _, name in first.done + work.done + more.done] == names, "each is trained once"

    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["seeds"], report["max_steps"]) == (2, 6)
    assert report["command"].startswith("python -m recipes.studies.ingredients --corpus digits --source en --target fr")
    assert "--seeds 2 --ingredients base,word-dropout --set source_vocabulary_size=270" in report["command"]
    assert str(tmp_path) not in (tmp_path / "out" / "report.json").read_text()
    trained = {name: json.loads((tmp_path / "out" / name / "report.json").read_text()) for name in names}
    assert [one["seed"] for one in trained.values()] == [0, 0, 1, 1]
    assert [one["config"]["word_dropout"] for one in trained.values()] == [0, 0.1, 0, 0.1]
    base, row = report["ingredients"]
    for number, one in enumerate((base, row)):
        scores = [trained[name]["bleu"]["score"] for name in names[number::2]]
        assert one["bleu"]["scores"] == [round(score, 2) for score in scores]
        assert one["bleu"]["mean"] == round(statistics.mean(scores), 2)
        assert one["updates"] == 6
    assert row["difference"] == round(row["bleu"]["mean"] - base["bleu"]["mean"], 2)
    assert (tmp_path / "out" / "ingredients.svg").read_text().startswith("<?xml")
    study_sections.draw(report, tmp_path / "drawn")
    assert (tmp_path / "drawn.svg").read_bytes() == (tmp_path / "out" / "ingredients.svg").read_bytes()
    text, figure = study_sections.section("digits/ingredients", report)
    assert "Up to 2 seeds" in text
    assert f"from word-dropout with {row['difference']:+.2f} to" in figure

    another = command_line(corpus, tmp_path / "another", "--ingredients", "recurrent-dropout", "--seeds", "2")
    rest = in_process()
    assert ingredients.main([*another, "--earlier", str(tmp_path / "out" / "report.json")]) == 0
    assert [name for _, name in rest.done] == ["recurrent-dropout-seed-0", "recurrent-dropout-seed-1"], "no other base"
    both = json.loads((tmp_path / "another" / "report.json").read_text())
    assert [one["name"] for one in both["ingredients"]] == ["base", "recurrent-dropout", "word-dropout"]
    assert "--ingredients recurrent-dropout" in both["command"]
    scores = [one["bleu"]["scores"] for one in both["ingredients"]]
    for one in both["ingredients"]:
        assert one == one | repeated.difference(one, base, scores)
        assert one["bleu"]["interval"] == repeated.half_width(repeated.pooled_deviation(scores), 2)
    assert [one["command"] for one in both["earlier"]] == [report["command"]]
    with_three = [*another, "--seeds", "3", "--earlier", str(tmp_path / "out" / "report.json")]
    assert ingredients.main(with_three) == 2, "means over more seeds than the earlier rows"


@pytest.mark.slow
def test_low_resource_systems_read_equally_many_sentences(corpus, tmp_path, in_process):
    own = ["word_dropout=0.3", "source_vocabulary_size=269", "target_vocabulary_size=290"]
    line = command_line(corpus, tmp_path / "out", "--sizes", "32,8", "--adapted", *own)
    work = in_process()
    assert low_resource.main(line) == 0
    names = ["plain-8-seed-0", "adapted-8-seed-0", "plain-32-seed-0", "adapted-32-seed-0"]
    assert [name for _, name in work.done] == names
    assert low_resource.main(line) == 0
    assert len(work.done) == 4, "nothing is trained twice"

    text = {size: (tmp_path / "out" / f"train-{size}" / "train.fr").read_text().splitlines() for size in (8, 32)}
    whole = (corpus / "train.fr").read_text().splitlines()
    assert text[32] == whole
    assert len(text[8]) == 8
    assert set(text[8]) <= set(whole)
    assert (tmp_path / "out" / "train-8" / "test.en").read_text() == (corpus / "test.en").read_text()

    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert str(tmp_path) not in (tmp_path / "out" / "report.json").read_text()
    assert report["corpus"] == "digits"
    assert f"--sizes 32,8 --adapted {' '.join(own)} --set source_vocabulary_size=270" in report["command"]
    rows = {row["name"]: row for row in report["systems"]}
    # Half of the updates for a quarter of the pairs; the adapted system has batches of half the size.
    assert {name: row["updates"] for name, row in rows.items()} == {
        "plain-8": 3,
        "adapted-8": 6,
        "plain-32": 6,
        "adapted-32": 12,
    }
    configs = [json.loads((tmp_path / "out" / name / "report.json").read_text())["config"] for name in names]
    assert [config["batch_size"] for config in configs] == [16, 8, 16, 8]
    assert [config["word_dropout"] for config in configs] == [0, 0.3, 0, 0.3]
    assert [config["bpe_dropout"] for config in configs] == [0, 0.1, 0, 0.1]
    assert [config["units"] for config in configs] == [7] * 4
    assert [config["source_vocabulary_size"] for config in configs] == [270, 269, 270, 269]
    gain = report["gains"][0]
    means = [rows[name]["bleu"]["mean"] for name in ("adapted-8", "plain-8")]
    assert gain == {"size": 8, "difference": round(means[0] - means[1], 2), "interval": None}
    study_sections.draw(report, tmp_path / "drawn")
    assert (tmp_path / "drawn.svg").read_bytes() == (tmp_path / "out" / "low_resource.svg").read_bytes()
    assert f"{gain['difference']:+.2f} with 8, " in study_sections.section("digits/low-resource", report)[0]


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


def test_a_vocabulary_that_the_text_is_too_small_for_is_refused(corpus, tmp_path, in_process, capfd):
    work = in_process()
    line = command_line(corpus, tmp_path / "out", "target_vocabulary_size=6000", "--sizes", "8,32")
    assert low_resource.main(line) == 2
    assert "Expected vocabulary_size of at most" in capfd.readouterr().err
    assert work.done == []


@pytest.mark.parametrize(
    ("study", "more", "message"),
    [
        (ingredients, ["--ingredients", "salt"], "--ingredients among: base,"),
        (ingredients, ["--seeds", "0"], "from 1 to 100. Received: '0'"),
        (ingredients, ["--set", "luong.units=3"], "recipe among: nematus, rnnsearch"),
        (ingredients, ["--set", "metric=wer"], "scored by BLEU. Received: wer"),
        (ensembles, ["--seeds", "1"], "--seeds of at least 2, for an ensemble"),
        (low_resource, ["--sizes", "8,33"], "--sizes from 1 to 32"),
        (low_resource, ["--sizes", "8", "--adapted", "word_dropout=2"], "from 0 to 1. Received: 2"),
    ],
)
def test_bad_options_are_refused_before_anything_is_begun(study, more, message, corpus, tmp_path, capfd):
    try:
        code = study.main(command_line(corpus, tmp_path / "out", *more))
    except SystemExit as ended:  # the parser's
        code = ended.code
    err = capfd.readouterr().err
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_ensembles_of_the_first_seeds_are_scored(corpus, tmp_path, in_process):
    own = ["units=7", "decoder_units=8", "readout_size=8"]
    line = [*command_line(corpus, tmp_path / "out", *own), "--recipe", "rnnsearch", "--seed", "3"]
    line[line.index("nematus.units=7")] = "level=word"
    work = in_process()
    assert ensembles.main([*line, "--seeds", "2"]) == 0
    more = in_process()
    assert ensembles.main([*line, "--seeds", "3"]) == 0
    names = ["rnnsearch-seed-3", "rnnsearch-seed-4", "ensemble-seeds-3-4", "rnnsearch-seed-5", "ensemble-seeds-3-5"]
    assert [name for _, name in work.done + more.done] == names, "each is made once"

    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert str(tmp_path) not in (tmp_path / "out" / "report.json").read_text()
    assert "--seeds 3 --recipe rnnsearch --set" in report["command"]
    runs = [json.loads((tmp_path / "out" / name / "report.json").read_text()) for name in names if "search" in name]
    single = report["single"]["bleu"]
    assert single["scores"] == [round(run["bleu"]["score"], 2) for run in runs]
    assert [row["models"] for row in report["ensembles"]] == [2, 3]
    for row, name in zip(report["ensembles"], ("ensemble-seeds-3-4", "ensemble-seeds-3-5"), strict=True):
        (scored,) = json.loads((tmp_path / "out" / f"{name}.json").read_text())["systems"]
        assert len(scored["ensemble"]) == row["models"] - 1
        assert row["bleu"] == round(scored["bleu"]["score"], 2)
        assert row["gain"] == round(row["bleu"] - single["mean"], 2)
    (text,) = study_sections.section("digits/ensembles", report)
    assert f"One model has {single['mean']:.2f} ± {single['interval']:.2f} BLEU; ΔBLEU is " in text
    assert f", {row['gain']:+.2f} with 3 models" in text
