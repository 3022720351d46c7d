"""The commands `train` and `evaluate` with a tiny run: comparisons, and refusals of one sentence."""

import html
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from keras_attn.cli import evaluate, train
from keras_attn.cli.main import main
from keras_attn.training.report import read_translations
from tests.training.small_run import command_line, write_digits

IN_CORPUS = ["--corpus", "{corpus}", "--source", "de", "--target", "fr"]
TINY = ["batch_size=16", "validation_sentences=13", "learning_rate=0.02"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("corpora") / "digits", 16, 4, 19)


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    assert train.main(command_line(corpus, out, *TINY, "epochs=1")) == 0
    return out


def degraded(lines, share, seed):
    random = np.random.default_rng(seed)
    return [" ".join("x" if random.random() < share else word for word in line.split()) for line in lines]


def test_files_are_compared_as_sacrebleu_compares_them(run, corpus, tmp_path, capsys):
    references = (corpus / "test.fr").read_text().splitlines()
    files = [tmp_path / "first.txt", tmp_path / "second.txt"]
    for seed, (path, share) in enumerate(zip(files, (0.3, 0.2), strict=True)):
        path.write_text("".join(line + "\n" for line in degraded(references, share, seed)))
    options = ["--corpus", str(corpus), "--source", "de", "--target", "fr", "--output", str(tmp_path / "scores.json")]
    assert evaluate.main([str(run), "--hypotheses", str(files[0]), "--against", str(files[1]), *options]) == 0
    printed = capsys.readouterr().out

    line = [sys.executable, "-m", "sacrebleu", str(corpus / "test.fr"), "-i", *map(str, files), "-m", "bleu", "chrf"]
    line += ["--paired-bs", "--format", "latex", "--width", "2", "--tokenize", "none", "--force"]
    table = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    theirs = re.findall(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)(?: \(p = ([\d.]+)\))?", table)
    result = json.loads((tmp_path / "scores.json").read_text())
    ours = result["paired_bootstrap"]
    assert [one["system"] for one in ours] == [*map(str, files)] * 2
    ours = [ours[0], ours[2], ours[1], ours[3]]  # sacreBLEU's rows are systems
    assert [
        (
            f"{one['score']['score']:.2f}",
            f"{one['mean']:.2f}",
            f"{one['half_width']:.2f}",
            "" if one["p_value"] is None else f"{one['p_value']:.4f}",
        )
        for one in ours
    ] == theirs
    assert f"second.txt, p = {theirs[2][3]}" in printed
    assert ours[2]["score"]["signature"] in printed


