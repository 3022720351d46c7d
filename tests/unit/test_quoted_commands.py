"""Commands and figures that docstrings and pages quote are those of the committed reports."""

import dataclasses
import importlib
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from keras_attn.cli import train
from keras_attn.training import TrainingConfig, plan
from recipes import hard_monotonic, luong
from recipes.pages import results
from recipes.studies import alignment, length

ROOT = Path(__file__).parents[2]
REPORTS = results.read_reports(ROOT / "recipes" / "reports")
STUDIES = {name: report for name, report in REPORTS.items() if "study" in report}
RUNS = {name: report for name, report in REPORTS.items() if not {"study", "task"} & report.keys()}
TEXTS = [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]  # which quotes commands of the past
PAGES = [*TEXTS, *ROOT.glob("docs/**/*.md"), *ROOT.glob("saved_models/*.md"), *ROOT.glob("recipes/*.md")]
FOLDERS = ROOT / "recipes", ROOT / "keras_attn", ROOT / "tests" / "benchmarks"
FILES = sorted([*PAGES, *(path for folder in FOLDERS for path in folder.rglob("*.py"))])
RECIPES = sorted(path.stem for path in (ROOT / "recipes").glob("*.py") if "\nCONFIGS = " in path.read_text("utf-8"))
TRAIN = r"^(python -m recipes\.train|keras-attn train) "
NO_MORE = {"alignment_links", "shift_alignment"}  # settings of some reports that only a study has now


def quoted(pattern: str) -> list[str]:
    """The commands that are quoted; [OPTIONS] and NAMES to fill in are no command."""
    found = [match.strip() for path in FILES for match in re.findall(pattern, path.read_text("utf-8"))]
    return [text for text in dict.fromkeys(found) if not re.search(r"[\[{*\\]|\b[A-Z]{3,}\b", text)]


def configuration(command: str) -> tuple[TrainingConfig, float | None]:
    """Of a command after `keras-attn train`: the configuration and the minutes."""
    asked = plan.make_plan(**vars(train.parser().parse_args(shlex.split(command))))
    return asked.config, asked.minutes


def run_of(command: str) -> dict | None:
    """The report of the same recipe, corpus and changes, if there is one."""
    arguments = train.parser().parse_args(shlex.split(command))
    wanted = arguments.recipe, arguments.corpus, sorted(arguments.changes)
    for report in RUNS.values():
        trained = train.parser().parse_args(shlex.split(re.sub(TRAIN, "", report["command"])))
        if (trained.recipe, trained.corpus, sorted(trained.changes)) == wanted:
            return report
    return None


# Without the recipes that a reader writes.
QUOTED = quoted(r"(?:python -m recipes\.train|keras-attn train) (?!my[\w.]*[./])(\w[^#\n`|'\"]*)")
TRAININGS = [*QUOTED, *(re.sub(TRAIN, "", report["command"]) for report in RUNS.values())]


@pytest.mark.parametrize("command", dict.fromkeys(TRAININGS))
def test_a_quoted_training_gives_the_configuration_of_its_report(command):
    """Settings that are younger than a report have the values that change nothing: their defaults."""
    assert len(QUOTED) >= 14, "no commands are found"
    config, minutes = configuration(command)
    if report := run_of(command):
        assert minutes == report["minutes"]
        settings = dataclasses.asdict(config)
        if settings["precision"] == "auto":
            settings["precision"] = "float32"  # of the reports' machines, which had no accelerator
        trained = {name: value for name, value in report["config"].items() if name not in NO_MORE}
        if settings["bfloat16_products"] is None:  # by the processor, and in the reports off unless it is named
            settings["bfloat16_products"] = trained.setdefault("bfloat16_products", False)
        assert settings == dataclasses.asdict(type(config)()) | trained


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_the_commands_of_a_study_are_those_of_its_runs(name):
    for row in [*STUDIES[name].get("systems", []), *STUDIES[name].get("scores", [])]:
        if "updates" in row:
            config, _ = configuration(re.sub(TRAIN, "", row["command"]))
            assert (config.max_steps, config.max_words) == (row["updates"], row.get("max_words"))


def test_quoted_modules_exist():
    modules = set(quoted(r"python -m ((?:recipes|keras_attn|tests)(?:\.\w+)*)(?![\w.{])"))
    assert not [module for module in modules if not importlib.util.find_spec(module)]


# --- figures


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", RECIPES)
def test_the_results_in_a_docstring_are_those_of_the_reports(name):
    """Each plain report has its line, each line has its report, and so has each variant in brackets."""
    expected, variants = set(), set()
    for report in RUNS.values():
        metric = "bleu" if "bleu" in report else "wer"
        score, minutes = f"{report[metric]['score']:.2f}", f"{report['train_seconds'] / 60:.0f}"
        changes = report["command"].partition(" --set ")[2]
        if report["recipe"] == name and changes:
            variants |= {f"({score} with {changes})", f"({score} in {minutes} with {changes})"}
        elif report["recipe"] == name:
            size = f"{report['parameters'] / 1e6:.1f} M parameters"
            expected.add(f"{report['corpus']} {size}, {metric.upper()} {score}, {minutes} minutes")
    text = importlib.import_module(f"recipes.{name}").__doc__
    lines = [words(line).partition(" (") for line in text.splitlines() if " parameters, " in line]
    assert {line for line, *_ in lines} == expected
    assert {f"({variant}" for _, bracket, variant in lines if bracket} <= variants


