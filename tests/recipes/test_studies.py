"""The studies: runs are trained once, even if a study is killed; figures and pages come from the reports alone."""

import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu

from keras_attn.cli import train
from keras_attn.training import corpora, plan
from recipes.pages import results
from recipes.studies import attention, length, showcase
from recipes.studies.aligners import sharpness
from recipes.studies.study import Run, Step, Study
from tests.recipes.small_study import InProcess, write_digits
from tests.training.small_run import interrupted

pytestmark = pytest.mark.once

RESULTS = results.FOLDER
BINS = [(1, 5), (6, 10), (11, 15)]
TINY = ["level=word", "batch_size=16", "validation_sentences=7", "embedding_size=8", "readout_size=8"]
LUONG = ["units=8", "num_layers=1"]
SIZES = ["rnnsearch.units=7", "rnnsearch.decoder_units=8", "rnnsearch.attention_units=5", "rnnencdec.units=10"]


SYSTEMS = ["rnnsearch-8", "rnnencdec-8"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Digits, spelled; few lengths in training, because each is compiled."""
    return write_digits(tmp_path_factory.mktemp("corpora") / "digits")


def command_line(corpus, out, *more):
    where = ["--corpus", str(corpus), "--source", "en", "--target", "fr", "--out", str(out)]
    return [*where, "--max-steps", "5", "--beam", "1", "--set", *TINY, *more]


@pytest.fixture(scope="module")
def length_folder(corpus, tmp_path_factory):
    """A study of two systems that is killed twice: in the first run's second epoch, and before the second run."""
    out = tmp_path_factory.mktemp("studies") / "length"
    line = command_line(corpus, out, *SIZES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(length, "MAX_WORDS", (8,))
        patch.setattr(length, "BINS", BINS)
        work = InProcess(most=2)
        patch.setattr(Study, "work", lambda self, chains: work(chains))
        with interrupted(1), pytest.raises(AssertionError):
            length.main(line)
        assert (out / "rnnsearch-8" / "checkpoint.npz").exists()
        assert work.done.pop() == ("recipes.train", "rnnsearch-8")
        assert length.main(line) == 130
        first, work = work.done, InProcess()
        assert length.main(line) == 0
    commands = "recipes.train", "keras_attn.__main__"
    assert first + work.done == [(command, name) for name in SYSTEMS for command in commands]
    return out


@pytest.mark.slow
def test_length_study_trains_the_runs_of_its_report(length_folder, corpus):
    report = json.loads((length_folder / "report.json").read_text())
    assert [system["name"] for system in report["systems"]] == ["RNNsearch-8", "RNNencdec-8"]
    for system in report["systems"]:
        assert system["updates"] == 5
        assert system["training_pairs"] == 24, "pairs of 9 words are left out"
        assert "max_words=8 max_steps=5 level=word" in system["command"]
        of_its_own = [name for name in ("decoder_units", "units=10") if name in system["command"]]
        assert of_its_own == (["decoder_units"] if system["recipe"] == "rnnsearch" else ["units=10"])
    sizes = [system["parameters"] for system in report["systems"]]
    assert max(sizes) <= 1.05 * min(sizes)
    fingerprints = [json.loads((length_folder / name / "report.json").read_text())["tokenizers"] for name in SYSTEMS]
    assert all(one == fingerprints[0] for one in fingerprints)
    assert str(length_folder) not in (length_folder / "report.json").read_text()


@pytest.mark.slow
def test_length_study_scores_each_length(length_folder, corpus):
    report = json.loads((length_folder / "report.json").read_text())
    result = [(one["words"], one["sentences"], one["mean_words"]) for one in report["bins"]]
    assert result == [([1, 5], 3, 3.67), ([6, 10], 1, 9.0), ([11, 15], 2, 12.5)]
    assert report["overlong"] == 1
    references = (corpus / "test.fr").read_text().splitlines()
    for name, system in zip(SYSTEMS, report["systems"], strict=True):
        hypotheses = (length_folder / f"{name}.txt").read_text().splitlines()
        assert len(hypotheses) == 7
        for rows, one in zip(([0, 1, 2], [3], [4, 5]), system["bins"], strict=True):
            pair = [[lines[n] for n in rows] for lines in (hypotheses, references)]
            assert one["bleu"] == round(sacrebleu.corpus_bleu(pair[0], [pair[1]]).score, 2)
            assert one["low"] <= one["high"]
    svg = (length_folder / "length.svg").read_text()
    assert svg.startswith("<?xml")


def test_systems_may_differ_in_size_and_updates(corpus, tmp_path, monkeypatch):
    """What `--set` and `--size-tolerance` allow, without training."""
    monkeypatch.setattr(length, "MAX_WORDS", (8,))
    started = []

    def work(self, chains):
        started.extend(train.parser().parse_args(chain[0].options) for chain in chains.values())
        raise KeyboardInterrupt

    monkeypatch.setattr(Study, "work", work)
    own = ["rnnencdec.units=30", "rnnencdec.max_steps=11", "--size-tolerance", "50"]
    assert length.main(command_line(corpus, tmp_path / "out", *SIZES, *own)) == 130
    configs = [plan.make_plan(**vars(one)).config for one in started]
    assert [(config.units, config.max_steps) for config in configs] == [(7, 5), (30, 11)]


@pytest.mark.slow
def test_a_finished_study_does_nothing_again(length_folder, corpus, in_process, monkeypatch):
    monkeypatch.setattr(length, "MAX_WORDS", (8,))
    monkeypatch.setattr(length, "BINS", BINS)
    before = {path: path.read_bytes() for path in length_folder.iterdir() if path.suffix in (".txt", ".svg")}
    work = in_process(most=0)
    assert length.main(command_line(corpus, length_folder, *SIZES)) == 0
    assert work.done == []
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max-steps", "0"], "--max-steps of at least 1"),
        (["--set", "luong.units=3"], "recipe among: rnnsearch, rnnencdec"),
        (["--set", "rnnsearch.units=30"], "equal size, within 5%"),
        (["--size-tolerance", "-1"], "a number from 0 to 100"),
        (["--set", "rnnsearch.min_frequency=2"], "Expected the same level"),
        (["--out", "{corpus}"], "or a study's"),
        (["--out", "{study}", "--seed", "3"], "begun with another seed"),
    ],
)
def test_length_study_refuses_with_a_sentence(more, message, corpus, length_folder, tmp_path, capfd, in_process):
    in_process()
    line = command_line(corpus, tmp_path / "out", *SIZES)
    try:
        code = length.main([*line, *(one.format(corpus=corpus, study=length_folder) for one in more)])
    except SystemExit as ended:  # recipes.train's own parser
        code = ended.code
    err = capfd.readouterr().err
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("out/*/"))


