"""Publishes finished runs and studies: reports into `recipes/reports/`, and the results page, `recipes/README.md`.

    python -m recipes.pages.results [RUN ...]

Each RUN's report.json becomes `reports/<recipe>-<corpus>-<source>-<target>.json`, with its first twenty translations;
the settings that its command changed by `--set` are part of the name, as they are of a study of one recipe. Another
study's becomes `reports/<study>-<corpus>-<source>-<target>.json`, with its page if it has one. Then the page is written
and the studies' figures are drawn, from all committed reports, including those of `recipes.sweep`
(`reports/sweep-<name>.json`) and the last lines of the benchmarks (`reports/speed.jsonl`, measured in one session):
nothing is typed by hand.
"""

import argparse
import hashlib
import json
import re
import shutil
import sys
from pathlib import Path

from keras_attn.cli import command
from keras_attn.training import read_report
from recipes.pages import alt_texts, speed, studies
from recipes.pages.markdown import table

FOLDER = Path(__file__).parents[1]  # recipes/
SAMPLES = 20
_LONGEST = 185  # characters of a report's name


def main(argv=None) -> int:
    parser = command.Parser("recipes.pages.results", description=__doc__.splitlines()[0])
    parser.add_argument("runs", metavar="RUN", nargs="*", type=Path, help="folders of finished runs")
    return command.run(publish, parser, argv)


def publish(arguments: argparse.Namespace) -> None:
    reports = FOLDER / "reports"
    reports.mkdir(exist_ok=True)
    chosen = [(run, _read(run)) for run in arguments.runs]
    for run, report in chosen:
        _publish_one(run, report, reports)
    published = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(reports.glob("*.json"))}
    for name, report in published.items():
        if "study" in report:
            studies.draw(report, reports / name)
        elif "wer" in report:
            from keras_attn import plots  # matplotlib is slow to import

            plots.training_curves(report["history"], reports / f"{name}.svg")
    path = reports / "speed.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    (FOLDER / "README.md").write_text(_page(published, [json.loads(line) for line in lines]), encoding="utf-8")
    print(f"{len(published)} reports in {reports.name}/, and {FOLDER.name}/README.md.")


def _read(run: Path) -> dict:
    """The report of a finished run or study.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: for a study without a section on the page.
    """
    if not (run / "report.json").is_file():
        raise FileNotFoundError(f"Expected a finished run with a report.json. There is none in {str(run)!r}.")
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    if "study" in report and not studies.is_known(report):
        raise ValueError(f"Expected a study with a section on the results page. Received: {report['study']!r}")
    return report


def _publish_one(run: Path, report: dict, reports: Path) -> None:
    name = name_of(report)
    if "study" not in report:
        from keras_attn.training import report as run_report

        names = "source", "reference", "translation"
        blocks = run_report.read_translations(run / "translations.txt")[:SAMPLES]
        report["samples"] = [dict(zip(names, block, strict=True)) for block in blocks]
    for page in run.glob("*.html"):
        shutil.copyfile(page, reports / f"{name}.html")
    text = json.dumps(report, indent=2, ensure_ascii=False)
    (reports / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def name_of(report: dict) -> str:
    """The name of a report's file: recipe or study, corpus, languages, and the recipe's settings that were changed.

    A study whose runs go on from others is "fine-tuned". A long name ends in a digest.
    """
    parts = [report.get("study") or report["recipe"], *(report[key] for key in ("corpus", "source", "target"))]
    parts += ["fine-tuned"] if report.get("starts") else []
    is_of_recipe = "recipe" in report  # a run, or a study of one recipe
    changed = report["command"].partition(" --set ")[2] if is_of_recipe else ""
    name = "-".join([*parts, *(re.sub(r"[^\w.+-]+", "-", change) for change in changed.split())]).replace("/", "-")
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST - 9]}-{digest}"


def name_of_run(run: Path) -> str:
    """The same for a run's folder; the folder's own name if it has a preset without a report."""
    report = read_report(run)
    return name_of(report) if "recipe" in report else run.name


def _page(reports: dict[str, dict], benchmarks: list[dict]) -> str:
    """The results page in Markdown."""

    def by_corpus(item):
        return item[1]["corpus"], item[0]

    sweeps = {name.removeprefix("sweep-"): reports[name] for name in reports if name.startswith("sweep-")}
    study_reports = {name: report for name, report in reports.items() if "study" in report}
    runs = {
        name: report for name, report in reports.items() if name not in study_reports and not name.startswith("sweep-")
    }
    runs = dict(sorted(runs.items(), key=by_corpus))
    scored = {name: report for name, report in (runs | study_reports).items() if "bleu" in report}
    scored = dict(sorted(scored.items(), key=by_corpus))  # with the peers, which are studies
    head = ["run", "parameters", "BLEU", "chrF", "minutes", "target tokens/s", "backend", "BLEU signature", "command"]
    parts = [
        "# Results",
        "Written by `python -m recipes.pages.results` from the reports in `reports/`, which have all details: "
        "configuration, seed, versions, machine, history. Scores are of beam search, minutes of training including "
        "validation, rates of real target tokens (without padding) per second of training. Some runs had one core, or "
        "shared two with other work: their minutes are an upper bound and their rates a lower one. Commands and "
        "configurations have the settings' present names, with which the commands give the same configurations.",
        table(head, [_row(name, report) for name, report in scored.items()]),
        *(studies.section(name, report) for name, report in study_reports.items()),
    ]
    parts += speed.sections(benchmarks)
    for name, report in runs.items():
        details = _details(report) if "bleu" in report else error_rate_details(name, report)
        parts += [f"## {name}", f"```\n{report['command']}\n```", details]
        parts += [_sweep_table(name, sweeps[name])] if name in sweeps else []
        parts += [_sample_table(report)]
    return "\n\n".join(parts) + "\n"


