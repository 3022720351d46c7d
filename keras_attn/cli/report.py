"""Writes a page of a run, one HTML file: `keras-attn report RUN [--output FILE]`.

It has the scores with their signatures, the curves, a few translations of the test split with their alignments, figures
of data and training, and the command. It needs no network and no scripts.
"""

import argparse
from pathlib import Path

from keras_attn import files
from keras_attn.cli import command
from keras_attn.cli import line_streaming as streams


def main(argv=None) -> int:
    parser = command.Parser("keras-attn report", description=__doc__)
    command.add_run(parser, help="folder of a finished run")
    count = command.between(int, 1, 100)
    parser.add_argument("--samples", metavar="N", type=count, default=5, help="translations (default: %(default)s)")
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="a new file (default: report.html in RUN, replaced)"
    )
    return command.run(report, parser, argv)


def report(arguments: argparse.Namespace) -> None:
    from keras_attn.training import report_page
    from keras_attn.translation import Translator

    with command.quietly():
        translator = Translator.from_preset(arguments.run)
    page = report_page.run_page(arguments.run, translator, arguments.samples).encode()
    path = arguments.output or arguments.run / "report.html"
    if arguments.output:
        with streams.new_file(path) as output:
            output.write(page)
    else:
        with files.replacing(path) as new:
            new.write_bytes(page)
    print(f"The page is {path}.")
