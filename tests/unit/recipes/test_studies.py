"""The studies: runs are trained once, even if a study is killed; figures and pages come from the reports alone."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu

from keras_attn import Translator
from keras_attn.cli import train
from keras_attn.training import plan
from recipes.pages import results
from recipes.studies import attention, length, showcase
from recipes.studies.aligners import sharpness
from recipes.studies.study import Run, Step, Study
from tests.training.small_run import interrupted
from tests.unit.recipes.small_study import TINY, InProcess, command_line

RESULTS = results.FOLDER
BINS = [(1, 5), (6, 10), (11, 15)]
LUONG = [*TINY[:5], "units=8", "num_layers=1", "--scores", "local-m"]
SYSTEMS = ["rnnsearch-8", "rnnencdec-8"]


@pytest.fixture(scope="module")
def length_folder(corpus, tmp_path_factory):
    """A study of two systems that is killed twice, in the first run's second epoch and before the second run."""
    out = tmp_path_factory.mktemp("studies") / "length"
    line = command_line(corpus, out, *TINY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(length, "MAX_WORDS", (8,))
        patch.setattr(length, "BINS", BINS)
        work = InProcess(most=2)
        patch.setattr(Study, "work", lambda self, chains: work(chains))
        with interrupted(1), pytest.raises(AssertionError):
            length.main(line)
        assert (out / "rnnsearch-8" / "checkpoint.npz").exists()
        work.done.clear()
        assert length.main(line) == 130
        work.most = 10**9
        assert length.main(line) == 0
        assert work.done == [name for name in SYSTEMS for _ in ("trained", "translated")]
        before = {path: path.read_bytes() for path in out.iterdir() if path.suffix in (".txt", ".svg")}
        work.most = 0
        assert length.main(line) == 0
        assert before == {path: path.read_bytes() for path in before}
    return out


def test_length_study_scores_the_runs_of_its_report_by_length(length_folder, corpus, capfd):
    assert length.main(command_line(corpus, length_folder, *TINY, "--seed", "3")) == 2
    assert "begun with another seed." in capfd.readouterr().err
    text = (length_folder / "report.json").read_text()
    report = json.loads(text)
    assert str(length_folder) not in text
    assert [(one["words"], one["sentences"], one["mean_words"]) for one in report["bins"]] == [
        *(([1, 5], 3, 3.67), ([6, 10], 1, 9.0)),
        ([11, 15], 2, 12.5),
    ]
    assert report["overlong"] == 1
    references = (corpus / "test.fr").read_text().splitlines()
    for folder, system in zip(SYSTEMS, report["systems"], strict=True):
        assert system["name"].lower() == folder
        assert (system["updates"], system["training_pairs"]) == (5, 24), "pairs of 9 words are left out"
        assert "max_words=8 max_steps=5 level=word" in system["command"]
        assert ("decoder_units" in system["command"]) == (system["recipe"] == "rnnsearch")
        hypotheses = (length_folder / f"{folder}.txt").read_text().splitlines()
        for rows, one in zip(([0, 1, 2], [3], [4, 5]), system["bins"], strict=True):
            pair = [[lines[n] for n in rows] for lines in (hypotheses, references)]
            assert one["bleu"] == round(sacrebleu.corpus_bleu(pair[0], [pair[1]]).score, 2)
            assert one["low"] <= one["high"]
    first, second = (json.loads((length_folder / name / "report.json").read_text()) for name in SYSTEMS)
    assert first["tokenizers"] == second["tokenizers"]
    assert max(first["parameters"], second["parameters"]) <= 1.05 * min(first["parameters"], second["parameters"])


def test_systems_may_differ_in_size_and_updates(corpus, tmp_path, monkeypatch):
    """`--set` and `--size-tolerance` allow it."""
    monkeypatch.setattr(length, "MAX_WORDS", (8,))
    started = []

    def work(self, chains):
        started.extend(train.parser().parse_args(chain[0].options) for chain in chains.values())
        raise KeyboardInterrupt

    monkeypatch.setattr(Study, "work", work)
    own = ["rnnencdec.units=30", "rnnencdec.max_steps=11", "--size-tolerance", "50"]
    assert length.main(command_line(corpus, tmp_path / "out", *TINY, *own)) == 130
    configs = [plan.make_plan(**vars(one)).config for one in started]
    assert [(config.units, config.max_steps) for config in configs] == [(7, 5), (30, 11)]


# --- the runner, on commands that take no time


def small_study(tmp_path, **options):
    arguments = {"corpus": "x", "source": None, "target": None, "data": None, "out": tmp_path / "out"}
    arguments |= {"seed": 0, "beam": 1, "jobs": 2, "changes": []} | options
    return Study(SimpleNamespace(**arguments), "length_study", [Run("a", "rnnsearch", ("max_steps=5",))])


def copy_step(tmp_path, source, target, text=None):
    """`python -m json.tool` makes a file of another, and refuses one that is not JSON."""
    if text is not None:
        (tmp_path / source).write_text(text)
    return Step("json.tool", [str(tmp_path / source), str(tmp_path / target)], tmp_path / target)


def test_steps_of_a_chain_run_in_order_and_once(tmp_path, capfd):
    chains = {n: [copy_step(tmp_path, f"{n}0", f"{n}1", "{}"), copy_step(tmp_path, f"{n}1", f"{n}2")] for n in "abc"}
    with small_study(tmp_path).opened() as study:
        study.work(chains)
        assert all((tmp_path / f"{name}2").exists() for name in chains)
        assert capfd.readouterr().out.count("took") == 6
        study.work(chains)
        assert capfd.readouterr().out == ""


def test_a_failed_command_is_quoted_and_the_study_can_continue(tmp_path):
    chains = {"a": [copy_step(tmp_path, "a0", "a1", "{}")], "b": [copy_step(tmp_path, "b0", "b1", "{")]}
    with small_study(tmp_path, jobs=1).opened() as study:
        with pytest.raises(RuntimeError, match=r"json.tool failed for b: Expecting property name.*b\.log"):
            study.work(chains)
        assert (tmp_path / "a1").exists()
        (tmp_path / "b0").write_text("{}")
        study.work(chains)
        assert (tmp_path / "b1").exists()


def test_commands_side_by_side_share_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert small_study(tmp_path, jobs=2)._environment()["TF_NUM_INTRAOP_THREADS"] == "3"
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    assert "TF_NUM_INTRAOP_THREADS" not in small_study(tmp_path, jobs=1)._environment()


@pytest.fixture(scope="module")
def attention_folder(corpus, tmp_path_factory):
    """A study of one score function, to which another can be added."""
    out = tmp_path_factory.mktemp("studies") / "attention"
    with pytest.MonkeyPatch.context() as patch:
        work = InProcess(most=1)
        patch.setattr(Study, "work", lambda self, chains: work(chains))
        for _ in range(2):
            assert attention.main(command_line(corpus, out, *LUONG)) == 0
        assert attention.main([*command_line(corpus, out, *LUONG[:-1]), "dot,local-m"]) == 130, "dot is begun"
    assert work.done == ["local-m"]
    return out


def test_attention_study_measures_what_was_trained(attention_folder, corpus):
    report = json.loads((attention_folder / "report.json").read_text())
    assert "--scores local-m" in report["command"]
    (row,) = report["scores"]
    trained = json.loads((attention_folder / "local-m" / "report.json").read_text())
    assert (row["name"], row["updates"]) == ("local-m", 5)
    assert {name: row["bleu"][name] for name in trained["bleu"]} == trained["bleu"]
    assert row["bleu"]["low"] <= row["bleu"]["high"]
    assert (trained["config"]["attention"], trained["config"]["score"]) == ("local_m", None)
    assert row["sharpness"]["entropy"] < row["sharpness"]["uniform_entropy"]
    # Sentence by sentence, as one would by hand.
    sides = ((corpus / f"test.{language}").read_text().splitlines() for language in ("en", "fr"))
    translator = Translator.from_preset(attention_folder / "local-m")
    scores = [translator.score([source], [target])[0].token_log_probs for source, target in zip(*sides, strict=True)]
    assert row["perplexity"] == pytest.approx(math.exp(-np.mean(np.concatenate(scores))), rel=1e-3)
    assert (attention_folder / "attention.svg").read_text().startswith("<?xml")


def test_sharpness_by_hand():
    half = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.1, 0.1, 0.1, 0.1]])  # the last sums to 0.4
    result = sharpness([half, np.array([[1.0, 0.0]])])
    assert result["entropy"] == pytest.approx((math.log(2) + 0 + math.log(4) + 0) / 4)
    assert result["largest_weight"] == pytest.approx((0.5 + 1 + 0.25 + 1) / 4)
    assert result["uniform_entropy"] == pytest.approx((3 * math.log(4) + math.log(2)) / 4)


