"""Translates files on a Ray cluster: `keras-attn translate-corpus RUN --input 'in/*.txt.gz' --output out/`.

`out/NAME` has the bytes that `keras-attn translate RUN --input in/NAME.gz` writes with the same options. Files are
plain or `.gz`; what is written is plain. Without `--address` the workers are processes of this machine.

The lines are translated in blocks of `--window` lines. The results of a block appear complete or not at all, so that a
block whose worker died is tried again, and a job that was killed goes on with the same command. RUN, both folders
must be at the same places on all machines of the cluster.

A line that fails is an empty line of the output. `out/NAME.failures` has its number and the reason.
"""

import argparse
import contextlib
import glob
import hashlib
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from keras_attn import files
from keras_attn.cli import command, corpus_blocks, environment, output_formats, ray_cluster
from keras_attn.cli.command import add_run
from keras_attn.cli.corpus_worker import COUNTS, BlockTranslator, translation_options
from keras_attn.cli.line_streaming import Progress
from keras_attn.cli.search_flags import add_search
from keras_attn.cli.text_windows import TextReader, add_windows, window_limits
from keras_attn.requirements import require
from keras_attn.training import surroundings

_FORM = ("format", "fields", "scores", "alignments", "window", "max_characters", "average")
_NEWS = 30  # seconds between lines of progress where stderr is not a terminal


def main(argv=None) -> int:
    parser = command.Parser("keras-attn translate-corpus", description=__doc__.splitlines()[0])
    add_run(parser)
    option = parser.add_argument
    option("--input", metavar="GLOB", nargs="+", required=True, help="files of lines, plain or .gz")
    option("--output", metavar="FOLDER", type=Path, required=True, help="for a file of each name, without .gz")
    output_formats.add_format(parser)
    option("--scores", action="store_true", help="JSON lines with scores")
    option("--alignments", action="store_true", help="JSON lines with tokens and alignments")
    add_windows(parser)
    add_search(parser)
    option = parser.add_argument_group("cluster").add_argument
    option("--workers", metavar="N", type=command.between(int, 1, 10**5), help="processes (default: one a CPU)")
    option("--gpus", metavar="N", type=command.between(float, 0, 64), default=0, help="GPUs of a worker (default: 0)")
    option("--address", metavar="HOST:PORT", help='of a cluster, or "auto" (default: this machine alone)')
    return command.run(translate_corpus, parser, argv, prepare=_prepare)


def translate_corpus(arguments: argparse.Namespace) -> None:
    arguments.run, arguments.output = arguments.run.absolute(), arguments.output.absolute()
    arguments.ensemble = [run.absolute() for run in arguments.ensemble]
    arguments.shortlist = arguments.shortlist and arguments.shortlist.absolute()
    inputs = corpus_blocks.named_outputs(_files(arguments.input), arguments.output)
    options, _ = translation_options(arguments)
    names = list(inputs)
    with files.locked(arguments.output):
        corpus_blocks.check_output(arguments.output, names)
        folder = arguments.output / corpus_blocks.FOLDER
        with ray_cluster.connected(arguments.address, arguments.workers, arguments.gpus) as workers:
            worker = arguments, surroundings()["backend"], uuid.uuid4().hex
            job = {
                "model": ray_cluster.once(BlockTranslator, worker, "fingerprint", arguments.gpus),
                "backend": worker[1],
                "input": [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in inputs.values()],
                "set of options": _hash([sorted(options.items()), *(getattr(arguments, name) for name in _FORM)]),
            }
            blocks = _blocks(inputs, folder, job, window_limits(options, arguments))
            with _told_when_interrupted():
                _translate(blocks, worker, workers, arguments.gpus)
        for name in names:
            corpus_blocks.join(blocks[name], arguments.output / name)
        counts = _counts(blocks)
        with files.staging(arguments.output) as staged:  # in one move: a part of a job would not go on
            folder.rename(staged / folder.name)
    _report(counts, arguments.output)


def _prepare() -> None:
    require("cluster", "ray", "pyarrow", purpose="translate-corpus")
    environment.prepare()


def _files(patterns: list[str]) -> list[Path]:
    found = {}
    for pattern in patterns:
        # A file whose name has the characters of a glob is itself.
        matches = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
        paths = [path for path in map(Path, matches) if path.is_file()]
        if not paths:
            raise FileNotFoundError(f"Expected --input to match files. Received: {pattern!r}, which matches none")
        found |= dict.fromkeys(path.absolute() for path in paths)
    return list(found)


def _hash(value: list) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _blocks(inputs: dict[str, Path], folder: Path, job: dict, limits: dict) -> dict[str, list[corpus_blocks.Block]]:
    """Begins a job, or goes on with it: returns the blocks of each file."""
    if goes_on := corpus_blocks.check_output(folder.parent, list(inputs), job):
        print(f"Going on with the job in {str(folder.parent)!r}.", file=sys.stderr)
    else:
        corpus_blocks.begin(folder.parent, job)
    try:
        return {name: corpus_blocks.split(path, folder / "files" / name, limits) for name, path in inputs.items()}
    except (ValueError, OSError):
        if not goes_on:  # nothing is translated yet, and the file may be mended
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _translate(blocks: dict[str, list[corpus_blocks.Block]], worker: tuple, workers: int, gpus: float) -> None:
    every = [block for of_file in blocks.values() for block in of_file]
    rows = [block._asdict() for block in every if not block.results.exists()]
    total = sum(block.size for block in every)
    done = total - sum(row["size"] for row in rows)
    with Progress(True, total - done) as progress:
        news = time.monotonic()
        for result in ray_cluster.mapped(BlockTranslator, worker, rows, workers, gpus) if rows else ():
            if result["error"]:
                raise OSError(f"{result['error']} The finished blocks are kept: the same command goes on.")
            progress.add(result["lines"], result["lines"])
            if not progress.shown and time.monotonic() - news > _NEWS:
                news = time.monotonic()
                print(f"{done + progress.lines:,} of {total:,} lines", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _told_when_interrupted() -> Iterator[None]:
    """Ctrl+C and SIGTERM, for which Ray has handlers of its own, become a sentence and an exit status."""
    received = []

    def note(number, frame):
        received.append(number)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    usual = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM) if is_main}
    try:
        yield
    except KeyboardInterrupt:
        kept = "The finished blocks are kept: the same command goes on."
        if signal.SIGTERM in received:
            raise command.Terminated(f"received SIGTERM. {kept}") from None
        raise KeyboardInterrupt(f"interrupted. {kept}") from None
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _counts(blocks: dict[str, list[corpus_blocks.Block]]) -> dict[str, int]:
    counts = dict.fromkeys(COUNTS, 0)
    for of_file in blocks.values():
        for block in of_file:
            for name, count in block.counts().items():
                counts[name] += count
    return counts


def _report(counts: dict[str, int], output: Path) -> None:
    reader = TextReader(1)
    reader.lines, reader.invalid, reader.cut = counts["lines"], counts["invalid"], counts["cut"]
    reader.close()
    if failed := counts["failed"]:
        said = f"{failed:,} of {counts['lines']:,} lines failed: see {str(output)!r}, *.failures."
        if failed == counts["lines"]:
            raise RuntimeError(said)
        print(said, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
