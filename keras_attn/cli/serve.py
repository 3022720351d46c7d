"""Serves an exported model on this machine, for development: `keras-attn serve saved_models/NAME`.

A run or a preset is exported first, into a folder of the cache, which a later command takes again.

REST as in TensorFlow Serving, with a web page at the same address. It is no replacement for TensorFlow Serving:
`keras_attn.serving.server` lists what it does not do. Needs `pip install "keras_attn[serving]"`.
"""

import argparse
import asyncio
import os
from pathlib import Path

from keras_attn import files
from keras_attn.cli import command
from keras_attn.cli.command import between
from keras_attn.downloads import cache_folder
from keras_attn.requirements import require


def main(argv=None) -> int:
    parser = command.Parser("keras-attn serve", description=__doc__)

    def option(flag: str, kind, default, help: str):
        parser.add_argument(flag, type=kind, default=default, help=f"{help} (default: %(default)s)")

    help = "with a folder for each version: 1, 2, ...; or a run, or a preset's folder, its name or hf://USER/NAME"
    command.add_run(parser, "DIRECTORY", ("preset", "saved_model"), help)
    parser.add_argument("--name", help="the model's, in requests (default: the folder's)")
    option("--host", str, "127.0.0.1", "another address lets other machines in, without any authentication")
    option("--port", between(int, 0, 65535), 8501, "0: any free one")
    option("--max-requests", between(int, 1, 100_000), 32, "present at once; more are refused")
    option("--request-seconds", between(float, 0.01, 86_400), 60.0, "to arrive, wait and run; then it is stopped")
    option("--poll-seconds", between(float, 0.01, 3600), 1.0, "between two looks for versions")
    return command.run(serve, parser, argv, prepare=_prepare)


def _prepare() -> None:
    """Chooses TensorFlow: the model is a TensorFlow graph, whichever backend trained it."""
    require("serving", "tensorflow", "aiohttp", purpose="the server")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    command.choose_backend("tensorflow")


def serve(arguments: argparse.Namespace) -> None:
    with command.quietly():
        from keras_attn.serving import saved_model, server

    options = vars(arguments)
    directory, name = options.pop("run"), options.pop("name")
    name = name or directory.absolute().name
    if (directory / "translator.json").is_file():
        directory = _exported(directory)
    if not name or set(name) & set("/:"):
        raise ValueError(f"Expected a --name without / and :. Received: {name!r}")

    server.log_seldom()
    asyncio.run(server.serve(saved_model.Versions(name, directory), **options))
    os._exit(0)  # Python would wait for a version that is being loaded, however long that takes


def _exported(run: Path) -> Path:
    """Returns a folder with the SavedModel of a run or a preset, exported now if it was not yet."""
    from keras_attn.training import export_arguments, length_penalty

    folder = cache_folder() / "served" / f"{run.resolve().name}-{files.sha256(run / 'translator.json')[:12]}"
    if not command.versions_of(folder):
        print(f"Exporting {run} to {folder}, from where it is served.", flush=True)
        with command.quietly():
            from keras_attn.translation import Translator

            translator = Translator.from_preset(run)
            translator.export(folder, length_penalty=length_penalty(run, None), **export_arguments(run))
    return folder