def test_pairs_are_kept_by_their_longer_side():
    lines = ["a b", "a b c", "a", ""], ["x", "x", "x y z", "x y"]
    assert corpora.pairs_up_to(2, lines) == (["a b", ""], ["x", "x y"])
    assert corpora.pairs_up_to(None, lines) is lines
    with pytest.raises(ValueError, match="at most 0 words a side"):
        corpora.pairs_up_to(0, lines)


# --- the runner, on commands that take no time


def small_study(tmp_path, **options):
    arguments = {"corpus": "x", "source": None, "target": None, "data": None, "out": tmp_path / "out"}
    arguments |= {"seed": 0, "beam": 1, "jobs": 2, "changes": []} | options
    return Study(SimpleNamespace(**arguments), "length_study", [Run("a", "rnnsearch", ("max_steps=5",))])


def copy_step(tmp_path, name, text="{}"):
    """`python -m json.tool` makes a file of another, and refuses one that is no JSON."""
    (tmp_path / f"{name}.in").write_text(text)
    return Step("json.tool", [str(tmp_path / f"{name}.in"), str(tmp_path / name)], tmp_path / name)


def test_steps_of_a_chain_run_in_order_and_once(tmp_path, capfd):
    steps = {name: [copy_step(tmp_path, f"{name}{n}") for n in range(2)] for name in "abc"}
    second = Step(
        "json.tool", [str(tmp_path / "a0"), str(tmp_path / "a1")], tmp_path / "a1"
    )  # reads what the first made
    steps["a"][1] = second
    with small_study(tmp_path).opened() as study:
        study.work(steps)
        assert all(step.output.exists() for chain in steps.values() for step in chain)
        assert capfd.readouterr().out.count("took") == 6
        study.work(steps)
        assert capfd.readouterr().out == ""


