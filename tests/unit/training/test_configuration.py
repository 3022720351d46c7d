"""Settings of a run: from the command line, a file and the recipe; the command and the fields of its report."""

import dataclasses
import json
import re
import sys
import types
from pathlib import Path

import pytest

from keras_attn.cli import train
from keras_attn.text import Tokenizer
from keras_attn.training import config, corpora, export_arguments, fitting, length_penalty, plan, read_report, report
from recipes import rnnsearch


def test_the_command_of_a_report_can_be_repeated():
    for options in (
        "--minutes 57 --seed 1234567 --beam 1",
        "--minutes 0.25 --seed 0 --set units=8 epochs=7",
    ):
        line = f"rnnsearch --corpus phrases {options}"
        arguments = vars(train.parser().parse_args(line.split()))
        assert plan.command_line(plan.make_plan(**arguments)) == f"keras-attn train {line}"
    assert plan.command_line(plan.make_plan("rnnsearch", epochs=3)).endswith(" --seed 0 --set epochs=3")


def test_an_unknown_setting_is_answered_with_the_most_similar_names():
    """Not with all of them, of which the two modules have lists with comments."""
    names = [field.name for field in dataclasses.fields(rnnsearch.Config)]
    listed = re.escape(f"All {len(names)} are listed in recipes.rnnsearch and keras_attn.training.config.")
    for wrong, expected in (
        ("smoothing", "such as label_smoothing"),
        ("dropout", "such as bpe_dropout, word_dropout, "),
        ("lerning_rate", "such as learning_rate"),
        ("xyz", re.escape("a setting. ")),
    ):
        with pytest.raises(ValueError, match=f"{expected}.*Received: '{wrong}'. {listed}$") as raised:
            config.override(rnnsearch.Config(), [f"{wrong}=1"])
        assert sum(name in str(raised.value).replace(",", "").split() for name in names) <= 5


def test_override_reads_the_type_of_the_field():
    changes = ["units=3", "learning_rate=1", "shared_vocabulary=true", "tie_embeddings=None", "level=word"]
    changed = config.override(rnnsearch.Config(), [*changes, "source_vocabulary_size=none"])
    found = changed.units, changed.learning_rate, changed.shared_vocabulary, changed.tie_embeddings, changed.level
    assert found == (3, 1.0, True, None, "word")
    assert changed.source_vocabulary_size is None
    with pytest.raises(ValueError, match="type int or none"):
        config.override(rnnsearch.Config(), ["source_vocabulary_size=8k"])
    with pytest.raises(ValueError, match="name=value"):
        config.override(rnnsearch.Config(), ["units"])


def test_pairs_that_max_words_leaves_out_are_counted(tmp_path, capsys):
    lines = ["a b", "a b c"]
    corpus = corpora.Corpus("own", "de", "en", dict.fromkeys(("train", "val"), (lines, lines)))
    tokenizers = [Tokenizer.train(lines, level="word")] * 2
    fitting.datasets(config.TrainingConfig(max_words=2), corpus, tokenizers, 0, tmp_path)
    expected = "Note: 1 of 2 training pairs have a side of more words than max_words=2 and are left out.\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("name", ["embedding_dropout", "memory_dropout", "output_dropout", "word_dropout"])
def test_rates_out_of_range_are_named(name):
    for rate in (-0.1, 1.5):
        with pytest.raises(ValueError, match=f"Expected `{name}` from 0 to 1. Received: {rate}"):
            config.override(rnnsearch.Config(), [f"{name}={rate}"])


def test_settings_come_from_a_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'patience = 3\n[text]\nlevel = "word"\nsource_vocabulary_size = "none"\n'
        "[model]\nunits = 5\nread_previous_state = true\n"
        "[optimisation]\nlearning_rate = 1\nepochs = 9\n[scoring]\nlength_penalty = 0.5\n"
    )
    chosen = plan.make_plan("rnnsearch", config_file=path, epochs=2, changes=["units=7"])
    wanted = {"level": "word", "source_vocabulary_size": None, "units": 7, "read_previous_state": True}
    wanted |= {"patience": 3, "learning_rate": 1.0, "epochs": 2, "length_penalty": 0.5}
    assert {name: getattr(chosen.config, name) for name in wanted} == wanted
    assert plan.make_plan("rnnsearch", changes=chosen.changes).config == chosen.config, "the report's command"
    for text, message in (("[model]\nunits = 5.5", "--set units to be a value of type int"), ("\xff", "to be TOML")):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(ValueError, match=message):
            plan.make_plan("rnnsearch", config_file=path)


