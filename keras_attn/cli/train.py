"""Trains a recipe, scores it, draws an alignment, saves it and exports it: `keras-attn train RECIPE`.

`keras_attn.training.run.train` says what a recipe is, and what the run's folder gets. A run that was killed continues
with `--resume` after its last whole epoch, one that received SIGTERM or Ctrl+C after its last batch. No other run may
begin in the folder meanwhile.
"""

import argparse
import sys
from pathlib import Path

from keras_attn.cli import command


def main(argv=None) -> int:
    jobs = []

    def train(arguments: argparse.Namespace) -> None:
        import keras

        from keras_attn.training import plan, run

        with command.quietly():  # Keras imports TensorFlow for its seed, on every backend
            keras.utils.set_random_seed(arguments.seed)
        run.train(plan.make_plan(**vars(arguments)), jobs.append)

    status = command.run(train, parser(), argv)
    return jobs[0].exit(status) if jobs else status


def parser() -> command.Parser:
    """Returns the parser, whose options are the arguments of `keras_attn.training.plan.make_plan`."""
    parser = command.Parser("keras-attn train", description="Trains a recipe, scores, draws, saves and exports it.")
    option = parser.add_argument
    option("recipe", metavar="RECIPE", help="such as rnnsearch, or a file or module of yours: my/recipe.py, my.recipe")
    option(
        "--corpus",
        default="phrases",
        help="a name, a folder, a table of pairs, or several: a+b, or a:3+b:1 (default: the embedded one, phrases)",
    )
    option("--source", help="language of the source side (default: the corpus decides)")
    option("--target", help="language of the target side")
    option(
        "--tags",
        choices=("target", "corpus"),
        help="tag source lines, as with <2fr>, by target language or name of the corpus",
    )
    option(
        "--from", metavar="PRESET", dest="preset", help="go on from a run's folder, a preset's name or hf://USER/NAME"
    )
    option("--data", help="folder of named corpora (default: $KERAS_ATTN_DATA, else Keras' cache)")
    option(
        "--config",
        metavar="FILE",
        type=Path,
        dest="config_file",
        help="TOML file of settings, or run.json or report.json of a run",
    )
    option(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        dest="changes",
        help="settings of the recipe: docs/commands.md lists them by group",
    )
    option("--epochs", type=int, help="at most (default: the recipe's)")
    option("--minutes", type=float, help="of training at most, validation included")
    option("--seed", type=command.between(int, 0, 2**32 - 1), default=0, help="random seed (default: 0)")
    option("--out", type=Path, help="folder of the run (default: runs/RECIPE)")
    option("--resume", action="store_true", help="continue the run in that folder")
    option("--distribute", choices=["data"], help="divide each batch among all devices")
    option("--stream", action=argparse.BooleanOptionalAction, help="train from files (default: if these are large)")
    option("--cache", type=Path, help="folder of the token files that are made of them (default: in Keras' cache)")
    beam = command.between(int, 1, 1000)
    option("--beam", type=beam, default=5, help="beam size of the final scores (default: %(default)s)")
    board = "metrics, samples and alignments into the run's folder tensorboard/, which TensorBoard shows"
    option("--tensorboard", action="store_true", help=board)
    option("--no-export", action="store_false", dest="export", help="write no SavedModel")
    return parser


if __name__ == "__main__":
    sys.exit(main())
