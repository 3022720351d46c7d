"""Translates stdin to stdout, a line out for every line in: `python -m recipes.translate RUN < text`.

Lines end at "\\n" alone. A blank line stays blank. A line that is not valid UTF-8 is translated with U+FFFD
in place of its invalid bytes, and how many there were is said on stderr at the end. With `--n-best N` each
line in gives N lines
out, of three columns: the number of the line, the score, the translation.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from recipes import command


def main(argv=None) -> int:
    parser = command.Parser("recipes.translate", description=__doc__.splitlines()[0])
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run, or any preset")
    parser.add_argument("--beam", type=int, default=5, help="beam size; 1 is greedy (default: %(default)s)")
    parser.add_argument("--n-best", type=int, default=1, help="translations of each line (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences at once (default: %(default)s)")
    parser.add_argument("--length-penalty", type=float, help="default: the run's")
    return command.run(translate, parser, argv)


def translate(arguments: argparse.Namespace) -> None:
    from keras_attn.translator import Translator

    translator = Translator.from_preset(arguments.run)
    options = {
        "beam_size": arguments.beam,
        "n_best": arguments.n_best,
        "batch_size": arguments.batch_size,
        "length_penalty": length_penalty(arguments.run, arguments.length_penalty),
        "return_alignments": False,
    }
    translator.generate([], **options)  # refuses bad options even when no line comes
    number = invalid = 0
    started = time.monotonic()
    for lines in read_lines(sys.stdin.buffer):
        texts = [line.decode("utf-8", errors="replace") for line in lines]
        invalid += sum(text.encode() != line for text, line in zip(texts, lines, strict=True))
        for translation in translator.generate(texts, **options):
            number += 1
            sys.stdout.buffer.write(_format(number, translation, arguments.n_best).encode())
        sys.stdout.buffer.flush()
        if sys.stderr.isatty() and not sys.stdout.isatty():
            rate = number / (time.monotonic() - started)
            print(f"\r{number:,} lines, {rate:,.1f} a second", end="", file=sys.stderr, flush=True)
    if invalid:
        print(f"{invalid:,} of {number:,} lines held bytes that are not UTF-8, read as U+FFFD.", file=sys.stderr)


def read_lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Lists of whole lines as they arrive: a slow writer is answered at once, a file read in pieces."""
    rest = b""
    while block := stream.read1(1 << 16):
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def length_penalty(run: Path, chosen: float | None) -> float:
    """What was chosen, else what the run's report says, else 1."""
    path = run / "report.json"
    if chosen is None and path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))["config"]["length_penalty"]
    return 1.0 if chosen is None else chosen


def _format(number: int, translation, n_best: int) -> str:
    if n_best == 1:
        return _one_line(translation.text) + "\n"
    found = translation.n_best or (translation,)
    return "".join(f"{number}\t{t.score:.4f}\t{_one_line(t.text)}\n" for t in found)


def _one_line(text: str) -> str:
    """A byte-level vocabulary can write anything, a line break too."""
    return text.replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