def test_a_failed_command_is_quoted_and_the_study_can_continue(tmp_path):
    good, bad = copy_step(tmp_path, "good"), copy_step(tmp_path, "bad", "{")
    with small_study(tmp_path, jobs=1).opened() as study:
        with pytest.raises(RuntimeError, match=r"json.tool failed for b: Expecting property name.*b\.log"):
            study.work({"a": [good], "b": [bad]})
        assert good.output.exists()
        (tmp_path / "bad.in").write_text("{}")
        study.work({"a": [good], "b": [bad]})
        assert bad.output.exists()


def test_commands_side_by_side_share_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert small_study(tmp_path, jobs=2)._environment()["TF_NUM_INTRAOP_THREADS"] == "3"
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    assert "TF_NUM_INTRAOP_THREADS" not in small_study(tmp_path, jobs=1)._environment()


def test_two_studies_do_not_work_in_one_folder(tmp_path):
    with (
        small_study(tmp_path).opened(),
        pytest.raises(FileExistsError, match="One works there"),
        small_study(tmp_path).opened(),
    ):
        pass
    with small_study(tmp_path).opened() as study:  # free again
        assert study.seconds >= 0


def test_an_unfinished_run_is_resumed(tmp_path):
    study = small_study(tmp_path)
    assert "--resume" not in study.train_step(study.runs[0]).options
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "a" / "run.json").write_text("{}")
    step = study.train_step(study.runs[0])
    assert "--resume" in step.options
    assert train.parser().parse_args(step.options).out == tmp_path / "out" / "a"


# --- attention


@pytest.fixture(scope="module")
def attention_folder(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("studies") / "attention"
    with pytest.MonkeyPatch.context() as patch:
        work = InProcess()
        patch.setattr(Study, "work", lambda self, chains: work(chains))
        assert attention.main([*command_line(corpus, out, *LUONG), "--scores", "local-m"]) == 0
    assert work.done == [("recipes.train", "local-m")]
    return out


@pytest.mark.slow
def test_a_score_can_be_added_later(attention_folder, corpus, in_process):
    work = in_process(most=0)
    line = command_line(corpus, attention_folder, *LUONG)
    assert attention.main([*line, "--scores", "local-m"]) == 0
    assert attention.main([*line, "--scores", "dot,local-m"]) == 130, "dot is begun, local-m exists"
    assert work.done == []


@pytest.mark.slow
def test_attention_study_measures_what_was_trained(attention_folder, corpus):
    from keras_attn import Translator

    report = json.loads((attention_folder / "report.json").read_text())
    assert [row["name"] for row in report["scores"]] == ["local-m"]
    assert "--scores local-m" in report["command"]
    (row,) = report["scores"]
    trained = json.loads((attention_folder / "local-m" / "report.json").read_text())
    assert row["updates"] == 5
    assert {name: row["bleu"][name] for name in trained["bleu"]} == trained["bleu"]
    assert row["bleu"]["low"] <= row["bleu"]["high"]
    assert (trained["config"]["attention"], trained["config"]["score"]) == ("local_m", None)
    assert row["sharpness"]["entropy"] < row["sharpness"]["uniform_entropy"]
    # Sentence by sentence, as one would by hand.
    sources, references = ((corpus / f"test.{language}").read_text().splitlines() for language in ("en", "fr"))
    translator = Translator.from_preset(attention_folder / "local-m")
    log_probs = np.concatenate([translator.score([s], [r])[0].token_log_probs for s, r in zip(sources, references)])  # noqa: B905
    assert row["perplexity"] == pytest.approx(math.exp(-np.mean(log_probs)), rel=1e-3)
    assert (attention_folder / "attention.svg").read_text().startswith("<?xml")


def test_sharpness_by_hand():
    half = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.1, 0.1, 0.1, 0.1]])  # the last sums to 0.4
    result = sharpness([half, np.array([[1.0, 0.0]])])
    assert result["entropy"] == pytest.approx((math.log(2) + 0 + math.log(4) + 0) / 4)
    assert result["largest_weight"] == pytest.approx((0.5 + 1 + 0.25 + 1) / 4)
    assert result["uniform_entropy"] == pytest.approx((3 * math.log(4) + math.log(2)) / 4)


