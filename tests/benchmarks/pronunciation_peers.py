"""The peers of pronunciation: g2p-en, phonetisaurus and yoyodyne, beside runs of this project, on the same test words.

    python -m tests.benchmarks.pronunciation_peers WORK --corpus cmudict --systems g2p-en phonetisaurus --runs RUN
    python -m tests.benchmarks.pronunciation_peers WORK --corpus g2p/fre --systems phonetisaurus yoyodyne --runs RUN

Each peer gets an environment of its own in WORK from the package index, once. Each answers the distinct test words on
one core; its score is that of `recipes.evaluate` for pronunciations, words a second are without loading the model.

- g2p-en: its network alone, without its dictionary, for English. It was trained on all of CMUdict, so that it has seen
  the test words. It is greedy; stress is left out.
- phonetisaurus: trained on the training words with its own settings, an 8-gram model of aligned letters and phones.
- yoyodyne: `HardAttentionLSTMModel` with the settings of its example file (Wu and Cotterell's: first order, monotonic,
  400 units, dropout 0.3, Adam at 1e-3) and of its example of a trainer (gradient norm 3, 100 epochs, patience 10), in
  batches of 32, on all cores for at most `--minutes`; the weights with the best accuracy on the validation words.
- RUN: a run of `recipes.train` on the corpus, with a beam of 5, on `$KERAS_BACKEND`. Of a run whose model is not there
  `--reports` takes the report, which has no rate.

What is finished is kept in WORK, one file for each system, and not measured again; with other `--minutes` or on another
backend it is refused. WORK/report-CORPUS/report.json is for the results page: `python -m recipes.pages.results
WORK/report-CORPUS`.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

from keras_attn import files
from keras_attn.cli import command
from keras_attn.cli.command import run_folder
from keras_attn.training import read_report
from tests.benchmarks.pronunciation_systems import OF_REPORTS, SYSTEMS, Pairs, of_report, of_run


def scored(found: dict, words: list[str], test: Pairs) -> dict:
    """What a system answered, with its error rates and without the answers."""
    from keras_attn.evaluation import by_metric

    phones, speed = dict(zip(words, found.pop("phones"), strict=True)), len(words) / found.pop("seconds")
    scores = by_metric.all_scores("wer", *test, [phones[word] for word in test[0]], "none")
    return found | scores | {"words_per_second": round(speed, 1)}


def check(arguments: argparse.Namespace, corpus: str) -> None:
    """Refuses what would be measured in vain.

    Raises:
        ValueError: for g2p-en without CMUdict, two systems of one name, or what is no run on the corpus.
    """
    if "g2p-en" in arguments.systems and corpus != "cmudict":
        raise ValueError(f"Expected g2p-en with cmudict, whose phones it gives. Received: {corpus}")
    names = [*arguments.systems, *(run.resolve().name for run in arguments.runs)]
    names += [path.stem for path in arguments.reports]
    if len(set(names)) < len(names):
        raise ValueError(f"Expected systems and runs of different names. Received: {', '.join(names)}")
    reports = {run.name: read_report(run) for run in arguments.runs}
    reports |= {path.name: json.loads(path.read_text(encoding="utf-8")) for path in arguments.reports}
    for name, report in reports.items():
        if report.get("corpus") not in (corpus, arguments.corpus) or not report.keys() >= {*OF_REPORTS, "beam_size"}:
            raise ValueError(f"Expected runs of recipes.train on {corpus}. Received: {name}, of {report.get('corpus')}")


def kept_rows(work: Path, corpus: str, conditions: dict[str, dict]) -> dict[str, dict]:
    """The rows that are finished, by system.

    Raises:
        ValueError: if one was measured under other conditions.
    """
    rows = {}
    for system, own in conditions.items():
        path = work / f"{corpus}-{system}.json"
        if path.exists():
            rows[system] = row = json.loads(path.read_text(encoding="utf-8"))
            if other := {name: row[name] for name in own if row.get(name, own[name]) != own[name]}:
                raise ValueError(f"Expected {system} with {other}, as {path.name} has it in WORK. Received: {own}")
    return rows


def measure(arguments: argparse.Namespace) -> None:
    """Measures what is not kept yet, and writes the report."""
    from keras_attn.training import corpora, report, surroundings

    corpus = corpora.load(arguments.corpus, "letters", "phones", data=arguments.data)
    check(arguments, corpus.name)
    test = corpus.splits["test"]
    words = list(dict.fromkeys(test[0]))
    name = corpus.name.replace("/", "-")
    work = arguments.work.resolve()
    calls = {
        system: lambda system=system: SYSTEMS[system](
            work, words, corpus.splits["train"], corpus.splits["val"], arguments.minutes
        )
        for system in arguments.systems
    }
    calls |= {run.resolve().name: lambda run=run: of_run(work, words, run) for run in arguments.runs}
    conditions = {
        system: {"minutes": arguments.minutes} if system == "yoyodyne" else {} for system in arguments.systems
    }
    conditions |= {run.resolve().name: {"backend": surroundings()["backend"]} for run in arguments.runs}
    with files.locked(work):
        rows = kept_rows(work, name, conditions)
        for system in [system for system in conditions if system not in rows]:
            print(f"{system} ...", file=sys.stderr, flush=True)
            rows[system] = {"name": system} | conditions[system] | scored(calls[system](), words, test)
            report.write(work / f"{name}-{system}.json", rows[system])
        rows = {system: rows[system] for system in conditions}  # in the order of the command
        for path in arguments.reports:
            rows[path.stem] = {"name": path.stem} | of_report(json.loads(path.read_text(encoding="utf-8")))
        settings = {"study": "pronunciation_peers", "corpus": corpus.name, "source": "letters", "target": "phones"}
        settings |= {"command": command_line(arguments, corpus.name), "test_words": len(words)}
        folder = work / f"report-{name}"
        folder.mkdir(exist_ok=True)
        report.write(folder / "report.json", settings | {"systems": list(rows.values())} | surroundings())
    for row in rows.values():
        rate = f"  {row['words_per_second']:,} words/s on one core" if "words_per_second" in row else ""
        print(f"{row['name']:>24}  WER {row['wer']['score']:5.2f}{rate}")
    print(f"The report is in {folder}.")


def command_line(arguments: argparse.Namespace, corpus: str) -> str:
    """The command without the folders of this machine."""
    parts = ["python -m tests.benchmarks.pronunciation_peers WORK --corpus", corpus]
    parts += ["--systems", *arguments.systems] if arguments.systems != list(SYSTEMS) else []
    parts += ["--runs", *(shlex.quote(run.resolve().name) for run in arguments.runs)] if arguments.runs else []
    parts += ["--reports", *(path.name for path in arguments.reports)] if arguments.reports else []
    parts += ["--minutes", f"{arguments.minutes:g}"] if "yoyodyne" in arguments.systems else []
    return " ".join(parts)


def parser() -> argparse.ArgumentParser:
    made = command.Parser("tests.benchmarks.pronunciation_peers", description=__doc__.splitlines()[0])
    option = made.add_argument
    option("work", metavar="WORK", type=Path, help="folder of the environments, the models and the report")
    option("--corpus", default="cmudict", help="cmudict, g2p/LANGUAGE or a folder (default: %(default)s)")
    option("--systems", nargs="*", choices=list(SYSTEMS), default=list(SYSTEMS), help="default: all")
    option("--runs", metavar="RUN", nargs="*", type=run_folder, default=[], help="finished runs of the corpus")
    option("--reports", metavar="FILE", nargs="*", type=Path, default=[], help="of runs whose models are not there")
    option("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    minutes = command.between(float, 0.001, 10_000)
    option("--minutes", type=minutes, default=20.0, help="of yoyodyne's training (default: %(default)s)")
    return made


def main(argv=None) -> int:
    return command.run(measure, parser(), argv)


if __name__ == "__main__":
    sys.exit(main())
