"""`keras-attn score` and `keras-attn evaluate` on files: what they print, and what they refuse."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_attn.backend import int8_products
from keras_attn.cli import line_streaming
from keras_attn.cli import score as score_command
from keras_attn.cli.main import main
from keras_attn.evaluation import bleu, chrf
from keras_attn.models import RNNSearch
from keras_attn.text import Tokenizer
from keras_attn.translation import Translator, vote

pytestmark = pytest.mark.once

SOURCES = ["eins zwei", "", "drei", "zwei drei eins", "vier"]
TARGETS = ["a b c", "", "d", "b d a c e", "f f f f f"]
OTHERS = ["a b", "", "d", "b d a c", "f"]


def lines(texts) -> str:
    return "".join(f"{text}\n" for text in texts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A preset, files of sentences, and the same as a corpus."""
    folder = tmp_path_factory.mktemp("work")
    keras.utils.set_random_seed(3)
    tokenizers = [Tokenizer.train(texts, level="word") for texts in (SOURCES, TARGETS)]
    sizes = {"units": 5, "embedding_size": 7, "readout_size": 6, "attention_units": 3}
    initializer = keras.initializers.RandomNormal(stddev=0.8)
    model = RNNSearch(*(t.vocabulary_size for t in tokenizers), **sizes, initializer=initializer)
    Translator(model, *tokenizers).save_to_preset(folder / "preset")
    for number, seed in ((1, 2), (2, 4)):  # with votes that are no single model's
        for weight in model.trainable_weights:
            weight.assign(keras.random.normal(weight.shape, stddev=0.8, seed=seed))
        Translator(model, *tokenizers).save_to_preset(folder / f"preset{number}")
    (folder / "corpus").mkdir()
    for name, texts in (("source", SOURCES), ("target", TARGETS), ("other", OTHERS), ("short", SOURCES[:2])):
        (folder / name).write_text(lines(texts))
    (folder / "corpus" / "test.de").write_text(lines(SOURCES))
    (folder / "corpus" / "test.fr").write_text(lines(TARGETS))
    return folder


def run(folder: Path, *arguments) -> int:
    try:
        return main([str(argument).format(f=folder) for argument in arguments])
    except SystemExit as ended:  # argparse's own
        return ended.code


FILES = ("--input", "{f}/source", "--references", "{f}/target")
VOTE = (*FILES, "--ensemble", "{f}/preset", "--combine", "vote")
PAIR = ("--source", "{f}/source", "--target", "{f}/target")


def test_scores_are_those_of_the_translator(folder, capsys):
    options = {"length_penalty": 0.5, "normalization": "average", "coverage_penalty": 0.3}
    flags = ["--length-penalty", 0.5, "--normalization", "average", "--coverage-penalty", 0.3]
    expected = Translator.from_preset(folder / "preset").score(SOURCES, TARGETS, **options)
    for window in (1, 2, 4096):
        assert run(folder, "score", "{f}/preset", *PAIR, *flags, "--window", window, "--batch-size", 2) == 0
        rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        assert [(row[0], row[3]) for row in rows] == [(str(n), text) for n, text in enumerate(TARGETS, start=1)]
        np.testing.assert_allclose([float(row[2]) for row in rows], [one.score for one in expected], atol=1e-4)
        sums = [0 if one.token_log_probs is None else one.token_log_probs.sum() for one in expected]
        np.testing.assert_allclose([float(row[1]) for row in rows], sums, atol=1e-4)


