"""Translates files on a Ray cluster: `keras-attn translate-corpus RUN --input 'in/*.txt.gz' --output out/`.

`out/NAME` has the bytes that `keras-attn translate RUN in/NAME.gz` writes with the same options. Files are
plain or `.gz`; what is written is plain. Without `--address` the workers are processes of this machine.

Ray Data reads blocks of `--window` lines and hands them to its workers. Each finished block is a file of
`out/.translate-corpus/blocks/NAME`, which appears complete or not at all, so that a block whose worker died is tried
again, and an interrupted job goes on with the same command. At the end the blocks of each file are joined. RUN and both
folders must be at the same places on all machines of the cluster.

A line that fails is an empty line of the output. `out/NAME.failures` has its number and the reason.
"""

import argparse
import collections
import functools
import glob
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from keras_attn import files
from keras_attn.cli import command, output_formats
from keras_attn.cli import line_streaming as streams
from keras_attn.cli.command import add_run
from keras_attn.cli.search_flags import add_search, load_translator, search_arguments
from keras_attn.requirements import require
from keras_attn.training import surroundings
from keras_attn.translation import Translation

FOLDER = ".translate-corpus"
_LAYOUT = "layout 2 "  # of that folder: a job of another layout does not go on
_ATTEMPTS = 4  # to translate a block
_KEPT = "The finished blocks are kept: the same command goes on."


def main(argv=None) -> int:
    parser = command.Parser("keras-attn translate-corpus", description=__doc__)
    add_run(parser, kinds=tuple(command.KINDS))
    option = parser.add_argument
    option("--input", metavar="GLOB", nargs="+", required=True, help="files of lines, plain or .gz")
    option("--output", metavar="FOLDER", type=Path, required=True, help="for a file of each name, without .gz")
    output_formats.add_format(parser, ("text", "tsv", "jsonl"), "text, or tsv with --n-best")
    streams.add_windows(parser)
    add_search(parser)
    option = parser.add_argument_group("cluster").add_argument
    option("--workers", metavar="N", type=command.between(int, 1, 10**5), help="processes (default: one a CPU)")
    option("--gpus", metavar="N", type=command.between(float, 0, 64), default=0, help="GPUs of a worker (default: 0)")
    option("--address", metavar="HOST:PORT", help='of a cluster, or "auto" (default: this machine alone)')
    return command.run(translate_corpus, parser, argv)


def translate_corpus(arguments: argparse.Namespace) -> None:
    require("cluster", "ray", "pyarrow", purpose="translate-corpus")
    arguments.run, arguments.output = arguments.run.absolute(), arguments.output.absolute()
    arguments.ensemble = [run.absolute() for run in arguments.ensemble]
    arguments.shortlist = arguments.shortlist and arguments.shortlist.absolute()
    arguments.backend = surroundings()["backend"]
    inputs, output = _named_files(arguments.input), arguments.output
    counts = {name: collections.Counter() for name in inputs}
    _translation_options(arguments)  # refuses what does not fit together
    job, lines = _job(arguments, inputs), 0
    for path in inputs.values():
        with streams.opened(path) as source:
            lines += streams.count_lines(source)  # a damaged `.gz` is refused here
    arguments.started = time.time_ns()
    with files.locked(output):
        _check_output(output, inputs, job)
        with streams.Progress(True, lines) as progress:
            for done in _translated_blocks(arguments, inputs, job):
                progress.add(done["lines"], done["lines"])
                counts[done.pop("name")].update(done)
        for name in inputs:
            _join(output, name)
        with files.staging(output) as staged:  # in one move: a part of a job would not go on
            (output / FOLDER).rename(staged / FOLDER)
    for name in inputs:
        streams.report_lines(counts[name], name)
    failed, lines = (sum(of_file[key] for of_file in counts.values()) for key in ("failed", "lines"))
    if failed:
        sentence = f"{failed:,} of {lines:,} lines failed: see {str(output)!r}, *.failures."
        if failed == lines:
            raise RuntimeError(sentence)
        print(sentence, file=sys.stderr)


