r"""Pronounces words and sentences, a line out for every line in: `keras-attn g2p PRESET [FILE]`.

Words of a lexicon have its entries, the preset's own or those of `--lexicon`; all others are the model's. With
`--format words` each line is a sentence, whose words are replaced by their phones. The other formats have a line for
each pronunciation of each different word, in the order in which the words come: `tsv` "word, tab, phones, tab, lexicon
or model, tab, probability", `dict` as CMUdict has them ("word P H", a second one "word(2) P H"), `lexicon` as aligners
and synthesisers read them ("word P H" again, without numbers).
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from keras_attn.cli import command
from keras_attn.cli import line_streaming as streams
from keras_attn.pronunciation import ALPHABETS

FORMATS = ("words", "tsv", "dict", "lexicon")


def main(argv=None) -> int:
    parser = command.Parser("keras-attn g2p", description=__doc__)
    option = parser.add_argument
    option("preset", metavar="PRESET", help="a name of `keras-attn presets`, hf://USER/NAME or a folder")
    option("input", metavar="FILE", nargs="?", type=Path, help="default: stdin")
    option("--format", choices=FORMATS, default="words", help="of the output (default: %(default)s)")
    option("--alphabet", choices=ALPHABETS, help="of the phones (default: the model's)")
    option("--lexicon", metavar="FILE", action="append", default=[], type=Path, help="asked before that of the preset")
    option("--tag", help="of a model of several languages, such as <2ita>")
    streams.add_windows(parser)
    option("--n-best", metavar="N", type=command.between(int, 1, 100), default=1, help="of the model, for each word")
    return command.run(pronounce, parser, argv)


def pronounce(arguments: argparse.Namespace) -> None:
    if arguments.n_best > 1 and arguments.format == "words":
        raise ValueError("Expected --n-best with --format tsv, dict or lexicon. Received: --format words")
    from keras_attn import G2P

    options = {"alphabet": arguments.alphabet, "tag": arguments.tag}
    g2p = G2P.from_preset(arguments.preset, arguments.lexicon, **options)
    limits = streams.window_limits(arguments, arguments.n_best, return_alignments=False)
    reader = streams.TextReader(arguments.max_characters, arguments.input or "the input")
    seen: set[str] = set()
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(streams.opened(arguments.input)) if arguments.input else streams.standard("stdin")
        for window in map(reader.read, streams.windows(source, **limits)):
            for line in _answers(g2p, window, seen, arguments):
                print(line)
            sys.stdout.flush()  # a typed line is answered at once
    streams.report_lines(reader.counts)


def _answers(g2p, window: list[str], seen: set[str], arguments: argparse.Namespace) -> Iterator[str]:
    """Yields the lines of the output for those of a window; `seen` are the words of earlier ones."""
    if arguments.format == "words":
        yield from g2p(window)
        return
    words = [word for word in dict.fromkeys(word for line in window for word in g2p.words(line)) if word not in seen]
    seen.update(words)
    for found in g2p.pronounce(words, n_best=arguments.n_best):
        for number, one in enumerate(found, 1):
            if arguments.format == "tsv":
                yield f"{one.word}\t{one.text}\t{one.origin}\t{one.probability:.3f}"
            elif one.text:
                mark = f"({number})" if arguments.format == "dict" and number > 1 else ""
                yield f"{one.word}{mark} {one.text}"
