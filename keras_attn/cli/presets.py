"""Lists the trained presets that commands and `Translator.from_preset` take by name: `keras-attn presets`.

A line each: name, task, languages, model, parameters, bytes of its files, score on the corpus' test split, corpus and
its licence, and "yes" if its files are on this computer, separated by tabs, after a line with these names.
`--signatures` adds sacreBLEU's signatures.
"""

import argparse

from keras_attn.cli import command
from keras_attn.saving import is_here, presets

_COLUMNS = ("name", "task", "languages", "model", "parameters", "bytes", "dtype", "score", "corpus", "licence", "here")


def main(argv=None) -> int:
    parser = command.Parser("keras-attn presets", description=__doc__)
    parser.add_argument("--signatures", action="store_true", help="add the signature of each score")
    return command.run(list_presets, parser, argv, prepare=None)


def list_presets(arguments: argparse.Namespace) -> None:
    columns = [*_COLUMNS, "signature"] if arguments.signatures else _COLUMNS
    print(*columns, sep="\t")
    for name, entry in presets().items():
        cells = vars(entry) | {
            "name": name,
            "languages": f"{entry.source}-{entry.target}",
            "bytes": entry.size,
            "here": "yes" if is_here(name) else "no",
            "score": f"{entry.metric} {entry.score:.2f}",
        }
        print(*(cells[column] for column in columns), sep="\t")