class BlockTranslator:
    """A worker, which translates blocks of lines as `keras-attn translate` translates windows of the same lines.

    Args:
        arguments: Parsed arguments of `keras-attn translate-corpus`, with absolute paths, and the `backend`.

    Raises:
        ValueError: If an option is refused, or the preset is damaged.
        FileNotFoundError: If there is no preset.
        ImportError: If something is not installed.
    """

    def __init__(self, arguments: argparse.Namespace):
        command.import_keras(functools.partial(command.choose_backend, arguments.backend))
        self.max_characters, self.run = arguments.max_characters, arguments.started
        self.options, self.form, _ = _translation_options(arguments)
        self.translator = load_translator(arguments, arguments.run)
        self.translator.generate([], **self.options)  # refuses bad options

    def __call__(self, block: dict) -> dict:
        """Translates a block of `_blocks` and writes its files, unless they are there; returns what is counted."""
        path, lines, failures = Path(block["path"]), block["text"].split(b"\n"), {}
        counts = {"name": path.parent.name, "lines": len(lines), "failed": 0, "invalid": 0, "cut": 0, "error": ""}
        if path.exists():
            return counts
        reader = streams.TextReader(self.max_characters, path.parent.name, at_start=block["first"] == 1)
        numbers = range(block["first"], block["first"] + len(lines))
        generate, batch_size = functools.partial(self._generate, failures), self.options["batch_size"]
        try:
            texts = reader.read(lines)
            with path.with_suffix(f".{self.run}").open("ab") as attempts:  # Ray would try for ever
                attempts.write(b".")
                if attempts.tell() > _ATTEMPTS:
                    where = f"lines {numbers[0]:,} to {numbers[-1]:,} of {path.parent.name!r}"
                    raise OSError(f"Expected workers that survive. Received: {where}, at which {_ATTEMPTS} have died.")
            found = streams.in_batches(generate, texts, numbers, batch_size, streams.Progress(False), [1] * len(texts))
            if failures:
                _write(path.with_suffix(".failures"), (f"{n}\t{failures[n]}\n" for n in sorted(failures)))
            _write(path, map(self.form, numbers, texts, found))
        except (OSError, ValueError) as error:  # Ray would hide it in a trace
            return counts | {"error": str(error)}
        return counts | reader.counts | {"failed": len(failures)}

    def _generate(self, failures: dict[int, str], texts: Sequence[str], numbers: Sequence[int]) -> list[Translation]:
        """Translates texts. One that fails has a blank translation, and its number and reason in `failures`."""
        try:
            return self.translator.generate(texts, **self.options)
        except Exception as error:  # whatever fails, the other lines are translated; backends' errors share no class
            if len(texts) > 1:
                rows = zip(texts, numbers, strict=True)
                return [self._generate(failures, [text], [number])[0] for text, number in rows]
            failures[numbers[0]] = " ".join(f"{type(error).__name__}: {error}".split())
            return [Translation("")]


def _translation_options(arguments: argparse.Namespace) -> tuple[dict, Callable, dict]:
    """Returns the keyword arguments of `Translator.generate`, the format of a line, and the limits of a block."""
    options = search_arguments(arguments, arguments.run)
    form, options["return_alignments"] = output_formats.of_translations(arguments, options["n_best"])
    return options, form, streams.window_limits(arguments, options["n_best"], options["return_alignments"])


def _named_files(patterns: list[str]) -> dict[str, Path]:
    """Returns the files of the input by the names of their outputs: their own, without `.gz`."""
    found = {}
    for pattern in patterns:
        matches = [pattern, *sorted(glob.glob(pattern, recursive=True))]  # a name may have the characters of a glob
        paths = [path.absolute() for path in map(Path, matches) if path.is_file()]
        if not paths:
            raise FileNotFoundError(f"Expected --input to match files. Received: {pattern!r}, which matches none")
        found |= dict.fromkeys(paths)
    named = {path.name.removesuffix(".gz"): path for path in found}
    taken = {"", FOLDER, *(f"{name}.failures" for name in named)}
    if len(named) < len(found) or taken & named.keys():
        names = ", ".join(map(str, found))
        raise ValueError(f"Expected files whose outputs have names of their own. Received: {names}")
    return named


def _job(arguments: argparse.Namespace, inputs: dict[str, Path]) -> str:
    """Returns the text of what the output depends on: options, models, backend, files of the input."""
    names = sorted(vars(arguments).keys() - {"input", "output", "workers", "gpus", "address"})
    models = [files.digests(run) for run in (arguments.run, *arguments.ensemble)]
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in inputs.values()]
    shortlist = arguments.shortlist and files.sha256(arguments.shortlist)
    return _LAYOUT + repr(([(name, str(getattr(arguments, name))) for name in names], models, stamps, shortlist))


def _check_output(output: Path, names: Iterable[str], job: str) -> None:
    """Refuses a folder in which another job was begun, or that has a file of an output's name which no job made."""
    begun = output / FOLDER / "job"
    if begun.exists():
        if not (text := begun.read_text(encoding="utf-8")).startswith(_LAYOUT):
            raise ValueError(
                f"Expected a job of this version of keras_attn. Received: {str(begun.parent)!r} of another one. Go on "
                "with that, or remove the folder"
            )
        if text != job:
            raise ValueError(
                f"Expected the options, models and files of the job that was begun in {str(output)!r}, or another "
                "--output. Received: others"
            )
        print(f"Going on with the job in {str(output)!r}.", file=sys.stderr)
    for name in names:
        for joined, parts in _parts(output, name).items():
            _refuse_taken(joined, parts if begun.exists() else None)


def _parts(output: Path, name: str) -> dict[Path, list[Path]]:
    """Returns the finished blocks of both files of a name, by the path of the file."""
    blocks = output / FOLDER / "blocks" / name
    ends = {"failures": output / f"{name}.failures", "output": output / name}
    return {joined: sorted(blocks.glob(f"*.{end}")) for end, joined in ends.items()}


