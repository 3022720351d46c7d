"""Serves an exported model on this machine, for development: `keras-attn serve saved_models/NAME`.

REST and gRPC as in TensorFlow Serving, with a web page at the REST address. It is no replacement for TensorFlow
Serving: `keras_attn.serving.dev_server.server` lists what it does not do. Needs `pip install "keras_attn[serving]"`.
"""

import argparse
import os
import sys
from pathlib import Path

from keras_attn.cli import command, environment
from keras_attn.cli.command import between
from keras_attn.requirements import require

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def main(argv=None) -> int:
    parser = command.Parser("keras-attn serve", description=__doc__.splitlines()[0])

    def option(flag: str, kind: type, default, help: str, **more):
        parser.add_argument(flag, type=kind, default=default, help=f"{help} (default: %(default)s)", **more)

    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="with a folder for each version: 1, 2, ...")
    parser.add_argument("--name", help="the model's, in requests (default: the folder's)")
    option("--host", str, "127.0.0.1", "another address lets other machines in, without any authentication")
    option("--port", between(int, 0, 65535), 8501, "of REST and the page; 0: any free one", metavar="N")
    option("--grpc-port", between(int, 0, 65535), 8500, "0: any free one", metavar="N")
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        type=_host_name,
        dest="allow_hosts",
        help="another name of this server that a Host header may have, beside localhost and its address; repeatable",
    )
    option("--max-batch-size", between(int, 1, 100_000), 64, "sentences run at once", metavar="N")
    option("--batch-delay-ms", between(float, 0, 10_000), 5.0, "that a request waits for others", metavar="N")
    option("--workers", between(int, 1, 256), 1, "batches run at once", metavar="N")
    option("--max-requests", between(int, 1, 100_000), 128, "present at once; more are refused", metavar="N")
    option("--max-request-bytes", between(int, 1, 2**30), 2**22, "larger ones are refused", metavar="N")
    option("--max-answer-bytes", between(int, 1, 2**32), 2**26, "larger ones are refused", metavar="N")
    option("--transfer-seconds", between(float, 0.01, 3600), 30.0, "to send a request, or take its answer", metavar="N")
    option("--request-seconds", between(float, 0.01, 86_400), 60.0, "to wait and run; then it is stopped", metavar="N")
    option("--poll-seconds", between(float, 0.01, 3600), 1.0, "between two looks for a new version", metavar="N")
    option("--drain-seconds", between(float, 0, 3600), 30.0, "for requests present at the end", metavar="N")
    parser.add_argument(
        "--xla-cpu-compilation-enabled",
        action="store_true",
        help="for exports with --jit-compile, as the stock server's",
    )
    return command.run(serve, parser, argv, prepare=_prepare)


def _host_name(text: str) -> str:
    if not text or set(text) & set("/:@[] "):
        raise argparse.ArgumentTypeError(f"expected a name such as my.example, without a port. Received: {text!r}")
    return text


def _prepare() -> None:
    """Chooses TensorFlow: the model is a TensorFlow graph, whichever backend trained it."""
    require("serving", "tensorflow", "tensorflow_serving", "aiohttp", "prometheus_client", purpose="the server")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    environment.prepare("tensorflow")


def serve(arguments: argparse.Namespace) -> None:
    with command.quietly():
        from keras_attn.serving.dev_server.server import serve
        from keras_attn.serving.dev_server.settings import Settings

    name = arguments.name or arguments.directory.absolute().name
    if not name or set(name) & set("/:"):
        raise ValueError(f"Expected a --name without / and :. Received: {name!r}")
    settings = {key: value for key, value in vars(arguments).items() if key not in ("directory", "name")}
    settings["batch_delay"] = settings.pop("batch_delay_ms") / 1000
    settings["allow_hosts"] = tuple(settings["allow_hosts"])

    def ready(rest: str, rpc: str) -> None:
        print(f"{name} is served on {rest} (REST, and a page to try it) and {rpc}. Ctrl+C ends it.", flush=True)
        if arguments.host not in _LOOPBACK:
            print("Other machines may reach it, and nothing authenticates them.", file=sys.stderr, flush=True)

    serve(arguments.directory, name, Settings(**settings), ready)


if __name__ == "__main__":
    sys.exit(main())