def test_attention_study_refuses_an_unknown_score(corpus, tmp_path, capfd):
    line = command_line(corpus, tmp_path / "out", *LUONG)
    assert attention.main([*line, "--scores", "dot,tanh"]) == 2
    assert "Received: 'tanh'" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


# --- showcase


def test_halves_are_compared_with_halves():
    reference = "un deux trois quatre cinq"
    assert showcase.chrf_of_halves("un deux zero zero zero", reference)[0] == 100
    assert showcase.chrf_of_halves("zero zero trois quatre cinq", reference)[1] == 100
    expected = sacrebleu.sentence_chrf("zero zero zero", ["trois quatre cinq"]).score
    assert showcase.chrf_of_halves("un deux zero zero zero", reference)[1] == round(expected, 2)
    assert showcase.chrf_of_halves("", reference) == (0, 0)


def test_sentences_are_ranked_by_the_advantage_of_attention():
    def row(name, fixed, attention):
        halves = [dict(zip(("first", "second"), pair, strict=True)) for pair in (fixed, attention)]
        return showcase.Sentence(name, "", "", halves)

    rows = [
        row("saves 10", (60, 50), (70, 60)),
        row("loses no half", (40, 50), (90, 90)),
        row("saves 30", (60, 20), (70, 50)),
        row("saves nothing", (60, 20), (70, 20)),
    ]
    assert [one.heading for one in showcase.ranked(rows)] == ["saves 30", "saves 10"]


@pytest.fixture(scope="module")
def showcase_folder(length_folder, corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("studies") / "showcase"
    runs = [str(length_folder / name) for name in ("rnnencdec-8", "rnnsearch-8")]
    assert showcase.main([*runs, "--corpus", str(corpus), "--min-words", "5", "--beam", "2", "--out", str(out)]) == 0
    return out


@pytest.mark.slow
def test_showcase_has_the_papers_sentence_and_the_long_ones(showcase_folder):
    report = json.loads((showcase_folder / "report.json").read_text())
    assert report["examples"][0]["source"].startswith("An admitting privilege is the right of a doctor")
    assert report["examples"][0]["reference"] is None
    start = "python -m recipes.studies.showcase rnnencdec-8 rnnsearch-8"
    assert report["command"] == f"{start} --min-words 5 --corpus digits --beam 2"
    assert report["sentences"] == 5  # of 5, 9, 12, 13 and 16 words
    assert len(report["examples"]) == 1 + report["lost"]
    for one in report["examples"][1:]:
        assert len(one["source"].split()) >= 5
        fixed, attention = one["translations"]
        assert fixed["second"] < fixed["first"]
        assert fixed["second"] < attention["second"]
    page = (showcase_folder / "showcase.html").read_text()
    assert page.count("<section>") == len(report["examples"])
    assert page.count("<article ") == 2 * len(report["examples"])
    assert page.count('class="line"') == report["lost"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{length}/rnnsearch-8", "{length}/rnnsearch-8"], "different runs"),
        (["{length}/rnnsearch-8", "{tmp}"], "different runs"),
        (["{length}/rnnencdec-8", "{length}/rnnsearch-8", "--min-words", "99"], "at least 99 words"),
        (["{length}/rnnencdec-8", "{length}/rnnsearch-8", "--split", "dev"], "among: train, val, test"),
        (["{length}/rnnencdec-8", "{length}/rnnsearch-8", "--min-words", "5", "--out", "{length}"], "new or empty"),
    ],
)
def test_showcase_refuses_with_a_sentence(arguments, message, length_folder, corpus, tmp_path, capfd):
    where = ["--corpus", str(corpus), "--out", str(tmp_path / "out")]
    chosen = [one.format(length=length_folder, tmp=tmp_path) for one in arguments]
    assert showcase.main([*chosen[:2], *where, *chosen[2:]]) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