def test_settings_come_from_a_run(tmp_path):
    changes = ["units=7", "source_vocabulary_size=none", "read_previous_state=true", "learning_rate=0.5"]
    of_run = plan.make_plan("rnnsearch", changes=changes).config
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"recipe": "rnnsearch", "config": dataclasses.asdict(of_run)}))
    again = plan.make_plan("rnnsearch", config_file=path, changes=["units=8"])
    assert again.config == dataclasses.replace(of_run, units=8)
    assert len(again.changes) <= 5, "those of the recipe are left out"
    for text in ("{", "[]", '{"config": 3}', '{"corpus": "x"}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"to be a run.json or report.json\."):
            plan.make_plan("rnnsearch", config_file=path)


def test_a_recipe_is_a_name_a_file_or_a_module(tmp_path, monkeypatch):
    assert plan.load_recipe("rnnsearch") is plan.load_recipe("recipes.rnnsearch") is rnnsearch
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    text = Path(rnnsearch.__file__).read_text("utf-8")
    (tmp_path / "my_search.py").write_text(text.replace("units: int = 256", "units: int = 3"), "utf-8")
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "other.py").write_text(text, "utf-8")
    mine = plan.make_plan("my_search.py", corpus="other.tsv")
    assert (mine.config.units, mine.out, mine.recipe_name) == (3, Path("runs/my_search"), "my_search.py")
    assert plan.make_plan("my.other", corpus="other.tsv").config.units == 256
    for wrong in ("nosuch.py", "my.nosuch", "nosuch.module", "my", "config", ""):
        with pytest.raises(ValueError, match=r"Expected a recipe among: g2p, .*, transformer; or a module or file"):
            plan.load_recipe(wrong)


def test_a_configuration_is_found_by_name_or_by_pattern():
    configs = {"b/c": 1, "b/*": 2, "b/d": 3, "*/c": 4}
    found = [config.config_for(configs, name) for name in ("b/c", "b/d", "b/x", "b/x+b/y", "a/c", "b", "B/x")]
    assert found == [1, 3, 2, 2, 4, None, None]
    weighted = [config.config_for(configs, name) for name in ("b/c:2", "b/x:3+b/y:1", "a:1+b:2")]
    assert weighted == [1, 2, None], "weights do not count"
    chosen = plan.make_plan("nematus", corpus="g2p/ice", changes=["units=8"]).config
    assert (chosen.level, chosen.metric, chosen.units) == ("symbol", "wer", 8)


def test_an_average_over_more_than_a_fifth_of_a_run_is_pointed_out():
    assert fitting.note_on_average(0.998, updates=2500) is None, "the last fifth"
    assert fitting.note_on_average(0.9, updates=50) is None
    assert fitting.note_on_average(0.998, updates=1500) == (
        "Note: ema_decay=0.998 averages the weights of about the last 500 updates, and the run has 1,500. For so few "
        "set it to 0.9933."
    )
    assert fitting.note_on_average(0.9999, updates=30000).endswith("set it to 0.9997.")


def test_translations_are_read_as_they_were_written(tmp_path):
    sides = ["a\rb", "c\u2028d"], ["e", ""], ["f\r", "g h"]
    translations = [types.SimpleNamespace(text=text) for text in ("f\r", "g\nh")]
    report.write_translations(tmp_path / "translations.txt", *sides[:2], translations)
    assert report.read_translations(tmp_path / "translations.txt") == list(zip(*sides, strict=True))
    for content in (b"[1]", b"source: \xff\n"):
        (tmp_path / "translations.txt").write_bytes(content)
        with pytest.raises(ValueError, match=r"a run's translations\. It is truncated or changed"):
            report.read_translations(tmp_path / "translations.txt")


WHOLE = {"corpus": "phrases", "source": "en", "target": "fr", "config": {"length_penalty": 0.5, "metric": "wer"}}


def test_a_report_is_read_and_a_preset_without_one_has_an_empty_one(tmp_path):
    assert read_report(tmp_path) == {"corpus": None, "source": None, "target": None, "config": {}}
    assert length_penalty(tmp_path, None) == 1.0
    (tmp_path / "translations.txt").write_bytes(b"source: a\xff b\n")
    assert export_arguments(tmp_path)["sentences"] == ["a\ufffd b"]
    (tmp_path / "report.json").write_text(json.dumps(WHOLE))
    assert read_report(tmp_path) == WHOLE
    assert length_penalty(tmp_path, None) == 0.5
    assert length_penalty(tmp_path, 2.0) == 2.0


def test_of_each_of_several_word_lists_a_report_has_both_error_rates():
    splits = {"test": (["cat", "dog"], ["K AE T", "D AO G"])}
    lists = corpora.Corpus("a+b", "letters", "phones", splits, parts=(("a", 1), ("b", 1)))
    found = [types.SimpleNamespace(text=text) for text in ("K AE T", "D AO K")]
    scores = report._by_corpus(lists, config.TrainingConfig(metric="wer"), found)
    assert [(one["wer"]["score"], one["per"]["score"]) for one in scores] == [(0, 0), (100, pytest.approx(33.33))]


@pytest.mark.parametrize("content", [b"", b"[1]", b"\xff", b"[" * 100_000])
def test_a_damaged_report_is_refused(content, tmp_path):
    (tmp_path / "report.json").write_bytes(content)
    with pytest.raises(ValueError, match="It is truncated or changed"):
        read_report(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("corpus", 5),
        ("from_preset", "first"),
        ("from_preset", {"name": "first", "digest": None}),
        ("tags", True),
        ("config", None),
        ("length_penalty", "1.0"),
        ("tokenize", 13),
    ],
)
def test_a_damaged_field_is_named(name, value, tmp_path):
    report = WHOLE | ({name: value} if name not in ("length_penalty", "tokenize") else {"config": {name: value}})
    (tmp_path / "report.json").write_text(json.dumps(report))
    with pytest.raises(ValueError, match=f"to be a run's report. Changed: {name}$"):
        length_penalty(tmp_path, None)
