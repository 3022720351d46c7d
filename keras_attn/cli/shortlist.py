"""Learns a shortlist: `keras-attn shortlist RUN --source FILE --target FILE --output FILE.npz`.

Reads parallel text, such as the text that RUN was trained on, and writes for each source token the target tokens that
it may become. `keras-attn translate RUN --shortlist FILE.npz` searches among these alone, which is faster where a
sentence is translated at a time; a few translations change. See `keras_attn.Shortlist`.
"""

import argparse
from pathlib import Path

from keras_attn.cli import command
from keras_attn.cli import line_streaming as streams
from keras_attn.cli.command import add_run
from keras_attn.cli.search_flags import add_ensemble, load_translator


def main(argv=None) -> int:
    parser = command.Parser("keras-attn shortlist", description=__doc__)
    add_run(parser)
    option = parser.add_argument
    option("--source", metavar="FILE", type=Path, required=True, help="source sentences, one a line")
    option("--target", metavar="FILE", type=Path, required=True, help="their translations, line by line")
    option("--output", metavar="FILE", type=Path, required=True, help="a new file")
    count = command.between(int, 1, 100_000)
    option("--candidates", type=count, default=30, help="target tokens of a source token (default: %(default)s)")
    option("--frequent", type=count, default=100, help="target tokens of any sentence (default: %(default)s)")
    add_ensemble(parser)
    return command.run(learn, parser, argv)


def learn(arguments: argparse.Namespace) -> None:
    from keras_attn.text import read_lines
    from keras_attn.translation import Shortlist

    sources, targets = (read_lines(path) for path in (arguments.source, arguments.target))
    with streams.new_file(arguments.output) as output:
        translator = load_translator(arguments, arguments.run)
        sizes = {"candidates": arguments.candidates, "frequent": arguments.frequent}
        shortlist = Shortlist.learn(translator, sources, targets, **sizes)
        output.write(shortlist.to_bytes())
    known, size = (shortlist.candidates >= 0).any(axis=1).sum(), len(shortlist.candidates)
    print(f"{arguments.output}: {known:,} of {size:,} source tokens have target tokens of their own")
