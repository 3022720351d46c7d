"""The program `keras-attn`: finds the command and hands its arguments on."""

import sys

COMMANDS = {
    "train": "trains a recipe, then scores, draws, saves and exports it",
    "translate": "translates stdin to stdout, or files",
    "translate-corpus": "translates large files on a cluster",
    "align": "links the words of given translations",
    "evaluate": "scores a system, or compares two, on a test set",
    "score": "scores given translations",
    "report": "writes a page of a run: scores, curves, translations",
    "shortlist": "learns a shortlist of target tokens, for faster searches",
    "export": "exports a SavedModel for TensorFlow Serving, or to ONNX",
    "serve": "serves an exported model on this machine, for development",
    "g2p": "pronounces words and sentences",
    "presets": "lists the trained presets",
    "upload": "uploads a preset to Hugging Face",
    "completion": "prints what a shell needs to complete commands with Tab",
}


def main(argv=None) -> int:
    """Runs a command; returns its exit status."""
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        print("keras-attn: interrupted", file=sys.stderr)
        return 130


def _run(argv: list[str]) -> int:
    from importlib import import_module  # here, so that an interruption meets the `try` above

    parser, _ = parsers()
    arguments = parser.parse_args(argv[:1])
    return import_module(f"keras_attn.cli.{arguments.command.replace('-', '_')}").main(argv[1:])


def parsers():
    """Returns the program's parser, which reads a command's name, and the action that has these names."""
    import keras_attn
    from keras_attn.cli.command import Parser

    parser = Parser(
        "keras-attn",
        usage="%(prog)s [-h] [--version] COMMAND ...",
        description="Recurrent attention encoder-decoders: a run or a preset at work.",
        epilog="`keras-attn COMMAND --help` lists the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"keras_attn {keras_attn.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser, commands
