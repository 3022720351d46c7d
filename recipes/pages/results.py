"""Writes the results page, `recipes/README.md`, and the figures of studies, from the reports in `recipes/reports/`.

    python -m recipes.pages.results                                                  # the page and the figures
    python -m recipes.pages.results RUN --report multi30k-de-en/nematus-bpe-dropout  # after adding the report of RUN

A report is named by whoever adds it: a folder for its corpus and a name that says what is special about the run; its
command, seed, versions, machine and history are inside. BLEU gets its bootstrap interval from the run's translations.
The page has a section for each folder: a table of its runs, then each study. Nothing on the page is typed by hand.
"""

import argparse
import itertools
import json
import math
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from keras_attn.cli import command
from recipes.pages import studies

FOLDER = Path(__file__).parents[1]  # recipes/
SAMPLES = 20  # translations that are kept in the report of a run
_NAME = re.compile(r"[\w.+-]+/[\w.+-]+")
_HEAD = """# Results

Written by `python -m recipes.pages.results` from the reports in `reports/`, which have command, configuration, seed,
versions, machine and history. Scores are of beam search on the test split, with half of the 95 % interval: over its
sentences for a run, over seeds for a study. Minutes are of training with validation, of some runs beside other work."""


def main(argv=None) -> int:
    parser = command.Parser("recipes.pages.results", description=__doc__)
    parser.add_argument("run", metavar="RUN", nargs="?", type=Path, help="folder of a finished run or study to add")
    parser.add_argument("--report", metavar="CORPUS/NAME", help="name of its report, such as phrases-en-fr/rnnsearch")
    return command.run(publish, parser, argv)


def publish(arguments: argparse.Namespace) -> None:
    """Adds a report if there is one to add, draws the figures and writes the page.

    Raises:
        ValueError: if RUN is given without --report or the other way round, or for another kind of name or study.
        FileNotFoundError: if RUN has no report.
    """
    reports = FOLDER / "reports"
    if (arguments.run is None) != (arguments.report is None):
        raise ValueError("Expected RUN and --report together, or neither.")
    if arguments.run:
        _add(arguments.run, arguments.report, reports)
    found = read_reports(reports)
    for name, report in found.items():
        if "study" in report:
            studies.draw(report, reports / name)
    (FOLDER / "README.md").write_text(page(found), encoding="utf-8")
    print(f"{len(found)} reports in {reports.name}/, and {FOLDER.name}/README.md.")


def read_reports(folder: Path) -> dict[str, dict]:
    """Reads all reports of a folder, by name: "multi30k-de-en/rnnsearch"."""
    paths = sorted(folder.glob("*/*.json"))
    return {f"{path.parent.name}/{path.stem}": json.loads(path.read_text("utf-8")) for path in paths}


def _add(run: Path, name: str, reports: Path) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"Expected --report CORPUS/NAME of letters, digits, '.', '+', '-' and '_'. Received: {name!r}")
    if not (run / "report.json").is_file():
        raise FileNotFoundError(f"Expected a finished run with a report.json. There is none in {str(run)!r}.")
    report = json.loads((run / "report.json").read_text("utf-8"))
    if "task" in report:
        (reports / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / "picture.png", reports / f"{name}.png")
    elif "study" not in report:
        _add_translations(report, run)
    elif report["study"] not in studies.STUDIES:
        raise ValueError(f"Expected a study among: {', '.join(studies.STUDIES)}. Received: {report['study']!r}")
    path = reports / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    for html in run.glob("*.html"):
        shutil.copyfile(html, path.with_suffix(".html"))
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _add_translations(report: dict, run: Path) -> None:
    """Adds the first translations of a run, and the interval of its BLEU."""
    from keras_attn import evaluation
    from keras_attn.training import report as run_report

    blocks = run_report.read_translations(run / "translations.txt")
    names = "source", "reference", "translation"
    report["samples"] = [dict(zip(names, block, strict=True)) for block in blocks[:SAMPLES]]
    if "bleu" in report:
        _, references, translations = zip(*blocks, strict=True)
        bleu = evaluation.bleu_interval(translations, references, tokenize=report["config"]["tokenize"])
        report["bleu"] |= {"low": round(bleu.low, 2), "high": round(bleu.high, 2)}


