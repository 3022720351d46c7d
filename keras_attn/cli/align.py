"""Links the words of parallel text: `keras-attn align RUN [FILE]`.

FILE has a pair of sentences a line, "source ||| target" or with a tab between, as fast_align and eflomal read it;
without FILE, stdin. For each line a line of links is printed in Pharaoh's format, `i-j` for source word i and target
word j, counted from 0. A word is what stands between blanks.

Each target word is linked to the source word that the model attends to most while it predicts that word, and to none if
that is the end of the sentence. With `--reverse`, a run of the other direction, the links of both are symmetrised
(`keras_attn.evaluation.grow_diag_final_and`).
"""

import argparse
import contextlib
import operator
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from keras_attn.cli import command
from keras_attn.cli import line_streaming as streams
from keras_attn.cli.search_flags import add_ensemble, load_translator
from keras_attn.plots import align_words, to_pharaoh

METHODS = ("grow-diag-final-and", "intersection", "union")


def main(argv=None) -> int:
    parser = command.Parser("keras-attn align", description=__doc__)
    command.add_run(parser)
    option = parser.add_argument
    option("file", metavar="FILE", nargs="?", type=Path, help='lines "source ||| target" (default: stdin)')
    option("--reverse", metavar="RUN", type=command.run_folder, help="of the other direction: links of both")
    option("--symmetrize", choices=METHODS, help=f"with --reverse: how both are joined (default: {METHODS[0]})")
    option(
        "--threshold",
        metavar="P",
        type=command.between(float, 0, 1),
        help="links of this weight (default: the heaviest)",
    )
    option("--output", metavar="FILE", type=Path, help="a new file (default: stdout)")
    option("--batch-size", metavar="N", type=command.between(int, 1, 10**6), default=32, help="(default: %(default)s)")
    streams.add_windows(parser)
    add_ensemble(parser)
    return command.run(align, parser, argv)


def align(arguments: argparse.Namespace) -> None:
    from keras_attn.evaluation import grow_diag_final_and
    from keras_attn.translation import Translator

    if arguments.symmetrize and not arguments.reverse:
        raise ValueError(
            f"Expected --reverse RUN with --symmetrize. Received: --symmetrize {arguments.symmetrize} alone"
        )
    methods = dict(zip(METHODS, (grow_diag_final_and, operator.and_, operator.or_), strict=True))
    join = methods[arguments.symmetrize or METHODS[0]]
    links_of = partial(_links, threshold=arguments.threshold, batch_size=arguments.batch_size)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(streams.opened(arguments.file)) if arguments.file else streams.standard("stdin")
        output = stack.enter_context(streams.output(arguments.output))
        translator = load_translator(arguments, arguments.run)
        with command.quietly():
            other = Translator.from_preset(arguments.reverse) if arguments.reverse else None

        def aligned(pairs, numbers):
            links = links_of(translator, pairs)
            if other is not None:
                back = links_of(other, [pair[::-1] for pair in pairs])
                turned = ({(i, j) for j, i in one} for one in back)
                links = [join(*both) for both in zip(links, turned, strict=True)]
            return links

        options = {"batch_size": arguments.batch_size, "n_best": 1, "return_alignments": True}
        with streams.Progress(not output.file.isatty(), streams.size(file)) as progress:
            name = arguments.file or "stdin"
            for *_, found in streams.results(aligned, file, options, arguments, progress, name, parse=_pair):
                rows = (" ".join(f"{i}-{j}" for i, j in sorted(links, key=lambda link: link[::-1])) for links in found)
                output.write("".join(f"{row}\n" for row in rows).encode())


def _pair(line: str, number: int) -> tuple[str, str]:
    """The two sides of a line, with one blank between words; of a blank line, two blank sides."""
    sides = [" ".join(side.split()) for side in re.split(r"(?:^|(?<=\s))\|\|\|(?=\s|$)|\t", line)]
    if sides == [""]:
        return "", ""
    if len(sides) != 2:
        raise ValueError(f'Expected "source ||| target", or a tab between, in line {number:,}. Received: {line[:80]!r}')
    return sides[0], sides[1]


def _links(translator, pairs: Sequence[tuple[str, str]], threshold: float | None, batch_size: int) -> list:
    """The links (source word, target word) of each pair, a set; none if a side is blank."""
    from keras_attn.evaluation import parse_links

    whole = [n for n, pair in enumerate(pairs) if all(pair)]
    found: list[set[tuple[int, int]]] = [set() for _ in pairs]
    scored = translator.score(*([pairs[n][side] for n in whole] for side in (0, 1)), batch_size=batch_size)
    for n, one in zip(whole, scored, strict=True):
        words = align_words(one, translator.source_tokenizer, translator.target_tokenizer)
        counts = len(words.source_tokens) - 1, len(words.target_tokens) - 1  # without </s>
        if counts != tuple(len(side.split()) for side in pairs[n]):
            raise ValueError(f"Expected words between blanks, for this model. Received: {counts} words in {pairs[n]}")
        found[n] = set(parse_links(to_pharaoh(words, threshold=threshold)).sure)
    return found
