"""The commands `train` and `evaluate` with a tiny run: comparisons, its page and its card."""

import html
import json
import re
import shutil
import subprocess
import sys

from keras_attn.cli import evaluate
from keras_attn.cli.main import main
from keras_attn.training.report import read_translations
from tests.hostile import sentence_of
from tests.unit.evaluation.test_scores import degraded


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
    assert "bs:1000|seed:12345" in printed


def test_the_page_and_the_card_of_a_run(run, tmp_path, capfd):
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
    assert f'print(translator.generate("{lines[0][0]}").text)' in (run / "README.md").read_text()
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
        assert sentence in sentence_of(main, ["report", run, *given], capfd)
    line = ["report", "phrases_en_fr", "--output", tmp_path / "new"]
    assert "Expected a finished run. Received: " in sentence_of(main, line, capfd)
    assert not (tmp_path / "new").exists()


def test_systems_with_other_tags_are_not_compared(run, tmp_path, capfd):
    tagged = shutil.copytree(run, tmp_path / "tagged")
    report = json.loads((tagged / "report.json").read_text())
    (tagged / "report.json").write_text(json.dumps(report | {"tags": "target"}))
    assert "Expected systems with the same --tags" in sentence_of(evaluate.main, [run, "--against", tagged], capfd)
