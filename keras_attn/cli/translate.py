"""Translates stdin to stdout, a line out for every line in: `keras-attn translate RUN < text`.

Lines end at "\\n" alone. A blank line stays blank. Bytes that are not UTF-8 are read as U+FFFD, and a line of
more than `--longest` characters is cut there; how many lines that befell is said on stderr at the end.

The lines that have come in are translated together, sorted by length, at most `--window` of them and fewer of
long ones: a million lines stream through bounded memory, and a line that is typed is answered at once. What
comes out is in the order of the input, and the same for any size of window or batch.

`--output FILE` is called `FILE.part` until all is done. So a file with its right name is whole, and a command
that was killed leaves the lines that it had finished. Nothing is ever overwritten.
"""

import argparse
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from keras_attn.cli import command
from keras_attn.cli import line_streaming as streams
from keras_attn.cli import output_formats as formats
from keras_attn.cli.search_flags import add_search, between, load, read_report, search

_MEMORY = 1 << 26  # bytes that the translations of a window take, about


def main(argv=None) -> int:
    parser = command.Parser("keras_attn.cli.translate", description=__doc__.splitlines()[0])
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run, or any preset")
    option = parser.add_argument
    option("--input", metavar="FILE", type=Path, help="default: stdin")
    option("--output", metavar="FILE", type=Path, help="a new file (default: stdout)")
    option("--format", choices=("text", "tsv", "jsonl"), help="default: text, or tsv with --n-best")
    option("--fields", metavar="F,F", help=f"for jsonl, any of {','.join(formats.FIELDS)} (default: text,score)")
    option("--window", metavar="N", type=between(int, 1, 10**6), default=4096, help="lines sorted together, at most")
    option("--longest", metavar="N", type=between(int, 1, 10**6), default=5000, help="characters read of a line")
    add_search(parser)
    option("--n-best", metavar="N", dest="search.n_best", type=between(int, 1, 1000), default=1, help="of each line")
    option = parser.add_argument_group("sampling, in the place of a beam").add_argument
    option("--samples", metavar="N", type=between(int, 1, 1000), help="translations drawn of each line")
    option("--temperature", metavar="T", type=between(float, 1e-3, 1e3), default=1.0, help="above 1: bolder")
    option("--top-k", metavar="N", type=between(int, 0, 10**6), default=0, help="of the N best tokens (0: all)")
    option("--top-p", metavar="P", type=between(float, 1e-6, 1), default=1.0, help="of the fewest that hold P")
    option("--seed", metavar="N", type=between(int, 0, 2**31 - 1), default=0, help="fixes what is drawn")
    option = parser.add_argument_group("alignments between words, of the best translation").add_argument
    option("--pharaoh", metavar="FILE", type=Path, help="lines of links i-j: source word i, target word j, from 0")
    option("--threshold", metavar="P", type=between(float, 0, 1), help="links of this weight (default: the heaviest)")
    option("--html", metavar="FILE", type=Path, help="a page in which to point at words")
    option("--png", metavar="FOLDER", type=Path, help="a picture of each sentence")
    option("--drawn", metavar="N", type=between(int, 1, 10**5), default=100, help="sentences in --html, --png")
    return command.run(translate, parser, argv)


def translate(arguments: argparse.Namespace) -> None:
    chosen = search(arguments, arguments.run)
    chosen["n_best"] = arguments.samples or chosen["n_best"]
    form, chosen["return_alignments"] = _form(arguments, chosen["n_best"])
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(streams.opened(arguments.input)) if arguments.input else streams.standard("stdin")
        files = {
            name: stack.enter_context(streams.new_file(path))
            for name in ("output", "pharaoh", "html")
            if (path := getattr(arguments, name))
        }
        pictures = stack.enter_context(streams.new_folder(arguments.png)) if arguments.png else None
        output = files.get("output") or streams.Output(streams.standard("stdout"), "stdout")

        translator = load(arguments, arguments.run)
        generate = _sampler(translator, chosen, arguments) if arguments.samples else generator(translator, chosen)
        generate([], [])  # refuses bad options even when no line comes
        aligned = _alignment_files(translator, arguments, files, pictures)
        with streams.Progress(not output.file.isatty(), streams.size(source)) as progress:
            for number, texts, found in windows(generate, source, chosen, arguments, progress):
                lines = zip(texts, found, strict=True)
                output.write("".join(form(n, *line) for n, line in enumerate(lines, start=number)).encode())
                aligned.add(number, texts, found)
        aligned.close()