def _row(name: str, report: dict) -> list[str]:
    return [
        f"[{name}](reports/{name}.json)",
        f"{report['parameters'] / 1e6:.1f} M",
        f"{report['bleu']['score']:.2f}",
        f"{report['chrf']['score']:.2f}",
        f"{report['train_seconds'] / 60:.1f}",
        f"{report['target_tokens_per_second']:,}",
        report.get("system", report["backend"]),
        f"`{report['bleu']['signature']}`",
        f"`{report['command']}`",
    ]


def _details(report: dict) -> str:
    signatures = "; ".join(f"{key}: `{report[key]['signature']}`" for key in ("bleu", "chrf", "ter"))
    curve = ", ".join(f"{bleu:.1f}" for bleu in report["history"]["val_bleu"])
    return (
        f"Seed {report['seed']}, beam {report['beam_size']} (greedy: {report['greedy_bleu']['score']:.2f} BLEU), TER "
        f"{report['ter']['score']:.2f}, {report['epochs']} {_unit(report)}s, {report['hardware']['cores']} cores, "
        f"peak memory {report['peak_memory_mb']:,} MB. {signatures}. Validation BLEU (greedy) after each "
        f"{_unit(report)}: {curve}.{_average(report, 'val_bleu')}"
    )


def _unit(report: dict) -> str:
    """What the rows of a run's history are: passes over the data, or parts of one."""
    return "validation" if report["config"].get("validate_every") else "epoch"


def _average(report: dict, score: str) -> str:
    """A sentence about the mean of the last weights, if the run tried it (`average_checkpoints`)."""
    if not (mean := report.get("averaged_checkpoints")):
        return ""
    kept = "was kept" if mean["is_kept"] else "was not kept, for the best single one scores better"
    return f" The mean of the weights of the last {mean['number']} validations has {mean[score]:.2f} there, and {kept}."


def error_rate_details(name: str, report: dict) -> str:
    """Describes a run whose metric is an error rate."""
    curve = ", ".join(f"{rate:.1f}" for rate in report["history"]["val_wer"])
    wer, per, greedy = (report[key]["score"] for key in ("wer", "per", "greedy_wer"))
    return (
        f"Word error rate **{wer:.2f} %**, phoneme error rate {per:.2f} % (beam {report['beam_size']}; "
        f"`{report['wer']['signature']}`: any of a word's pronunciations is correct, and each word counts once); "
        f"greedy word error rate {greedy:.2f} %. {report['test_sources_in_training']} words of the test are in the "
        f"training split too. [{name}](reports/{name}.json): {report['parameters'] / 1e6:.1f} M parameters, "
        f"{report['epochs']} {_unit(report)}s, {report['train_seconds'] / 60:.1f} minutes on "
        f"{report['hardware']['cores']} cores ({report['backend']}), {report['target_tokens_per_second']:,} target "
        f"tokens/s, seed {report['seed']}. "
        f"Validation word error rate (greedy) after each {_unit(report)}: {curve}.{_average(report, 'val_wer')}\n\n"
        f"![{alt_texts.of_curve(report, 'wer')}](reports/{name}.svg)"
    )


def _sweep_table(name: str, sweep: dict) -> str:
    """BLEU by beam size and length penalty."""
    scores = {(row["beam_size"], row["length_penalty"]): row["bleu"]["score"] for row in sweep["rows"]}
    penalties = sorted({penalty for beam, penalty in scores if beam > 1})
    rows = [
        f"| beam | {' | '.join(f'α {penalty:g}' for penalty in penalties)} |",
        f"|{' --- |' * (len(penalties) + 1)}",
    ]
    for beam in sorted({beam for beam, _ in scores}):
        cells = [f"{scores[beam, 1.0 if beam == 1 else penalty]:.2f}" for penalty in penalties]
        rows.append(f"| {beam} | {' | '.join(cells)} |")
    return (
        f"BLEU of other searches ([sweep-{name}](reports/sweep-{name}.json), {sweep['split']} split; a beam of one is "
        "greedy search, which has no length penalty):\n\n" + "\n".join(rows)
    )


def _sample_table(report: dict) -> str:
    return table(["source", "reference", "translation"], [[*one.values()] for one in report["samples"]])


if __name__ == "__main__":
    sys.exit(main())
