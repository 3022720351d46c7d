"""Commands and figures that docstrings and pages quote are those of the committed reports."""

import dataclasses
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from keras_attn.cli import train
from keras_attn.training import TrainingConfig, plan
from recipes import (
    gnmt,
    hard_monotonic,
    lstm_seq2seq,
    luong,
    nematus,
    rnmt_plus,
    rnnencdec,
    rnnsearch,
    transformer,
)
from recipes.pages import results
from recipes.studies import aligners, alignment, length

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[2]
REPORTS = results.read_reports(ROOT / "recipes" / "reports")
STUDIES = {name: report for name, report in REPORTS.items() if "study" in report}
RUNS = {name: report for name, report in REPORTS.items() if name not in STUDIES}
TEXTS = [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]  # which quotes commands of the past
PAGES = [*TEXTS, *ROOT.glob("docs/**/*.md"), *ROOT.glob("saved_models/*.md"), *ROOT.glob("recipes/*.md")]
FOLDERS = ROOT / "recipes", ROOT / "keras_attn", ROOT / "tests" / "benchmarks"
FILES = sorted([*PAGES, *(path for folder in FOLDERS for path in folder.rglob("*.py"))])
NO_MORE = {"alignment_links", "shift_alignment"}  # settings of some reports that only a study has now
RECIPES = [gnmt, hard_monotonic, lstm_seq2seq, luong, nematus, rnmt_plus, rnnencdec, rnnsearch, transformer]


def quoted(pattern: str) -> list[tuple[str, str]]:
    """The file and the text of each command that is quoted; [OPTIONS] and NAMES to fill in are no command."""
    result = [(str(path.relative_to(ROOT)), match) for path in FILES for match in re.findall(pattern, path.read_text())]
    return [
        (path, text.strip()) for path, text in dict.fromkeys(result) if not re.search(r"[\[{*\\]|\b[A-Z]{3,}\b", text)
    ]


def configuration(command: str) -> tuple[TrainingConfig, float | None]:
    """Of a command after `keras-attn train`: the configuration and the minutes."""
    asked = plan.make_plan(**vars(train.parser().parse_args(shlex.split(command))))
    return asked.config, asked.minutes


def run_of(command: str) -> dict | None:
    """The report of the same recipe, corpus and changes, if there is one."""
    arguments = train.parser().parse_args(shlex.split(command))
    wanted = arguments.recipe, arguments.corpus, sorted(arguments.changes)
    for report in RUNS.values():
        trained = train.parser().parse_args(shlex.split(report["command"])[3:])
        if (trained.recipe, trained.corpus, sorted(trained.changes)) == wanted:
            return report
    return None


# Without the recipes that a reader writes.
TRAININGS = quoted(r"(?:python -m recipes\.train|keras-attn train) (?!my[\w.]*[./])(\w[^#\n`|'\"]*)")
TRAININGS += [(name, report["command"].removeprefix("python -m recipes.train ")) for name, report in RUNS.items()]


def test_there_are_commands():
    assert len({path for path, _ in TRAININGS}) >= 7
    assert len({text for _, text in TRAININGS if run_of(text)}) >= 14


@pytest.mark.parametrize(("path", "command"), TRAININGS)
def test_a_quoted_training_gives_the_configuration_of_its_report(path, command):
    """Settings that are younger than a report have the values that change nothing: their defaults."""
    config, minutes = configuration(command)
    if report := run_of(command):
        assert minutes == report["minutes"]
        settings = dataclasses.asdict(config)
        if settings["precision"] == "auto":
            settings["precision"] = "float32"  # of the reports' machines, which had no accelerator
        trained = {name: value for name, value in report["config"].items() if name not in NO_MORE}
        assert settings == dataclasses.asdict(type(config)()) | trained


def commands_in(report) -> list[tuple[str, dict]]:
    """The commands of a study's runs, with the figures beside them."""
    rows = [*report.get("systems", []), *report.get("scores", [])]
    return [(row["command"], row) for row in rows if "updates" in row]


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_the_commands_of_a_study_are_those_of_its_runs(name):
    for command, row in commands_in(STUDIES[name]):
        config, _ = configuration(command.removeprefix("python -m recipes.train "))
        assert config.max_steps == row["updates"]
        assert config.max_words == row.get("max_words")


def test_the_studies_would_train_with_these_commands():
    rows = REPORTS["tatoeba-en-fr/aligners"]["systems"]
    systems = {row["name"].removesuffix(alignment.BACKWARD): row["command"] for row in rows if "command" in row}
    assert list(systems) == [name for name in alignment.SYSTEMS if name in systems], "others are measured later"
    for name, command in systems.items():
        recipe, changes = alignment.SYSTEMS[name]
        settings = [f"max_steps={alignment.MAX_STEPS}", *alignment._SHARED, *changes]
        if name in alignment.EFLOMAL:
            languages = re.search(r"--source (\w+) --target (\w+)", command).groups()
            settings.append(f"alignment_links={aligners.guide(Path(), languages)}")
        assert command.split()[3] == (alignment.GUIDED if name in alignment.EFLOMAL else recipe)
        changed = command.partition(" --set ")[2].split()
        assert [change for change in changed if change != "bfloat16_products=true"] == settings