def _refuse_taken(joined: Path, parts: list[Path] | None) -> None:
    """Refuses a file that is there, unless it has the bytes of a job's blocks, which a killed process has joined."""
    if parts is not None and joined.is_file() and not joined.is_symlink():
        with joined.open("rb") as file:
            if all(file.read(part.stat().st_size) == part.read_bytes() for part in parts) and not file.read(1):
                return
    if joined.exists() or joined.is_symlink():
        raise FileExistsError(f"Expected an output folder without {joined.name!r}. Received: {str(joined)!r}")


def _translated_blocks(arguments: argparse.Namespace, inputs: dict[str, Path], job: str) -> Iterator[dict]:
    """Translates all blocks of all files by Ray Data, which replaces workers that die; yields what these return.

    Raises:
        ValueError: If a worker refuses the options or the run, or there are fewer CPUs or GPUs than the workers need.
        ConnectionError: If no cluster answers.
        OSError: If a block cannot be written, or four workers have died at it.
        RuntimeError: If the cluster is lost.
    """
    ray, gpus, folder = _connected_ray(arguments.address), arguments.gpus, arguments.output / FOLDER
    handler = signal.signal(signal.SIGTERM, _terminate)  # Ray has one of its own
    try:
        resources = ray.cluster_resources()
        most = int(min(resources["CPU"], resources.get("GPU", 0) / gpus if gpus else math.inf))
        if (workers := arguments.workers or max(1, most)) > most:
            raise ValueError(f"Expected --workers of at most {most:,} for these CPUs and GPUs. Received: {workers:,}")
        each = {"num_cpus": 1, "num_gpus": gpus or None}
        ray.get(ray.remote(**each)(lambda: BlockTranslator(arguments).options).remote())
        _write(folder / "job", [job])
        items = [{"path": str(path), "blocks": str(folder / "blocks" / name)} for name, path in inputs.items()]
        sources = ray.data.from_items(items)
        *_, limits = _translation_options(arguments)
        blocks = sources.flat_map(functools.partial(_blocks, limits), num_cpus=0)
        pool = ray.data.ActorPoolStrategy(size=workers)
        results = blocks.map(BlockTranslator, fn_constructor_args=(arguments,), compute=pool, **each)
        for done in results.iter_rows():
            if error := done.pop("error"):
                raise OSError(f"{error} {_KEPT}")
            yield done
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", error)  # of an error in a function of ours
        if not isinstance(cause, ray.exceptions.RayError):
            raise cause from None
        raise RuntimeError(f"Expected workers that survive a block. Received: {error}. {_KEPT}") from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted. {_KEPT}") from None
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, handler)


def _connected_ray(address: str | None):
    """Returns Ray, connected to a cluster or, without an address, started on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what goes wrong is raised, too
    try:
        if address not in (None, "auto"):  # where nobody answers, Ray would wait for two minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=5).close()
        with command.quietly():
            import ray.data

            logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # its errors are raised, too
            context = ray.data.DataContext.get_current()
            context.enable_progress_bars = False
            context.target_max_block_size = 1  # byte: each row is a task of its own
            options = {"log_to_driver": False, "logging_level": logging.ERROR}
            if address is None:
                options |= {"include_dashboard": False, "object_store_memory": 1 << 28}  # blocks are small
            ray.init(address or "local", **options)
    except (OSError, OverflowError, RuntimeError, ValueError, SystemExit) as error:
        raise ConnectionError(f"Expected a Ray cluster at {address or 'this machine'!r}. Received: {error}") from None
    return ray


def _terminate(number: int, frame) -> None:
    raise command.Terminated(f"received SIGTERM. {_KEPT}")


def _blocks(limits: dict, source: dict) -> Iterator[dict]:
    """Reads a file. Ray's own `read_text` also splits lines at U+2028 and form feeds, and reads a file at once."""
    first = 1
    Path(source["blocks"]).mkdir(parents=True, exist_ok=True)
    with streams.opened(Path(source["path"])) as file:
        for number, lines in enumerate(streams.windows(file, **limits)):
            path = Path(source["blocks"], f"{number:08}.output")
            yield {"path": str(path), "first": first, "text": b"\n".join(lines)}
            first += len(lines)


def _write(path: Path, lines: Iterable[str]) -> None:
    with files.replacing(path) as new:
        new.write_bytes("".join(lines).encode())


def _join(output: Path, name: str) -> None:
    """Joins the outputs of a file's blocks in their order and, beside them, what failed, if anything did."""
    for joined, parts in _parts(output, name).items():
        _refuse_taken(joined, parts)  # it may have come since the start
        if parts or joined.name == name:
            with files.replacing(joined) as new, new.open("wb") as file:
                for part in parts:
                    file.write(part.read_bytes())
