"""Scores a system on a test set: `keras-attn evaluate RUN [--corpus NAME|DIR|FILE.tsv] [--split test] [--beam 5]`.

By default the corpus is that of the run's report. `--input FILE --references FILE [FILE ...]` are other test sets.

Prints BLEU, chrF and TER with their sacreBLEU signatures or, for `--metric wer`, word and phoneme error rate, where any
of a word's answers is right.

`--ensemble` adds runs to RUN. By default all of them choose each token together (`--average`); with `--combine vote`
each translates alone, and the translation that most of them found is scored; see `keras_attn.translation.vote`.

With `--hypotheses FILE` the lines of a file are scored, instead of what RUN translates now. With `--against` a second
system, a run or such a file, is scored too. sacreBLEU's paired bootstrap, for error rates McNemar's exact test, then
says whether it differs from the first by more than chance.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from keras_attn.cli import command
from keras_attn.cli import line_streaming as streams
from keras_attn.cli.command import add_run, run_folder
from keras_attn.cli.search_flags import add_search, chosen_options, load_translator, search_arguments
from keras_attn.cli.translate import generator
from keras_attn.training import read_report, surroundings


class TestSet(NamedTuple):
    """Source lines with their references: a target line for each, or several lists of these."""

    sources: Sequence[str]
    references: Sequence[str] | Sequence[Sequence[str]]
    title: str
    names: dict[str, str | list[str] | None]  # for the report: corpus, split, source, target; or the files


def main(argv=None) -> int:
    parser = command.Parser("keras-attn evaluate", description="Scores a system, or compares two, on a test set.")
    option = parser.add_argument
    add_run(parser, kinds=tuple(command.KINDS))
    option("--input", metavar="FILE", type=Path, help="source sentences, one a line")
    option("--references", metavar="FILE", type=Path, nargs="+", help="translations of these, line by line")
    option("--corpus", help="a name, a folder or a table of pairs (default: the run's)")
    option("--source", help="language of the source side (default: the run's)")
    option("--target", help="language of the target side (default: the run's)")
    option("--split", help="of the corpus (default: test)")
    option("--data", help="folder of named corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    option("--hypotheses", metavar="FILE", type=Path, help="score these lines, not what RUN translates")
    second = functools.partial(run_folder, kinds=tuple(command.KINDS))
    option("--against", metavar="RUN2|FILE", type=second, help="a second system, compared with the first")
    option("--metric", choices=("bleu", "wer"), help="default: the run's, else bleu")
    option("--tokenize", help="sacreBLEU's tokenizer (default: the run's, else 13a)")
    option("--output", metavar="FILE", type=Path, help="a new file for all of this, as JSON")
    add_search(parser)
    combinations = {"choices": ("probability", "vote"), "default": "probability"}
    option("--combine", **combinations, help="of the ensemble: one search with --average, or a vote on translations")
    return command.run(evaluate, parser, argv)


def evaluate(arguments: argparse.Namespace) -> None:
    """Scores one system or two."""
    report = read_report(arguments.run)
    first, second = arguments.hypotheses or arguments.run, arguments.against
    if first == second:
        raise ValueError(f"Expected --against to be another system. Received: {str(second)!r} twice")
    test = _files(arguments) if arguments.input or arguments.references else None
    test = test or _split(arguments, report)
    _check_combination(arguments)
    tokenize = arguments.tokenize or report["config"].get("tokenize", "13a")
    metric = arguments.metric or report["config"].get("metric", "bleu")

    from keras_attn.evaluation import bleu, main_score

    # An unknown tokenizer and blank answers are refused before minutes of translation.
    bleu(["a"], ["a"], tokenize=tokenize)
    if metric == "wer":
        main_score(metric, test.sources, test.references, test.sources, tokenize)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(streams.new_file(arguments.output)) if arguments.output else None
        # Both are opened before either translates: a bad one is refused before any work.
        systems = [System(path, arguments, len(test.sources)) for path in (first, second) if path]
        print(f"{test.title}, {len(test.sources):,} sentences")
        result = {
            **test.names,
            "sentences": len(test.sources),
            "systems": [_score(system, test, metric, tokenize) for system in systems],
            **(_compare(systems, test, metric, tokenize) if second else {}),
            **surroundings(),
        }
        if output:
            output.write((json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode())


def _check_combination(arguments: argparse.Namespace) -> None:
    """Refuses options that would change nothing."""
    if arguments.hypotheses and arguments.ensemble:
        raise ValueError("Expected --hypotheses, the lines that are scored, without --ensemble. Received: both")
    is_read = arguments.hypotheses and not (arguments.against and arguments.against.is_dir())
    averages = arguments.average != "probability"
    if is_read and (arguments.int8 or arguments.shortlist or averages or chosen_options(arguments)):
        raise ValueError("Expected options of the search only where a run translates. Received: them and --hypotheses")
    if arguments.combine != "vote":
        return
    if not arguments.ensemble:
        raise ValueError("Expected --combine vote together with --ensemble. Received: no --ensemble")
    if averages:
        raise ValueError(
            f"Expected --combine vote without --average, which is for one search. Received: {arguments.average}"
        )


class System:
    """A run, or a file with a line for each sentence.

    `texts` are its translations, once it has translated. An ensemble by vote has several searches.
    """

    def __init__(self, path: Path, arguments: argparse.Namespace, sentences: int):
        self.name = str(path)
        self.texts, self.searches, self.figures = None, [], {}
        if path.is_file() or path == arguments.hypotheses:
            from keras_attn.text import read_lines

            self.texts = read_lines(path)
            if len(self.texts) != sentences:
                raise ValueError(
                    f"Expected {self.name!r} to have {sentences:,} lines, one for each sentence of the split. "
                    f"Received: {len(self.texts):,}"
                )
            return

        ensemble = arguments.ensemble if path == arguments.run else []
        by_vote = bool(ensemble) and arguments.combine == "vote"
        alone = {"ensemble": [], "average": "probability"} if by_vote or path != arguments.run else {}
        members = argparse.Namespace(**vars(arguments) | alone)
        for run in [path, *ensemble] if by_vote else [path]:
            options = search_arguments(arguments, run) | {"return_alignments": False}
            self.searches.append((load_translator(members, run), options))
        for translator, options in self.searches:
            translator.generate([], **options)  # refuses bad options
        if ensemble:
            combined = arguments.combine if by_vote else arguments.average
            self.figures = {"ensemble": [str(run) for run in ensemble], "combine": combined}
        if arguments.int8:
            self.figures["products"] = "int8"
        if arguments.shortlist:
            self.figures["shortlist"] = str(arguments.shortlist)

    def translate(self, sources: Sequence[str]) -> None:
        if self.texts is None:
            from keras_attn.translation import vote

            started = time.monotonic()
            numbers, sizes, found = range(len(sources)), [1] * len(sources), []
            with streams.Progress(True, len(sources) * len(self.searches)) as progress:
                for translator, options in self.searches:
                    generate = generator(translator, options)
                    found.append(streams.in_batches(generate, sources, numbers, options["batch_size"], progress, sizes))
            self.texts = [translation.text for translation in vote(found)]
            searches = [options for _, options in self.searches]
            self.figures |= {"search": searches[0] if len(searches) == 1 else searches}
            self.figures |= {"seconds": round(time.monotonic() - started, 2)}


def _score(system: System, test: TestSet, metric: str, tokenize: str) -> dict:
    from keras_attn.evaluation import by_metric

    system.translate(test.sources)
    scores = by_metric.all_scores(metric, test.sources, test.references, system.texts, tokenize)
    beam = f", beam {system.searches[0][1]['beam_size']}" if system.searches else ""
    faster = ", int8" * ("products" in system.figures) + ", shortlist" * ("shortlist" in system.figures)
    print(f"{system.name}{beam}{faster}")
    for name, result in scores.items():
        print(f"  {name} {result['score']:.2f}  {result['signature']}")
    return {"system": system.name} | system.figures | scores


def _compare(systems: Sequence[System], test: TestSet, metric: str, tokenize: str) -> dict:
    from keras_attn.evaluation import by_metric, paired_bootstrap

    if metric == "wer":
        result = by_metric.mcnemar_test(test.sources, test.references, *(one.texts for one in systems))
        print(
            f"McNemar's exact test: only {systems[0].name} is right {result['only_first_right']:,} times, only "
            f"{systems[1].name} {result['only_second_right']:,} times, p = {result['p_value']:.4f}"
        )
        return {"mcnemar": result}
    print("Paired bootstrap: mean ± half of the 95 % interval, and p, the chance of so large a difference by luck")
    compared = paired_bootstrap({one.name: one.texts for one in systems}, test.references, tokenize=tokenize)
    for one in compared:
        chance = "the baseline" if one.p_value is None else f"p = {one.p_value:.4f}"
        print(f"  {one.score.name} {one.mean:.2f} ± {one.half_width:.2f}  {one.system}, {chance}")
        if one.p_value is not None:
            print(f"    {one.score.signature}")
    return {"paired_bootstrap": [dataclasses.asdict(one) for one in compared]}


def _files(arguments: argparse.Namespace) -> TestSet:
    from keras_attn.text import read_lines, unequal_lengths_error

    if not (arguments.input and arguments.references) or arguments.corpus:
        raise ValueError("Expected --input together with --references, or --corpus alone.")
    if of_corpus := [name for name in ("split", "source", "target", "data") if getattr(arguments, name)]:
        raise ValueError(f"Expected --input without the options of a corpus. Received: --{', --'.join(of_corpus)}")
    sources, *references = (read_lines(path) for path in (arguments.input, *arguments.references))
    for path, lines in zip(arguments.references, references, strict=True):
        if len(lines) != len(sources):
            raise unequal_lengths_error(arguments.input, path, len(sources), len(lines))
    names = {"input": str(arguments.input), "references": [str(path) for path in arguments.references]}
    return TestSet(sources, references, str(arguments.input), names)


def _split(arguments: argparse.Namespace, report: dict) -> TestSet:
    """A split of a corpus; of a folder, any that it has."""
    from keras_attn.text import read_parallel
    from keras_attn.training import corpora

    name = arguments.corpus or report["corpus"]
    if name is None:
        raise ValueError(
            f"Expected --corpus, or --input FILE with --references FILE, for {str(arguments.run)!r} has no report.json "
            "to name a corpus."
        )
    same = name == report["corpus"]
    source = arguments.source or (report["source"] if same or Path(name).exists() else None)
    target = arguments.target or (report["target"] if same or Path(name).exists() else None)
    others = [run for run in (arguments.against, *arguments.ensemble) if run and run.is_dir()]
    if {read_report(run).get("tags") for run in others} - {report.get("tags")}:
        raise ValueError("Expected systems with the same --tags. Received: runs with others")
    split = arguments.split or "test"
    if Path(name).is_dir() and split not in corpora.SPLITS and source and target:
        corpus = corpora.Corpus(name, source, target, {split: read_parallel(name, split, source, target)})
    else:
        try:
            corpus = corpora.load(name, source, target, data=arguments.data, stream=None, tags=report.get("tags"))
        except ValueError as error:
            if arguments.corpus or name in corpora.names():
                raise
            raise ValueError(f"{error}. A report has no paths: give that of {name!r} by --corpus.") from None
    if corpus.tags:
        from keras_attn import Tokenizer
        from keras_attn.training import starting_point

        for run in (arguments.run, *others):
            starting_point.check_tags(corpus, Tokenizer.load(run / "source_tokenizer"))
    if split not in corpus.splits:
        raise ValueError(f"Expected --split among: {', '.join(corpus.splits)}. Received: {split!r}")
    sources, references = map(list, corpus.splits[split])
    names = {"corpus": corpus.name, "split": split, "source": corpus.source, "target": corpus.target}
    return TestSet(sources, references, f"{corpus.name} {split}, {corpus.source} to {corpus.target}", names)


if __name__ == "__main__":  # a step of a study
    sys.exit(main())
