"""Exports a run as a SavedModel for TensorFlow Serving, or to ONNX: `keras-attn export RUN saved_models/NAME`.

The run may come from any backend, and the command runs on any; TensorFlow has to be installed. The options of search
are fixed in a SavedModel; its signature `translate_with_options` takes lengths and their penalty with a request. With
`--format onnx`, DIRECTORY is a new folder for `keras_attn.runtime`, which takes the options when it translates.
"""

import argparse
from pathlib import Path

from keras_attn.cli import command
from keras_attn.cli.command import add_run
from keras_attn.cli.search_flags import (
    add_models,
    add_options,
    chosen_options,
    load_translator,
    options_of_run,
)
from keras_attn.export import ExportOptions
from keras_attn.requirements import require
from keras_attn.training import export_arguments


def main(argv=None) -> int:
    parser = command.Parser("keras-attn export", description=__doc__)
    add_run(parser)
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="receives the next version: 1, 2, ...")
    parser.add_argument("--format", choices=("saved_model", "onnx"), default="saved_model", help="what is written")
    add_options(parser, ExportOptions)
    add_models(parser)
    return command.run(export, parser, argv, prepare=_prepare)


def _prepare() -> None:
    require("tensorflow", "tensorflow", purpose="export")
    command.choose_backend()


def export(arguments: argparse.Namespace) -> None:
    is_onnx = arguments.format == "onnx"
    if is_onnx:
        options = chosen_options(arguments)
    else:
        options = options_of_run(arguments, arguments.run) | export_arguments(arguments.run)
    if arguments.int8 and (is_onnx or not options.get("jit_compile")):
        received = "--format onnx" if is_onnx else "no --jit-compile"
        raise ValueError(f"Expected --int8 with --jit-compile, of a SavedModel. Received: {received}")
    translator = load_translator(arguments, arguments.run)
    folder = translator.export(arguments.directory, format=arguments.format, **options)
    print(f"The {'translator in ONNX' if is_onnx else 'SavedModel'} is in {folder}.")
