"""`keras-attn score`, `evaluate` and `shortlist` on files: what they print and write."""

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keras_attn import Shortlist, quantize, translation, with_shortlist
from keras_attn.backend import int8_products
from keras_attn.cli import line_streaming
from keras_attn.cli import score as score_command
from keras_attn.cli.main import main
from keras_attn.evaluation import bleu, by_metric, chrf
from keras_attn.translation import Translator, vote
from tests.unit.cli.conftest import SOURCES, TARGETS, tiny_translator


def run(folder: Path, *arguments) -> int:
    return main([str(argument).format(f=folder) for argument in arguments])


FILES = ("--input", "{f}/source", "--references", "{f}/target")
PAIR = ("--source", "{f}/source", "--target", "{f}/target")


def test_scores_are_those_of_the_translator(folder, tmp_path, capsys):
    options = {"length_penalty": 0.5, "normalization": "average", "coverage_penalty": 0.3}
    flags = ["--length-penalty", 0.5, "--normalization", "average", "--coverage-penalty", 0.3, "--batch-size", 2]
    expected = Translator.from_preset(folder / "preset").score(SOURCES, TARGETS, **options)
    sums = [0 if one.token_log_probs is None else one.token_log_probs.sum() for one in expected]
    for window in (2, 4096):
        assert run(folder, "score", "{f}/preset", *PAIR, *flags, "--window", window) == 0
        rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        assert [(row[0], row[3]) for row in rows] == [(str(n), text) for n, text in enumerate(TARGETS, start=1)]
        np.testing.assert_allclose([float(row[2]) for row in rows], [one.score for one in expected], atol=1e-4)
        np.testing.assert_allclose([float(row[1]) for row in rows], sums, atol=1e-4)
    fields = ["--format", "jsonl", "--fields", "text,score,tokens,token_log_probs,alignment"]
    assert run(folder, "score", "{f}/preset", *PAIR, *flags, *fields, "--output", tmp_path / "scores") == 0
    first, blank, *_ = (json.loads(line) for line in (tmp_path / "scores").read_text().splitlines())
    assert (first["line"], first["source"], first["text"]) == (1, "eins zwei", "a b c")
    assert first["tokens"] == ["a", "b", "c", "</s>"]
    assert first["source_tokens"] == ["eins", "zwei", "</s>"]
    assert np.shape(first["alignment"]) == (4, 3)
    assert first["log_prob"] == pytest.approx(sum(first["token_log_probs"]), abs=1e-4)
    assert (blank["log_prob"], blank["score"]) == (0, 0)


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
    sides = {"source": SOURCES[:2], "target": TARGETS[:2]}
    sides[longer].append("")
    writers = []
    for name, texts in sides.items():
        os.mkfifo(tmp_path / name)
        text = "".join(f"{text}\n" for text in texts)
        writers.append(threading.Thread(target=(tmp_path / name).write_text, args=(text,)))
        writers[-1].start()
    pipes = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    assert run(folder, "score", "{f}/preset", *pipes, "--batch-size", 2) == 2
    for writer in writers:
        writer.join()
    assert "more" in capsys.readouterr().err


def test_evaluate_reads_files_and_folders_alike(folder, tmp_path, capsys):
    """BLEU with the paired bootstrap; with error rates McNemar's test."""
    where = {"files": FILES, "folder": ("--corpus", "{f}/corpus")}
    found = {}
    for name, arguments in where.items():
        given = ["--hypotheses", "{f}/other", "--against", "{f}/target", "--output", tmp_path / name]
        assert run(folder, "evaluate", "{f}/preset", *arguments, *given) == 0
        found[name] = json.loads((tmp_path / name).read_text())
        assert found[name]["sentences"] == 5
    assert "Paired bootstrap" in capsys.readouterr().out
    assert found["folder"]["corpus"] == "corpus"
    assert found["files"]["input"] == str(folder / "source")
    systems = [[{key: one[key] for key in ("bleu", "chrf", "ter")} for one in found[name]["systems"]] for name in where]
    assert systems[0] == systems[1]
    assert found["files"]["paired_bootstrap"] == found["folder"]["paired_bootstrap"]

    lines = {"words": ["c a t", "a", "a"], "answers": ["K AE T", "AH", "EY"], "said": ["K AE T", "EY", "EY"]}
    for name, texts in (lines | {"silent": ["", "", ""]}).items():
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts))
    given = ["--input", tmp_path / "words", "--references", tmp_path / "answers", "--hypotheses", tmp_path / "said"]
    given += ["--against", tmp_path / "silent", "--metric", "wer", "--output", tmp_path / "rates"]
    assert run(folder, "evaluate", "{f}/preset", *given) == 0
    rates = json.loads((tmp_path / "rates").read_text())
    assert [one["wer"]["score"] for one in rates["systems"]] == [0, 100]
    assert rates["systems"][0]["per"]["signature"] == "items:2|answers:3|nearest"
    assert rates["mcnemar"] == by_metric.mcnemar_test(*lines.values(), [""] * 3)
    assert "per 0.00  items:2|answers:3|nearest" in capsys.readouterr().out