def test_the_tables_of_the_page_of_models_are_those_of_the_reports():
    text = (ROOT / "docs" / "guides" / "models.md").read_text("utf-8")
    rows = [[cell.strip("*` ") for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*", text, re.M)]
    backends = {"tensorflow": "TensorFlow", "jax": "JAX"}
    rows = [row for row in rows if row[0].partition("`")[0] in RECIPES and len(row) > 3]
    assert len(rows) == 8
    for name, *cells in rows:
        recipe, _, changes = name.partition("`, `")
        if cells[0].endswith(" M"):
            report = run_of(" ".join([recipe, "--corpus multi30k", *(["--set", changes] if changes else [])]))
            small = None if changes else run_of(f"{recipe} --corpus phrases")
            expected = [f"{one['bleu']['score']:.2f}" if one else "" for one in (report, small)]
            expected += [f"{report['target_tokens_per_second']:,}", backends[report["backend"]]]
        else:  # symbols
            report = run_of(f"{recipe} --corpus g2p/ice --set max_steps=1000")
            assert (report["test_sentences"], report["training_pairs"], report["backend"]) == (100, 800, "torch")
            assert report["train_seconds"] // 60 == 11
            expected = [f"{report[rate]['score']:.2f} %" for rate in ("wer", "per")]
            expected.append(f"{report['target_tokens_per_second']:,}")
            cells = cells[1:]
        assert cells == [f"{report['parameters'] / 1e6:.1f} M", *expected]


def test_the_figures_in_docstrings_are_those_of_the_reports():
    hard, soft = (run_of(f"{name} --corpus g2p/ice --set max_steps=1000") for name in ("hard_monotonic", "rnnsearch"))
    wrong = f"{hard['wer']['score']:.2f} % of the test's words are wrong, and {soft['wer']['score']:.2f} % of those"
    assert wrong in words(hard_monotonic.__doc__)

    bleu = {name.partition("/")[2]: report["bleu"]["score"] for name, report in RUNS.items() if "multi30k-de" in name}
    general = {row["name"]: row for row in REPORTS["multi30k-de-en/score-functions"]["scores"]}["general"]
    text, reversed_source = words(luong.__doc__), general["bleu"]["score"]
    assert f"it is {bleu['rnnsearch'] - bleu['luong']:.1f} BLEU below `rnnsearch`" in text
    assert f"as many parameters it is {bleu['luong-bidirectional'] - bleu['rnnsearch']:.1f} above" in text
    assert f"{reversed_source:.2f} BLEU with the source reversed, and {bleu['luong-general-forwards']:.2f} with" in text

    report, text = REPORTS["bible-en-es/length"], words(length.__doc__)
    bins = {system["name"]: [f"{one['bleu']:.0f}" for one in system["bins"]] for system in report["systems"]}
    search, short = bins["RNNsearch-50"], bins["RNNsearch-30"]
    assert f"{report['minutes']:.0f} minutes, two runs in parallel on 2 cores" in text
    assert f"RNNsearch-50 keeps {min(search[1:])} to {max(search[1:])} BLEU from 11 to 60 words" in text
    assert f"RNNsearch-30 keeps {min(short[1:5])} up to 50 words and falls to {short[5]} beyond" in text
    first, second, *_, last = (
        " or ".join(pair) for pair in zip(bins["RNNencdec-50"], bins["RNNencdec-30"], strict=True)
    )
    assert f"falls from {first} BLEU for up to 10 words to {second} for up to 20, and to 9 in the end" in text
    assert last == "9 or 9"

    aer = {row["name"]: row["test"]["aer"] for row in REPORTS["tatoeba-en-fr/aligners"]["systems"]}
    expected = f"({aer['luong-both-ways']:.1f}, against {aer['luong-general']:.1f} with a unidirectional one)"
    assert expected in words(alignment.__doc__)


def numbers(value) -> list[float]:
    if isinstance(value, dict | list):
        return [one for part in (value.values() if isinstance(value, dict) else value) for one in numbers(part)]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.parametrize(("page", "count"), [("papers", 22), ("beyond-text", 4)])
def test_the_figures_beside_the_papers_are_those_of_the_reports(page, count):
    """Each decimal fraction of the column "ours" is in a report that its row links."""
    text = (ROOT / "docs" / "lecture" / f"{page}.md").read_text("utf-8")
    rows = [line.split("|") for line in re.findall(r"^\|(.*reports/.*)\|$", text, re.M)]
    assert len(rows) == count
    for _, _, ours, sources, _ in rows:
        known = [one for name in re.findall(r"reports/([\w/-]+)\.json", sources) for one in numbers(REPORTS[name])]
        assert known
        for figure in re.findall(r"\d+\.\d+", ours):
            wanted, digits = float(figure), len(figure.partition(".")[2])
            assert any(round(one / scale, digits) == wanted for one in known for scale in (1, 1e6)), (figure, ours)
