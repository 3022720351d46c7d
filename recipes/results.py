"""Publishes finished runs: their reports into `recipes/reports/`, and the results page, `recipes/README.md`.

    python -m recipes.results [RUN ...]

Each RUN's report.json becomes `reports/<recipe>-<corpus>-<source>-<target>.json`, with its first twenty translations.
The page is then written anew from all committed reports, those of `recipes.sweep` (`reports/sweep-<name>.json`) and the
last lines of the benchmarks (`reports/speed.jsonl`, all of one sitting) among them: nothing in it is typed by hand.
"""

import argparse
import json
import sys
from pathlib import Path

from recipes import command

FOLDER = Path(__file__).parent
SAMPLES = 20


def main(argv=None) -> int:
    parser = command.Parser("recipes.results", description=__doc__.splitlines()[0])
    parser.add_argument("runs", metavar="RUN", nargs="*", type=Path, help="folders of finished runs")
    return command.run(publish, parser, argv)


def publish(arguments: argparse.Namespace) -> None:
    reports = FOLDER / "reports"
    reports.mkdir(exist_ok=True)
    for run in arguments.runs:
        if not (run / "report.json").is_file():
            raise FileNotFoundError(f"Expected a finished run with a report.json. There is none in {str(run)!r}.")
        report = json.loads((run / "report.json").read_text(encoding="utf-8"))
        report["samples"] = _samples(run / "translations.txt")
        name = "-".join(report[key] for key in ("recipe", "corpus", "source", "target"))
        text = json.dumps(report, indent=2, ensure_ascii=False)
        (reports / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(reports.glob("*.json"))}
    speed = [json.loads(line) for line in (reports / "speed.jsonl").read_text(encoding="utf-8").splitlines()]
    (FOLDER / "README.md").write_text(_page(found, speed), encoding="utf-8")
    print(f"{len(found)} reports in {reports.name}/, and {FOLDER.name}/README.md.")


def _samples(path: Path) -> list[dict[str, str]]:
    """The first translations of a run, as written by `train`: three lines and a blank one each."""
    blocks = path.read_text(encoding="utf-8").split("\n\n")[:SAMPLES]
    lines = [[line.partition(":")[2].strip() for line in block.split("\n")] for block in blocks if block.strip()]
    return [dict(zip(("source", "reference", "translation"), block, strict=True)) for block in lines]


def _page(reports: dict[str, dict], speed: list[dict]) -> str:
    """The results page in Markdown."""
    from recipes import scoring

    sweeps = {name.removeprefix("sweep-"): reports[name] for name in reports if name.startswith("sweep-")}
    reports = {name: report for name, report in reports.items() if not name.startswith("sweep-")}
    head = "run | parameters | BLEU | greedy BLEU | chrF | TER | epochs | minutes | target tokens/s | backend"
    parts = [
        "# Results",
        "Written by `python -m recipes.results` from the reports in `reports/`, which say everything: configuration, "
        "seed, versions, machine, history. Beam search unless said otherwise; minutes are of training, validation "
        "included; rates are real target tokens a second of training.",
        f"| {head} |\n|{' --- |' * (head.count('|') + 1)}",
    ]
    parts[-1] += "".join(f"\n| {_row(name, report)} |" for name, report in reports.items() if "bleu" in report)
    parts += ["## Speed", _speed(speed)]
    for name, report in reports.items():
        details = _details(report) if "bleu" in report else scoring.details(name, report)
        parts += [f"## {name}", f"```\n{report['command']}\n```", details]
        parts += [_sweep_table(name, sweeps[name])] if name in sweeps else []
        parts += [_sample_table(report)]
    return "\n\n".join(parts) + "\n"


def _row(name: str, report: dict) -> str:
    return " | ".join(
        [
            f"[{name}](reports/{name}.json)",
            f"{report['parameters'] / 1e6:.1f} M",
            *(f"{report[key]['score']:.2f}" for key in ("bleu", "greedy_bleu", "chrf", "ter")),
            str(report["epochs"]),
            f"{report['train_seconds'] / 60:.1f}",
            f"{report['target_tokens_per_second']:,}",
            report["backend"],
        ]
    )


def _details(report: dict) -> str:
    signatures = "; ".join(f"{key}: `{report[key]['signature']}`" for key in ("bleu", "chrf", "ter"))
    curve = ", ".join(f"{bleu:.1f}" for bleu in report["history"]["val_bleu"])
    return (
        f"Seed {report['seed']}, beam {report['beam_size']}, {report['hardware']['cores']} cores, peak memory "
        f"{report['peak_memory_mb']:,} MB. {signatures}. Validation BLEU (greedy) after each epoch: {curve}."
    )


def _speed(rows: list[dict]) -> str:
    """What the benchmarks measured, each figure with its ratio to the peer's of the same sitting."""
    columns = {
        "train": {"target_tokens_per_second": "target tokens/s", "peak_memory_mb": "peak MB"},
        "decode": {
            "sentences_per_second": "beam 5, sentences/s",
            "greedy_sentences_per_second": "greedy, sentences/s",
            "single_sentence_ms": "one sentence, beam 5, ms",
        },
    }
    parts = [
        "13.0 M parameters on multi30k-tok de-en, 2 cores, 128 sentences a batch (`tests.benchmarks.train_throughput` "
        "and `decode_throughput`); in brackets the ratio to JoeyNMT 2.3, measured next before or after on the same, "
        "shared machine, with the same sizes and, for decoding, the same weights. Padding counts as loss in the share "
        "of the matrix-product rate."
    ]
    for benchmark, names in columns.items():
        found = [row for row in rows if row["benchmark"] == benchmark]
        head = ["system", *names.values(), "share of matrix products"]
        lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
        for row in found:
            cells = [
                f"{row[name]:,} ({row[name] / row['peer'][name]:.2f})" if name in row["peer"] else f"{row[name]:,}"
                for name in names
            ]
            lines.append(f"| {' | '.join([row['backend'], *cells, str(row['share_of_gemm'])])} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


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
    rows = [[cell.replace("|", "\\|") for cell in sample.values()] for sample in report["samples"]]
    return "| source | reference | translation |\n| --- | --- | --- |\n" + "\n".join(
        f"| {' | '.join(row)} |" for row in rows
    )


if __name__ == "__main__":
    sys.exit(main())