def page(reports: dict[str, dict]) -> str:
    """Returns the page in Markdown.

    Args:
        reports: All reports by name, as `read_reports` returns them.
    """
    parts, tasks = [_HEAD], {name: report for name, report in reports.items() if "task" in report}
    for corpus in dict.fromkeys(name.partition("/")[0] for name in reports if name not in tasks):
        own = {name: report for name, report in reports.items() if name.startswith(f"{corpus}/")}
        parts.append(f"## {corpus}")
        if runs := {name: report for name, report in own.items() if "bleu" in report or "wer" in report}:
            parts += _runs(runs)
        found = [(name, report) for name, report in own.items() if "study" in report]
        for _, same in itertools.groupby(found, lambda one: one[1]["study"]):
            parts.append("\\\n".join(part for one in same for part in studies.section(*one)))
    return "\n\n".join([*parts, *_tasks(tasks)]) + "\n"


def _tasks(reports: dict[str, dict]) -> list[str]:
    """The table of the recipes of `recipes/tasks/`."""
    rows = [
        [
            report["title"],
            "; ".join(f"{one} {score:.4g}" for one, score in report["scores"].items()),
            report["measured"],
            f"{report['parameters'] / 1e6:.2f} M",
            f"{report['processor_seconds'] / 60:.1f}",
            f"[report](reports/{name}.json), [picture](reports/{name}.png)",
        ]
        for name, report in reports.items()
    ]
    said = (
        "Recipes of `recipes/tasks/`, each a program: `python -m recipes.tasks.NAME --seed 0`. Minutes are of one core."
    )
    return ["## Other tasks", said, table(["task", "scores", "measured", "parameters", "minutes", "report"], rows)]


def _runs(runs: dict[str, dict]) -> list[str]:
    """The table of a corpus' runs, the best first, and the signature that they share."""
    metric = "bleu" if "bleu" in next(iter(runs.values())) else "wer"
    signatures = {report[metric]["signature"] for report in runs.values()}
    if metric == "wer":
        said = "Word error rate in percent (WER). Any of a word's pronunciations is correct."
    elif len(signatures) > 1:
        raise ValueError(f"Expected one signature in the folder of {next(iter(runs))}. Received: {sorted(signatures)}")
    else:
        said = f"BLEU: `{signatures.pop()}`"
    sign = 1 if metric == "wer" else -1
    order = sorted(runs, key=lambda name: (runs[name]["corpus"], sign * runs[name][metric]["score"]))
    rows = [
        [
            f"`{runs[name].get('recipe') or runs[name]['system']}`",
            f"{runs[name]['parameters'] / 1e6:.1f} M",
            _score(runs[name], metric),
            f"{runs[name]['train_seconds'] / 60:.1f}",
            f"[{name.partition('/')[2]}](reports/{name}.json)",
        ]
        for name in order
    ]
    return [said, table(["model", "parameters", metric.upper(), "minutes", "report"], rows)]


def _score(report: dict, metric: str) -> str:
    """A score with half of its 95 % interval, that of a proportion for an error rate."""
    score = report[metric]["score"]
    if metric == "wer":
        items = int(re.search(r"items:(\d+)", report["wer"]["signature"])[1])
        plain = report.get("wer_without_stress")
        more = f", without stress {plain['score']:.2f}" if plain else ""
        return f"{score:.2f} ± {1.96 * math.sqrt(score * (100 - score) / items):.2f}{more}"
    low, high = report["bleu"].get("low"), report["bleu"].get("high")
    return f"{score:.2f}" if low is None else f"{score:.2f} ± {(high - low) / 2:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