def test_halves_are_compared_with_halves():
    reference = "un deux trois quatre cinq"
    assert showcase.chrf_of_halves("un deux zero zero zero", reference)[0] == 100
    assert showcase.chrf_of_halves("zero zero trois quatre cinq", reference)[1] == 100
    expected = sacrebleu.sentence_chrf("zero zero zero", ["trois quatre cinq"]).score
    assert showcase.chrf_of_halves("un deux zero zero zero", reference)[1] == round(expected, 2)
    assert showcase.chrf_of_halves("", reference) == (0, 0)


def test_sentences_are_ranked_by_the_advantage_of_attention():
    halves = {
        "saves 10": [(60, 50), (70, 60)],
        "loses no half": [(40, 50), (90, 90)],
        "saves 30": [(60, 20), (70, 50)],
        "saves nothing": [(60, 20), (70, 20)],
    }
    rows = [
        showcase.Sentence(name, "", "", [dict(zip(("first", "second"), pair, strict=True)) for pair in pairs])
        for name, pairs in halves.items()
    ]
    assert [one.heading for one in showcase.ranked(rows)] == ["saves 30", "saves 10"]


@pytest.fixture(scope="module")
def showcase_folder(runs, corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("studies") / "showcase"
    options = ["--corpus", str(corpus), "--min-words", "5", "--beam", "2", "--out", str(out)]
    assert showcase.main([*map(str, runs), *options]) == 0
    return out


def test_showcase_has_the_papers_sentence_and_the_long_ones(showcase_folder):
    report = json.loads((showcase_folder / "report.json").read_text())
    paper, *rest = report["examples"]
    assert paper["source"].startswith("An admitting privilege is the right of a doctor")
    assert paper["reference"] is None
    start = "python -m recipes.studies.showcase rnnsearch transformer"
    assert report["command"] == f"{start} --min-words 5 --beam 2 --corpus digits"
    assert (report["sentences"], report["lost"]) == (5, len(rest))  # of 5, 9, 12, 13 and 16 words
    for one in rest:
        fixed, other = one["translations"]
        assert len(one["source"].split()) >= 5
        assert fixed["second"] < min(fixed["first"], other["second"])
    page = (showcase_folder / "showcase.html").read_text()
    assert (page.count("<section>"), page.count("<article ")) == (1 + len(rest), 2 + 2 * len(rest))
    assert page.count('class="line"') == len(rest)


def test_results_page_is_written_from_reports(length_folder, attention_folder, showcase_folder, tmp_path, monkeypatch):
    folder = tmp_path / "recipes"
    monkeypatch.setattr(results, "FOLDER", folder)
    (folder / "reports").mkdir(parents=True)
    run = length_folder / "rnnencdec-8"
    added = {"length": length_folder, "scores": attention_folder, "halves": showcase_folder, "rnnencdec-8": run}
    for name, one in added.items():
        assert results.main([str(one), "--report", f"digits/{name}"]) == 0
    page = (folder / "README.md").read_text()
    for name, figure in (("length", length_folder / "length.svg"), ("scores", attention_folder / "attention.svg")):
        assert (folder / "reports" / "digits" / f"{name}.svg").read_bytes() == figure.read_bytes()
        assert (folder / "reports" / "digits" / f"{name}-narrow.svg").is_file()
        assert f"(reports/digits/{name}.svg)" in page
    assert (folder / "reports" / "digits" / "halves.html").is_file()
    bleu = json.loads((folder / "reports" / "digits" / "rnnencdec-8.json").read_text())["bleu"]
    score = json.loads((run / "report.json").read_text())["bleu"]["score"]
    assert bleu["low"] <= bleu["score"] == score <= bleu["high"]
    assert f"| `rnnencdec` | 0.0 M | {score:.2f} ± {(bleu['high'] - bleu['low']) / 2:.2f} |" in page
    assert f"BLEU: `{bleu['signature']}`" in page
    assert results.main([]) == 0
    assert (folder / "README.md").read_text() == page


def test_the_committed_page_is_what_the_reports_say_and_a_corpus_has_one_signature():
    reports = results.read_reports(RESULTS / "reports")
    page = results.page(reports)
    assert (RESULTS / "README.md").read_text("utf-8") == page
    assert len(page.splitlines()) <= 150
    runs = [reports[name] for name in ("multi30k-de-en/luong", "multi30k-tok-de-en/rnnsearch")]
    with pytest.raises(ValueError, match="one signature"):
        results.page({f"one/{n}": report for n, report in enumerate(runs)})
