"""Prints what a shell needs to complete commands, flags and files with Tab: `keras-attn completion bash`.

In ~/.bashrc, for example: eval "$(keras-attn completion bash)". Needs `pip install "keras_attn[completion]"`.
"""

import argparse
from importlib import import_module
from pathlib import Path

from keras_attn.cli import command
from keras_attn.cli.main import COMMANDS, parsers
from keras_attn.requirements import require


def main(argv=None) -> int:
    parser = command.Parser("keras-attn completion", description=__doc__)
    parser.add_argument("shell", choices=("bash", "fish", "zsh"))
    return command.run(print_completion, parser, argv, prepare=None)


def print_completion(arguments: argparse.Namespace) -> None:
    require("completion", "shtab", purpose="completion")
    import shtab

    program, commands = parsers()
    for name in COMMANDS:
        own = import_module(f"keras_attn.cli.{name.replace('-', '_')}").main(command.PARSER)
        for action in own._actions:
            if action.metavar in ("RUN", "PRESET", "DIRECTORY") or action.type is Path:
                action.complete = shtab.FILE
        commands.choices[name] = own
    print(shtab.complete(program, arguments.shell))