MODULES = quoted(r"python -m ((?:recipes|keras_attn|tests)(?:\.\w+)*)(?![\w.{])")


@pytest.mark.parametrize("module", sorted({module for _, module in MODULES}))
def test_a_quoted_module_is_there(module):
    assert importlib.util.find_spec(module)


# --- figures


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.__name__)
def test_the_results_in_a_docstring_are_those_of_the_reports(recipe):
    """Each plain report has its line, each line has its report, and so has each variant in brackets."""
    name = recipe.__name__.removeprefix("recipes.")
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
    lines = [words(line) for line in recipe.__doc__.splitlines() if " parameters, " in line]
    assert {line.partition(" (")[0] for line in lines} == expected
    for line in lines:
        _, bracket, variant = line.partition(" (")
        assert not bracket or f"({variant}" in variants


def rows_of(table: str) -> list[list[str]]:
    """The cells of a table in Markdown, without its head."""
    return [[cell.strip("*` ") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_tables_of_the_page_of_models_are_those_of_the_reports():
    text = (ROOT / "docs" / "guides" / "models.md").read_text("utf-8")
    tables = [rows_of(table) for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.M)]
    (budget,) = [rows for rows in tables if rows[0][0] == "lstm_seq2seq"]
    for cells in budget:
        recipe, _, changes = cells[0].partition("`, `")
        large = run_of(" ".join([recipe, "--corpus multi30k", *(["--set", changes] if changes else [])]))
        small = None if changes else run_of(f"{recipe} --corpus phrases")
        assert cells[1:] == [
            f"{large['parameters'] / 1e6:.1f} M",
            f"{large['bleu']['score']:.2f}",
            f"{small['bleu']['score']:.2f}" if small else "",
            f"{large['target_tokens_per_second']:,}",
            {"tensorflow": "TensorFlow", "jax": "JAX"}[large["backend"]],
        ]
    (symbols,) = [rows for rows in tables if rows[0][0] == "hard_monotonic"]
    for recipe, _, *cells in symbols:
        report = run_of(f"{recipe} --corpus g2p/ice --set max_steps=1000")
        assert (report["test_sentences"], report["training_pairs"], report["backend"]) == (100, 800, "torch")
        assert report["train_seconds"] // 60 == 11
        assert cells == [
            f"{report['parameters'] / 1e6:.1f} M",
            *(f"{report[rate]['score']:.2f} %" for rate in ("wer", "per")),
            f"{report['target_tokens_per_second']:,}",
        ]


def test_the_figures_in_hard_monotonics_docstring():
    hard, soft = (run_of(f"{name} --corpus g2p/ice --set max_steps=1000") for name in ("hard_monotonic", "rnnsearch"))
    sentence = f"{hard['wer']['score']:.2f} % of the test's words are wrong, and {soft['wer']['score']:.2f} % of those"
    assert sentence in words(hard_monotonic.__doc__)


def test_the_figures_in_luongs_docstring():
    bleu = {name: report["bleu"]["score"] for name, report in RUNS.items() if "bleu" in report}
    here, other = bleu["multi30k-de-en/luong"], bleu["multi30k-de-en/rnnsearch"]
    both_ways = bleu["multi30k-de-en/luong-bidirectional"]
    forwards = bleu["multi30k-de-en/luong-general-forwards"]
    rows = {row["name"]: row["bleu"]["score"] for row in REPORTS["multi30k-de-en/score-functions"]["scores"]}
    text = words(luong.__doc__)
    assert f"it is {other - here:.1f} BLEU below `rnnsearch`" in text
    assert f"as many parameters it is {both_ways - other:.1f} above" in text
    assert f"has {rows['general']:.2f} BLEU with the source reversed, and {forwards:.2f} with" in text


def test_the_figures_in_the_studies_docstrings():
    report = REPORTS["bible-en-es/length"]
    bleu = {system["name"]: [one["bleu"] for one in system["bins"]] for system in report["systems"]}
    search, short = bleu["RNNsearch-50"], bleu["RNNsearch-30"]
    text = words(length.__doc__)
    assert f"{report['minutes']:.0f} minutes, two runs in parallel on 2 cores" in text
    assert f"RNNsearch-50 keeps {min(search[1:]):.0f} to {max(search[1:]):.0f} BLEU from 11 to 60 words" in text
    assert f"RNNsearch-30 keeps {min(short[1:5]):.0f} up to 50 words and falls to {short[5]:.0f} beyond" in text
    ends = [[f"{bleu[name][n]:.0f}" for name in ("RNNencdec-50", "RNNencdec-30")] for n in (0, 1, 5)]
    assert f"falls from {' or '.join(ends[0])} BLEU for up to 10 words to {' or '.join(ends[1])} for up to 20" in text
    assert ends[2] == ["9", "9"]
    assert "and to 9 in the end" in text
    systems = REPORTS["tatoeba-en-fr/aligners"]["systems"]
    aer = {row["name"]: row["test"]["aer"] for row in systems}
    expected = f"({aer['luong-both-ways']:.1f}, against {aer['luong-general']:.1f} with a unidirectional one)"
    assert expected in words(alignment.__doc__)
