"""Scores a run on a split of a corpus: `python -m recipes.evaluate RUN [--corpus NAME|DIR] [--split test] [--beam 5]`.

The same as `keras-attn evaluate`, with the named corpora: by default the corpus of the run's report.
"""

import argparse
import sys

from keras_attn.cli import command
from keras_attn.cli.evaluate import TestSet, corpus_test_set
from keras_attn.cli.evaluate import evaluate as evaluate_on
from keras_attn.cli.evaluate import parser as make_parser
from keras_attn.cli.run_report import read_report


def main(argv=None) -> int:
    parser = make_parser("recipes.evaluate", __doc__.splitlines()[0], "a name or a folder")
    parser.add_argument("--data", help="folder of corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    return command.run(evaluate, parser, argv)


def evaluate(arguments: argparse.Namespace) -> None:
    evaluate_on(arguments, _split)


def _split(arguments: argparse.Namespace, report: dict) -> TestSet:
    from recipes import corpora

    name = arguments.corpus or report["corpus"]
    if name is None:
        raise ValueError(f"Expected --corpus, for {str(arguments.run)!r} has no report.json to name one.")
    same = name == report["corpus"]
    source = arguments.source or (report["source"] if same else None)
    target = arguments.target or (report["target"] if same else None)
    others = [run for run in (arguments.against, *arguments.ensemble) if run and run.is_dir()]
    if {read_report(run).get("tags") for run in others} - {report.get("tags")}:
        raise ValueError("Expected systems with the same --tags. Received: runs with others")
    corpus = corpora.load(name, source, target, data=arguments.data, stream=None, tags=report.get("tags"))
    if corpus.tags:
        from keras_attn import Tokenizer
        from recipes.training.starting_point import check_tags

        for run in (arguments.run, *others):
            check_tags(corpus, Tokenizer.load(run / "source_tokenizer"))
    if arguments.split not in corpus.splits:
        raise ValueError(f"Expected --split among: {', '.join(corpus.splits)}. Received: {arguments.split!r}")
    lines = map(list, corpus.splits[arguments.split])
    return corpus_test_set(corpus.name, arguments.split, corpus.source, corpus.target, *lines)


if __name__ == "__main__":
    sys.exit(main())