def generator(translator, chosen: dict) -> Callable[[list[str], list[int]], list]:
    """Translates texts, whose numbers do not matter."""
    return lambda texts, numbers: translator.generate(texts, **chosen)


def _sampler(translator, chosen: dict, arguments) -> Callable[[list[str], list[int]], list]:
    """Draws translations of texts; what is drawn depends on their numbers."""
    beam = ("beam_size", "n_best", "coverage_penalty", "early_stopping")
    options = {name: value for name, value in chosen.items() if name not in beam}
    options |= {name: getattr(arguments, name) for name in ("temperature", "top_k", "top_p", "seed")}
    options["num_samples"] = arguments.samples
    return lambda texts, numbers: translator.sample(texts, row_ids=numbers, **options)


def windows(generate, source: BinaryIO, chosen: dict, arguments, progress) -> Iterator[tuple[int, list, list]]:
    """Of each window of lines: the number of its first line, the texts, their translations."""
    number, invalid, cut = 1, 0, 0
    for lines in streams.windows(
        source,
        most_lines=arguments.window,
        most_weight=_MEMORY,
        weigh=functools.partial(_weigh, chosen["n_best"], chosen["return_alignments"]),
        longest=4 * (arguments.longest + 1),  # bytes, of which a character has four at most
        patient_from=chosen["batch_size"],
    ):
        texts = [line.decode("utf-8", errors="replace") for line in lines]
        cut += sum(len(text) > arguments.longest for text in texts)
        texts = [text[: arguments.longest] for text in texts]
        invalid += sum(not line.startswith(text.encode()) for line, text in zip(lines, texts, strict=True))
        numbers, sizes = range(number, number + len(lines)), [len(line) + 1 for line in lines]
        yield number, texts, in_chunks(generate, texts, numbers, chosen["batch_size"], progress, sizes)
        number += len(lines)
    for count, what in ((invalid, "held bytes that are not UTF-8, read as U+FFFD"), (cut, "were cut: see --longest")):
        if count:
            print(f"{count:,} of {number - 1:,} lines {what}.", file=sys.stderr)


def in_chunks(
    generate: Callable, texts: Sequence[str], numbers: Sequence[int], batch_size: int, progress, sizes: Sequence[int]
) -> list:
    """Translations in the order of the texts; a few batches at a time, so that progress shows within a window."""
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    found = [None] * len(texts)
    for start in range(0, len(order), 4 * batch_size):
        rows = order[start : start + 4 * batch_size]
        translations = generate([texts[row] for row in rows], [numbers[row] for row in rows])
        for row, translation in zip(rows, translations, strict=True):
            found[row] = translation
        progress.add(len(rows), sum(sizes[row] for row in rows))
    return found


def _weigh(n_best: int, has_alignments: bool, line: bytes) -> int:
    """Bytes that the translations of a line take, about: tokens are taken for two bytes long."""
    tokens = len(line) // 2 + 1
    return n_best * (1500 + 100 * tokens + (4 * tokens**2 if has_alignments else 0))


def _form(arguments, n_best: int) -> tuple[Callable, bool]:
    """The format of a line, and whether search has to follow alignments."""
    name = arguments.format or ("text" if n_best == 1 else "tsv")
    if name == "text" and n_best > 1:
        raise ValueError("Expected --format tsv or jsonl with --n-best, for text has a line for every line in.")
    if arguments.fields and name != "jsonl":
        raise ValueError(f"Expected --format jsonl with --fields. Received: --format {name}")
    fields = (arguments.fields or "text,score").split(",")
    unknown = [field for field in fields if field not in formats.FIELDS]
    if unknown:
        raise ValueError(f"Expected --fields among: {', '.join(formats.FIELDS)}. Received: {', '.join(unknown)}")
    is_aligned = arguments.pharaoh or arguments.html or arguments.png or "alignment" in fields
    return formats.named(name, fields), bool(is_aligned)


def _alignment_files(translator, arguments, files: dict, pictures: Path | None):
    from keras_attn.cli.alignment_files import AlignmentFiles

    told = read_report(arguments.run)
    return AlignmentFiles(
        translator,
        pharaoh=files.get("pharaoh"),
        threshold=arguments.threshold,
        page=files.get("html"),
        pictures=pictures,
        most=arguments.drawn,
        title=f"Alignments of {arguments.run.resolve().name}",
        source_language=told["source"] or "",
        target_language=told["target"] or "",
    )


if __name__ == "__main__":
    sys.exit(main())