def status(main, arguments) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:  # argparse's own
        return ended.code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--against", "{run}"], "another system"),
        (["--against", "{few}"], "to have 19 lines"),
        (["--hypotheses", "{tmp}/none"], "Expected a text file"),
        (["--hypotheses", "{bytes}"], "0xff in line 2"),
        (["--split", "dev"], "Expected dev.de or dev.de.gz in"),
        (["--tokenize", "moses"], "13a"),
        (["--beam", "0"], "from 1 to 1,000"),
        (["--output", "{few}"], "to be a new file"),
    ],
)
def test_evaluate_refuses_with_a_sentence(arguments, message, run, corpus, tmp_path, capfd):
    (tmp_path / "few").write_text("un\ndeux\n")
    (tmp_path / "bytes").write_bytes(b"un\n\xff\n")
    names = {"run": run, "tmp": tmp_path, "few": tmp_path / "few", "bytes": tmp_path / "bytes"}
    where = ["--corpus", str(corpus), "--source", "de", "--target", "fr"]
    code = status(evaluate.main, [str(run), *where, *(argument.format(**names) for argument in arguments)])
    err = capfd.readouterr().err
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["bytes", "few"], "nothing may be begun"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "among: g2p, gnmt, hard_monotonic, lstm_seq2seq, luong, nematus, "),
        (["rnnsearch", "--set", "unit=3"], "name of a setting, such as units. Received: 'unit'. All "),
        (["rnnsearch", "--set", "units=many"], "type int"),
        (["rnnsearch", "--epochs", "0"], "epochs"),
        (["rnnsearch", "--epochs", "2", "--set", "max_steps=7"], "--set max_steps=N in place of --epochs"),
        (["rnnsearch", "--config", "{tmp}/none.toml"], "Expected a TOML file, run.json or report.json with --config"),
        (["rnnsearch", "--minutes", "-1"], "--minutes"),
        (["rnnsearch", "--beam", "0"], "from 1 to 1,000"),
        (["rnnsearch", "--set", "learning_rate=nan"], "learning_rate to be a finite number"),
        (["rnnsearch", "--set", "learning_rate=-1"], "`learning_rate` above 0"),
        (["rnnsearch", "--set", "bpe_dropout=0.1", "level=word"], "`level` to be"),
        (["rnnsearch", "--set", "max_steps=0"], "`max_steps` of at least 1"),
        (["rnnsearch", "--corpus", "{corpus}", "--source", "xx", "--target", "fr"], "xx"),
        (["rnnsearch", "--out", "{run}"], "already holds"),
        (["rnnsearch", "--out", "{run}", "--resume"], "finished"),
        (["rnnsearch", "--out", "{corpus}", "--resume"], "no run.json"),
        (["rnnsearch", "--epoch-s", "2"], "unrecognized arguments: --epoch-s 2 (did you mean '--epochs'?)"),
        (["rnnserch"], "Received: 'rnnserch' (did you mean 'rnnsearch'?)"),
        (["rnnsearch", "--tags", "targets"], "(did you mean 'target'?)"),
        (["rnnsearch", *IN_CORPUS, "--set", "pointer=true", "level=word"], "the same tokenizer for source and target"),
        (
            ["rnnsearch", *IN_CORPUS, "--set", "source_vocabulary_size=none", "target_vocabulary_size=9000"],
            "the largest possible for this text. Received: 9000. Set it by --set target_vocabulary_size=N; "
            "target_vocabulary_size=none takes as many as a small text allows",
        ),
    ],
)
def test_train_refuses_with_a_sentence(arguments, message, corpus, run, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    before = sorted(p.name for p in run.iterdir())
    arguments = [argument.format(corpus=corpus, run=run, tmp=tmp_path) for argument in arguments]
    code = status(train.main, arguments)
    err = capfd.readouterr().err
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "nothing may be begun"
    assert sorted(p.name for p in run.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("val.fr", lambda text: "\n" * text.count("\n"), "the split val of the corpus to have a pair with text"),
        ("test.fr", lambda text: "\n" * text.count("\n"), "the split test of the corpus to have a pair with text"),
        ("train.fr", lambda text: f"{text}trop\n", "17"),
    ],
)
def test_splits_without_text_and_unequal_files_are_named(name, change, message, corpus, tmp_path, capfd):
    path = shutil.copytree(corpus, tmp_path / "corpus") / name
    path.write_text(change(path.read_text()))
    assert train.main(command_line(tmp_path / "corpus", tmp_path / "run", *TINY)) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_page_of_a_run(run, tmp_path, capfd):
    """It has the run's scores, and samples with a row of squares for each word; it loads nothing and runs nothing."""
    path = tmp_path / "page.html"
    assert main(["report", str(run), "--samples", "3", "--output", str(path)]) == 0
    page, report = path.read_text(), json.loads((run / "report.json").read_text())
    assert f"<b>{report['bleu']['score']:.2f}</b></td><td>{report['bleu']['signature']}" in page
    assert html.escape(report["command"]) in page
    assert f"<th>pairs</th><td>{report['training_pairs']}</td>" in page
    assert page.count('src="data:image/svg+xml;base64,') == page.count("src=") == 4, "loss, perplexity, accuracy, BLEU"
    assert "<script" not in page
    assert "http" not in re.sub('src="[^"]*"', "", page).replace("http-equiv", "")
    lines = read_translations(run / "translations.txt")
    articles = re.findall("<article>(.*?)</article>", page, re.S)
    assert len(articles) == 3
    for article, (source, reference, translation) in zip(articles, (lines[0], lines[6], lines[12]), strict=True):
        assert f"</span> {source}</p>" in article
        assert f"</span> {reference}</p>" in article
        assert f"<p>{translation} <small>" in article
        if translation:
            columns, *rows = re.findall("<tr>(.*?)</tr>", article)
            assert re.findall("<th>([^<]+)</th>", columns) == [*source.split(), "&lt;/s&gt;"]
            assert [re.findall("<th>([^<]+)</th>", row)[0] for row in rows][:-1] == translation.split()
    for given, sentence in ((["--output", str(path)], "to be a new file"), (["--samples", "0"], "from 1 to 100")):
        assert status(main, ["report", str(run), *given]) == 2
        assert sentence in capfd.readouterr().err
    assert status(main, ["report", "phrases_en_fr", "--output", str(tmp_path / "new")]) == 2
    assert "Expected a finished run. Received: " in capfd.readouterr().err
    assert not (tmp_path / "new").exists()


def test_the_card_of_a_run_has_a_sentence_of_its_own(run):
    source = read_translations(run / "translations.txt")[0][0]
    assert f'print(translator.generate("{source}").text)' in (run / "README.md").read_text()


def test_systems_with_other_tags_are_not_compared(run, tmp_path, capfd):
    tagged = shutil.copytree(run, tmp_path / "tagged")
    report = json.loads((tagged / "report.json").read_text())
    (tagged / "report.json").write_text(json.dumps(report | {"tags": "target"}))
    assert evaluate.main([str(run), "--against", str(tagged)]) == 2
    assert "Expected systems with the same --tags" in capfd.readouterr().err
