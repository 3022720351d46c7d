"""Lists the trained presets that commands and `Translator.from_preset` take by name: `keras-attn presets`.

A line each: name, task, languages, model, parameters, bytes of its files, score on the corpus' test split, corpus and
its licence, separated by tabs, after a line with these names. `--signatures` adds sacreBLEU's signatures.
"""

import argparse
import sys

from keras_attn.cli import command
from keras_attn.saving import PresetEntry, presets

_COLUMNS = ("name", "task", "languages", "model", "parameters", "bytes", "dtype", "score", "corpus", "licence")


def main(argv=None) -> int:
    parser = command.Parser("keras-attn presets", description=__doc__)
    parser.add_argument("--signatures", action="store_true", help="add the signature of each score")
    return command.run(list_presets, parser, argv, prepare=None)


def list_presets(arguments: argparse.Namespace) -> None:
    print("\t".join([*_COLUMNS, *(["signature"] if arguments.signatures else [])]))
    for name, entry in presets().items():
        print("\t".join([name, *_cells(entry), *([entry.signature] if arguments.signatures else [])]))


def _cells(entry: PresetEntry) -> list[str]:
    languages, score = f"{entry.source}-{entry.target}", f"{entry.metric} {entry.score:.2f}"
    sizes = [f"{entry.parameters}", f"{entry.size}", entry.dtype]
    return [entry.task, languages, entry.model, *sizes, score, entry.corpus, entry.licence]


if __name__ == "__main__":
    sys.exit(main())