def test_several_references_and_another_metric(folder, tmp_path, monkeypatch):
    line = ["evaluate", "{f}/preset", *FILES, "{f}/other", "--hypotheses", "{f}/other", "--output", tmp_path / "report"]
    with monkeypatch.context() as patched:
        patched.setattr("keras_attn.cli.evaluate.System", None)
        assert run(folder, *line, "--metric", "wer") == 2, "a blank answer is refused before any work"
    assert run(folder, *line) == 0
    (system,) = json.loads((tmp_path / "report").read_text())["systems"]
    assert system["chrf"]["score"] == 100
    assert "nrefs:2" in system["chrf"]["signature"]


def test_an_ensemble_by_vote_or_by_probability(folder, tmp_path):
    """In each case what the library does with the same presets; beside a second system, which is no ensemble."""
    presets = [folder / "preset", tmp_path / "second", tmp_path / "third"]
    for seed, path in zip((4, 8), presets[1:], strict=True):
        tiny_translator(seed).save_to_preset(path)
    options = {"beam_size": 3, "length_penalty": 0.4}
    alone = [Translator.from_preset(preset).generate(SOURCES, **options) for preset in presets]
    texts = {
        "vote": [one.text for one in vote(alone)],
        "probability": [one.text for one in Translator.from_presets(presets).generate(SOURCES, **options)],
    }
    assert texts["vote"] != texts["probability"]
    assert texts["vote"] not in [[one.text for one in single] for single in alone]
    flags = [*FILES, "--beam", 3, "--length-penalty", 0.4, "--against", presets[1], "--ensemble", *presets[1:]]
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


def test_int8_and_a_shortlist(folder, tmp_path, monkeypatch, capsys):
    """`shortlist` writes a file with which `translate`, `evaluate` and `export` work as the library does."""
    monkeypatch.setattr(int8_products, "MIN_WIDTH", 1)
    output = tmp_path / "short.npz"
    few = ("--candidates", 1, "--frequent", 1)
    assert run(folder, "shortlist", "{f}/preset", *PAIR, "--output", output, *few) == 0
    assert "4 of 8 source tokens" in capsys.readouterr().out
    translator = Translator.from_preset(folder / "preset")
    expected = with_shortlist(translator, Shortlist.load(output)).generate(SOURCES, beam_size=3)
    texts = [one.text for one in expected]
    assert texts != [one.text for one in translator.generate(SOURCES, beam_size=3)]
    given = ("--shortlist", output, "--beam", 3)
    assert run(folder, "translate", "{f}/preset", "{f}/source", *given, "--output", tmp_path / "out") == 0
    assert (tmp_path / "out").read_text().splitlines() == texts
    quantized = []
    monkeypatch.setattr(translation, "quantize", lambda one: quantized.append(quantize(one)) or quantized[-1])
    line = ["evaluate", "{f}/preset", *FILES, *given, "--int8"]
    assert run(folder, *line, "--output", tmp_path / "scores") == 0
    assert "beam 3, int8, shortlist" in capsys.readouterr().out
    (system,) = json.loads((tmp_path / "scores").read_text())["systems"]
    assert (system["products"], system["shortlist"], len(quantized)) == ("int8", str(output), 1)

    exported = []
    with monkeypatch.context() as patched:
        patched.setattr(Translator, "export", lambda self, folder, **_: exported.append(self.shortlist.fingerprint))
        assert run(folder, "export", "{f}/preset", tmp_path / "served", "--shortlist", output) == 0
    assert exported == [Shortlist.load(output).fingerprint]
    onnx = tmp_path / "onnx"
    assert run(folder, "export", "{f}/preset", onnx, "--format", "onnx", "--shortlist", output) == 2
    assert "without a shortlist for ONNX" in capsys.readouterr().err
    assert not onnx.exists()
