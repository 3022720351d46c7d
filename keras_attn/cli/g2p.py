r"""Pronounces words and sentences, a line out for every line in: `keras-attn g2p PRESET [FILE]`.

Words of a lexicon have its entries, the preset's own or those of `--lexicon`; all others are the model's. With
`--format words` each line is a sentence, whose words are replaced by their phones. The other formats have a line for
each pronunciation of each different word, in the order in which the words come: `tsv` "word, tab, phones, tab, lexicon
or model, tab, probability", `dict` as CMUdict has them ("word P H", a second one "word(2) P H"), `lexicon` as aligners
and synthesisers read them ("word P H" again, without numbers).
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from keras_attn.cli import command
from keras_attn.pronunciation import ALPHABETS

FORMATS = ("words", "tsv", "dict", "lexicon")
_WINDOW = 1024  # lines pronounced together


def main(argv=None) -> int:
    parser = command.Parser("keras-attn g2p", description=__doc__)
    option = parser.add_argument
    option("preset", metavar="PRESET", help="a name of `keras-attn presets`, hf://USER/NAME or a folder")
    option("input", metavar="FILE", nargs="?", type=Path, help="default: stdin")
    option("--format", choices=FORMATS, default="words", help="of the output (default: %(default)s)")
    option("--alphabet", choices=ALPHABETS, help="of the phones (default: the model's)")
    option("--lexicon", metavar="FILE", action="append", default=[], type=Path, help="asked before that of the preset")
    option("--tag", help="of a model of several languages, such as <2ita>")
    option("--n-best", metavar="N", type=command.between(int, 1, 100), default=1, help="of the model, for each word")
    return command.run(pronounce, parser, argv)


def pronounce(arguments: argparse.Namespace) -> None:
    from keras_attn import G2P
    from keras_attn.text import iterate_lines

    options = {"alphabet": arguments.alphabet, "tag": arguments.tag}
    g2p = G2P.from_preset(arguments.preset, arguments.lexicon, **options)
    lines = iterate_lines(arguments.input) if arguments.input else map(_text, sys.stdin.buffer)
    seen: set[str] = set()
    for window in _windows(lines):
        if arguments.format == "words":
            print(*g2p(window), sep="\n")
            continue
        words = [
            word for word in dict.fromkeys(word for line in window for word in g2p.words(line)) if word not in seen
        ]
        seen.update(words)
        for found in g2p.pronounce(words, n_best=arguments.n_best):
            for number, one in enumerate(found, 1):
                if arguments.format == "tsv":
                    print(one.word, one.text, one.origin, f"{one.probability:.3f}", sep="\t")
                elif one.text:
                    mark = f"({number})" if arguments.format == "dict" and number > 1 else ""
                    print(f"{one.word}{mark} {one.text}")


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace").rstrip("\r\n")


def _windows(lines: Iterable[str]) -> Iterator[list[str]]:
    window: list[str] = []
    for line in lines:
        window.append(line)
        if len(window) == _WINDOW:
            yield window
            window = []
    if window:
        yield window
