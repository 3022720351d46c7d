"""Exports a run as a SavedModel for TensorFlow Serving: `keras-attn export RUN saved_models/NAME`.

The run may come from any backend, and so may this command's. What is given here is fixed in the graph; the
signature `translate_with_options` takes lengths and their penalty with a request.
"""

import argparse
import itertools
import sys
from pathlib import Path

from keras_attn.cli import command
from keras_attn.cli.search_flags import between, length_penalty, read_report

SENTENCES = 64  # of the run's test split, from which warm-up records are made


def main(argv=None) -> int:
    parser = command.Parser("keras_attn.cli.export", description=__doc__.splitlines()[0])
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run, or any preset")
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="gets the next version: 1, 2, ...")

    def option(flag: str, name: str, help: str, **how):
        # What is not chosen is not passed on, so that each default stands in one place, the library.
        how = how if how.keys() & {"action", "choices"} else {"metavar": "N"} | how
        parser.add_argument(flag, dest=f"export.{name}", help=help, **{"default": argparse.SUPPRESS} | how)

    option("--beam", "beam_size", "hypotheses; 1 is greedy (default: 5)", type=between(int, 1, 1000))
    option("--n-best", "n_best", "hypotheses of translate_n_best (default: the beam)", type=between(int, 1, 1000))
    option("--length-penalty", "length_penalty", "exponent of the norm, else the run's", type=between(float, 0, 10))
    option("--normalization", "normalization", "norm of the length", choices=("gnmt", "average", "none"))
    option("--coverage-penalty", "coverage_penalty", "for source left unread", type=between(float, 0, 100))
    option("--max-length", "max_length", "tokens of a translation, at most", type=between(int, 1, 10_000))
    option("--max-length-ratio", "max_length_ratio", "the same, for each source token", type=between(float, 0.01, 1000))
    option("--min-length", "min_length", "tokens of a translation, at least", type=between(int, 1, 10_000))
    option("--min-length-ratio", "min_length_ratio", "the same, for each source token", type=between(float, 0.01, 1000))
    option("--max-source-length", "max_source_length", "source tokens read of a line", type=between(int, 1, 100_000))
    option("--no-repeat", "no_repeat_ngram_size", "no N tokens twice in this order", type=between(int, 1, 100))
    option("--no-unknown", "banned_tokens", "never write <unk>", action="store_const", const=("<unk>",))
    option("--early-stopping", "early_stopping", "end sooner, proving nothing", action="store_true")
    option("--quantize", "quantize", "store matrices in fewer bits", choices=("int8", "float16"))
    option("--version", "version", "number of the version (default: the next)", type=between(int, 1, 2**31))
    return command.run(export, parser, argv)


def export(arguments: argparse.Namespace) -> None:
    from keras_attn.translator import Translator

    chosen = {name.removeprefix("export."): value for name, value in vars(arguments).items() if "export." in name}
    chosen["length_penalty"] = length_penalty(arguments.run, chosen.get("length_penalty"))
    with command.quietly():
        translator = Translator.from_preset(arguments.run)
    folder = translator.export(arguments.directory, **chosen, **of_run(arguments.run))
    print(f"The SavedModel is in {folder}.")


def of_run(run: Path) -> dict:
    """What a run's folder has for an export: its report and some of its test sentences; of a bare preset nothing."""
    report, path = read_report(run), run / "translations.txt"
    sentences = []
    if path.is_file():
        with path.open(encoding="utf-8", newline="\n") as file:
            sources = (line.removeprefix("source:").strip() for line in file if line.startswith("source:"))
            sentences = list(itertools.islice(sources, SENTENCES))
    return {"report": report, "sentences": sentences}


if __name__ == "__main__":
    sys.exit(main())
