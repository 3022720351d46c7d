"""Exports a run as a SavedModel for TensorFlow Serving: `python -m recipes.export RUN saved_models/NAME`.

The run may come from any backend, and so may this command's.
"""

import argparse
import sys
from pathlib import Path

from recipes import command
from recipes.options import length_penalty


def main(argv=None) -> int:
    parser = command.Parser("recipes.export", description=__doc__.splitlines()[0])
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run, or any preset")
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="gets the next version: 1, 2, ...")
    parser.add_argument("--beam", type=int, default=5, help="beam size; 1 is greedy (default: %(default)s)")
    parser.add_argument("--length-penalty", type=float, help="default: the run's")
    return command.run(export, parser, argv)


def export(arguments: argparse.Namespace) -> None:
    from keras_attn.translator import Translator

    penalty = length_penalty(arguments.run, arguments.length_penalty)
    translator = Translator.from_preset(arguments.run)
    folder = translator.export(arguments.directory, beam_size=arguments.beam, length_penalty=penalty)
    print(f"The SavedModel is in {folder}.")


if __name__ == "__main__":
    sys.exit(main())