# --- the results page


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder in the place of `recipes`."""
    monkeypatch.setattr(results, "FOLDER", tmp_path / "recipes")
    (tmp_path / "recipes" / "reports").mkdir(parents=True)
    shutil.copyfile(RESULTS / "reports" / "speed.jsonl", tmp_path / "recipes" / "reports" / "speed.jsonl")
    return tmp_path / "recipes"


@pytest.mark.slow
def test_results_page_is_written_from_reports(length_folder, attention_folder, showcase_folder, folder, capfd):
    runs = {
        "length": length_folder,
        "scores": attention_folder,
        "halves": showcase_folder,
        "rnnencdec-8": length_folder / "rnnencdec-8",
    }
    for name, run in runs.items():
        assert results.main([str(run), "--report", f"digits/{name}"]) == 0
    page = (folder / "README.md").read_text()
    for name, figure in (("length", length_folder / "length.svg"), ("scores", attention_folder / "attention.svg")):
        assert (folder / "reports" / "digits" / f"{name}.svg").read_bytes() == figure.read_bytes()
        assert (folder / "reports" / "digits" / f"{name}-narrow.svg").is_file()
        assert f"(reports/digits/{name}.svg)" in page
    assert (folder / "reports" / "digits" / "halves.html").is_file()
    report = json.loads((folder / "reports" / "digits" / "rnnencdec-8.json").read_text())
    bleu, trained = report["bleu"], json.loads((length_folder / "rnnencdec-8" / "report.json").read_text())
    assert bleu["low"] <= bleu["score"] == trained["bleu"]["score"] <= bleu["high"]
    row = f"| `rnnencdec` | 0.0 M | {bleu['score']:.2f} ± {(bleu['high'] - bleu['low']) / 2:.2f} |"
    assert row in page
    assert f"BLEU: `{bleu['signature']}`" in page
    assert results.main([]) == 0
    assert (folder / "README.md").read_text() == page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{tmp}"], "RUN and --report together"),
        (["--report", "digits/run"], "RUN and --report together"),
        (["{tmp}", "--report", "../run/run"], "CORPUS/NAME"),
        (["{tmp}/none", "--report", "digits/run"], "no"),
        (["{tmp}", "--report", "digits/run"], "Received: 'nosuch'"),
    ],
)
def test_results_refuse_with_a_sentence(arguments, message, folder, tmp_path, capfd):
    (tmp_path / "report.json").write_text('{"study": "nosuch"}')
    assert results.main([one.format(tmp=tmp_path) for one in arguments]) == 2
    assert message in capfd.readouterr().err
    assert not list(folder.glob("*.md"))


def test_one_corpus_has_one_signature(folder):
    reports = results.read_reports(RESULTS / "reports")
    runs = {name: reports[name] for name in ("multi30k-de-en/luong", "multi30k-tok-de-en/rnnsearch")}
    with pytest.raises(ValueError, match="one signature"):
        results.page({f"one/{n}": report for n, report in enumerate(runs.values())}, [])


def test_the_committed_page_is_what_the_reports_say():
    """Nothing in it is typed by hand."""
    rows = (RESULTS / "reports" / "speed.jsonl").read_text("utf-8").splitlines()
    page = results.page(results.read_reports(RESULTS / "reports"), list(map(json.loads, rows)))
    assert (RESULTS / "README.md").read_text("utf-8") == page
    assert len(page.splitlines()) <= 150