def test_scores_as_json_lines_in_a_file(folder, tmp_path):
    fields = ["--format", "jsonl", "--fields", "text,score,tokens,token_log_probs,alignment"]
    assert run(folder, "score", "{f}/preset", *PAIR, *fields, "--output", tmp_path / "scores") == 0
    first, blank, *_ = (json.loads(line) for line in (tmp_path / "scores").read_text().splitlines())
    assert (first["line"], first["source"], first["text"]) == (1, "eins zwei", "a b c")
    assert first["tokens"] == ["a", "b", "c", "</s>"]
    assert first["source_tokens"] == ["eins", "zwei", "</s>"]
    assert np.shape(first["alignment"]) == (4, 3)
    assert first["log_prob"] == pytest.approx(sum(first["token_log_probs"]), abs=1e-4)
    assert (blank["log_prob"], blank["score"]) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["score", "{f}/preset", "--source", "{f}/source"], "--target"),
        (["score", "{f}/preset", "--source", "{f}/source", "--target", "{f}/none"], "No such file"),
        (["score", "{f}/preset", "--source", "{f}/source", "--target", "{f}/short"], "Received: 5 and 2"),
        (["score", "{f}/corpus", *PAIR], "There is no translator.json"),
        (["score", "{f}/preset", *PAIR, "--fields", "text"], "--format jsonl with --fields"),
        (["score", "{f}/preset", *PAIR, "--normalization", "wu"], "gnmt"),
        (["score", "{f}/preset", *PAIR, "--output", "{f}/source"], "to be a new file"),
        (["evaluate", "{f}/preset"], "Expected --corpus, or --input FILE"),
        (["evaluate", "{f}/preset", "--input", "{f}/source"], "--input together with --references"),
        (["evaluate", "{f}/preset", "--input", "{f}/source", "--references", "{f}/short"], "Received: 5 and 2"),
        (["evaluate", "{f}/preset", *FILES, "--combine", "vote"], "--combine vote together with --ensemble"),
        (["evaluate", "{f}/preset", *VOTE, "--average", "weights"], "without --average"),
        (["evaluate", "{f}/preset", *FILES, "--average", "weights"], "--average together with --ensemble"),
        (["evaluate", "{f}/preset", *VOTE, "--hypotheses", "{f}/other"], "without --ensemble"),
        (["evaluate", "{f}/preset", *FILES, "--hypotheses", "{f}/other", "--beam", "2"], "where a run translates"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(folder, arguments, sentence, capsys):
    before = sorted(os.listdir(folder))
    assert run(folder, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"keras-attn {arguments[0]}: ")
    assert sentence in err
    assert err.count("\n") == 1
    assert sorted(os.listdir(folder)) == before


def test_long_targets_of_short_sources_are_scored_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(line_streaming, "MEMORY", 10**5)
    (tmp_path / "source").write_text("a\n" * 60)
    (tmp_path / "target").write_text(("b" * 1000 + "\n") * 50 + "c\n" * 10)
    arguments = SimpleNamespace(window=100, max_characters=10**4)
    with (tmp_path / "source").open("rb") as source, (tmp_path / "target").open("rb") as target:
        found = list(score_command._windows(arguments, [source, target], False))
    assert [number for number, _, _ in found] == [1, 3, *range(5, 60, 2)][: len(found)]
    assert sum(len(pairs) for _, pairs, _ in found) == 60
    assert max(len(pairs) for _, pairs, _ in found[:25]) == 2  # of 51,600 bytes each
    assert [len(pairs) for _, pairs, _ in found[25:]] == [10]


@pytest.mark.parametrize("longer", ["source", "target"])
def test_pipes_of_unequal_length_are_refused_when_one_ends(folder, longer, tmp_path, capsys):
    """Their lengths are not known before: the pairs that there are get their scores."""
    import threading

    sides = {"source": SOURCES[:2], "target": TARGETS[:2]} | {longer: {"source": SOURCES, "target": TARGETS}[longer]}
    writers = []
    for name, texts in sides.items():
        os.mkfifo(tmp_path / name)
        writers.append(threading.Thread(target=(tmp_path / name).write_text, args=(lines(texts),)))
        writers[-1].start()
    pipes = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    assert run(folder, "score", "{f}/preset", *pipes) == 2
    for writer in writers:
        writer.join()
    assert "more" in capsys.readouterr().err


def test_evaluate_reads_files_and_folders_alike(folder, tmp_path, capsys):
    where = {
        "files": ["--input", "{f}/source", "--references", "{f}/target"],
        "folder": ["--corpus", "{f}/corpus", "--source", "de", "--target", "fr"],
    }
    found = {}
    for name, arguments in where.items():
        given = ["--hypotheses", "{f}/other", "--against", "{f}/preset", "--output", tmp_path / name]
        assert run(folder, "evaluate", "{f}/preset", *arguments, *given) == 0
        found[name] = json.loads((tmp_path / name).read_text())
        assert found[name]["sentences"] == 5
    assert found["folder"]["corpus"] == "corpus"
    assert found["files"]["input"] == str(folder / "source")
    keys = ("bleu", "chrf", "ter")
    systems = [[{key: one[key] for key in keys} for one in found[name]["systems"]] for name in where]
    assert systems[0] == systems[1]
    assert found["files"]["paired_bootstrap"] == found["folder"]["paired_bootstrap"]
    assert "Paired bootstrap" in capsys.readouterr().out


def test_several_references_and_another_metric(folder, tmp_path):
    line = ["evaluate", "{f}/preset", *FILES, "{f}/other", "--hypotheses", "{f}/other", "--output", tmp_path / "report"]
    assert run(folder, *line, "--metric", "wer") == 2, "a blank answer cannot be scored"
    assert run(folder, *line) == 0
    (system,) = json.loads((tmp_path / "report").read_text())["systems"]
    assert system["chrf"]["score"] == 100
    assert "nrefs:2" in system["chrf"]["signature"]


def test_an_ensemble_by_vote_or_by_probability(folder, tmp_path):
    """In each case what the library does with the same presets; beside a second system, which is no ensemble."""
    presets = [folder / name for name in ("preset", "preset1", "preset2")]
    options = {"beam_size": 3, "length_penalty": 0.4}
    alone = [Translator.from_preset(preset).generate(SOURCES, **options) for preset in presets]
    texts = {
        "vote": [one.text for one in vote(alone)],
        "probability": [one.text for one in Translator.from_presets(presets).generate(SOURCES, **options)],
    }
    assert texts["vote"] != texts["probability"]
    assert texts["vote"] not in [[one.text for one in single] for single in alone]
    flags = [*FILES, "--beam", 3, "--length-penalty", 0.4, "--against", "{f}/preset1", "--ensemble", *presets[1:]]
    for combine, expected in texts.items():
        given = [*flags, "--combine", combine, "--output", tmp_path / combine]
        assert run(folder, "evaluate", "{f}/preset", *given) == 0
        first, second = json.loads((tmp_path / combine).read_text())["systems"]
        assert first["bleu"]["score"] == round(bleu(expected, TARGETS).score, 2)
        assert first["chrf"]["score"] == round(chrf(expected, TARGETS).score, 2)
        assert (first["combine"], first["ensemble"]) == (combine, [str(preset) for preset in presets[1:]])
        assert second["chrf"]["score"] == round(chrf([one.text for one in alone[1]], TARGETS).score, 2)
        assert "ensemble" not in second
        searches = first["search"] if combine == "vote" else [first["search"]]
        assert [one["beam_size"] for one in searches] == [3] * (3 if combine == "vote" else 1)


def test_scores_of_products_in_int8_say_so(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(int8_products, "MIN_WIDTH", 1)
    reports = [tmp_path / name for name in ("float32", "int8")]
    for path, flags in zip(reports, ([], ["--int8"]), strict=True):
        assert run(folder, "evaluate", "{f}/preset", *FILES, *flags, "--output", path) == 0
    (exact,), (rounded,) = (json.loads(path.read_text())["systems"] for path in reports)
    assert "products" not in exact
    assert rounded["products"] == "int8"
    titles = [line for line in capsys.readouterr().out.splitlines() if ", beam 5" in line]
    assert [title.partition(", beam 5")[2] for title in titles] == ["", ", int8"]
