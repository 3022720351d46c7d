"""The files of a bulk translation: blocks of lines, a folder of results for each, and the output that joins these.

A job works in a folder `.translate-corpus` of its output folder. That has, for each file of the input, a folder with

- `00000000.txt`, `00000001.txt`, ...: the lines in blocks,
- `blocks.json`: how many lines each has, written last,
- `00000000`, `00000001`, ...: folders with the results of a block, which appear complete or not at all.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from keras_attn import files
from keras_attn.cli import line_streaming as streams

FOLDER = ".translate-corpus"
_OUTPUT, _FAILURES, _COUNTS, _SIZES, _JOB = "output", "failures", "counts.json", "blocks.json", "job.json"


class Block(NamedTuple):
    """Some lines of a file of the input."""

    folder: str  # of the blocks of that file
    index: int
    first: int  # the number of its first line in that file, from 1
    size: int  # lines

    @property
    def source(self) -> Path:
        return Path(self.folder) / f"{self.index:08}.txt"

    @property
    def results(self) -> Path:
        return Path(self.folder) / f"{self.index:08}"

    def lines(self) -> list[bytes]:
        """Returns the lines, without their "\\n"."""
        return self.source.read_bytes().split(b"\n")[:-1]

    def attempt(self, run: str) -> int:
        """Counts an attempt to translate the block, and returns how many there have been in this run of the command."""
        with self.source.with_suffix(f".{run}").open("ab") as file:
            file.write(b".")
            return file.tell()

    def write(self, output: str, failures: Mapping[int, str], counts: Mapping[str, int]) -> None:
        """Writes the results in one move, unless another worker has done so.

        Args:
            output: The lines of output.
            failures: Why a line failed, by its number.
            counts: What is counted of the lines.

        Raises:
            OSError: If they cannot be written.
        """
        with files.staging(Path(self.folder)) as folder:
            new = folder / self.results.name
            new.mkdir()
            (new / _OUTPUT).write_bytes(output.encode())
            rows = (f"{number}\t{reason}\n" for number, reason in sorted(failures.items()))
            (new / _FAILURES).write_bytes("".join(rows).encode())
            (new / _COUNTS).write_text(json.dumps(counts), encoding="utf-8")
            files.publish(new, self.results)

    def counts(self) -> dict[str, int]:
        """Returns the counts that `write` wrote."""
        return json.loads((self.results / _COUNTS).read_text(encoding="utf-8"))


def named_outputs(inputs: Sequence[Path], output: Path) -> dict[str, Path]:
    """Returns the files of the input by the names of their outputs: their own, without `.gz`.

    Raises:
        ValueError: If two have the same name.
    """
    named = {}
    for path in inputs:
        name = path.name.removesuffix(".gz")
        for taken in (name, failures_of(output / name).name, name.removesuffix(".failures")):
            if taken in named:
                raise ValueError(
                    f"Expected files whose outputs have names of their own. Received: {str(named[taken])!r} and "
                    f"{str(path)!r}"
                )
        named[name] = path
    return named


def failures_of(output: Path) -> Path:
    """Returns the file with the numbers of the lines that failed, beside their output."""
    return output.with_name(f"{output.name}.failures")


def check_output(output: Path, names: Sequence[str], job: Mapping | None = None) -> bool:
    """Checks that a job can begin, or go on, in its output folder.

    Args:
        output: The folder.
        names: Of the outputs.
        job: What the results depend on; None: not known yet, and not compared.

    Returns:
        Whether it goes on.

    Raises:
        FileExistsError: If there is a file of the name of an output, and no job that goes on.
        ValueError: If another job was begun in the folder.
    """
    begun = output / FOLDER / _JOB
    if begun.exists():
        before = json.loads(begun.read_text(encoding="utf-8"))
        if job and (changed := [name for name, value in job.items() if before.get(name) != value]):
            raise ValueError(
                f"Expected to go on with the job that was begun in {str(output)!r}, or another --output. Received: "
                f"another {' and another '.join(changed)} than it has"
            )
        return True
    for path in (output / name for name in names):
        for taken in (path, failures_of(path)):
            if taken.exists() or taken.is_symlink():
                raise FileExistsError(f"Expected an output folder without {taken.name!r}. There is: {str(taken)!r}")
    return False


def begin(output: Path, job: Mapping) -> None:
    """Notes what the results of a job depend on, for `check_output`."""
    with files.replacing(output / FOLDER / _JOB) as new:
        new.write_text(json.dumps(job), encoding="utf-8")


def split(path: Path, folder: Path, limits: Mapping) -> list[Block]:
    """Writes the lines of a file in blocks into a folder, unless that was done before.

    Args:
        path: The file, plain or `.gz`.
        folder: Its folder of blocks.
        limits: Of a block; the arguments of `keras_attn.cli.line_streaming.windows`.

    Raises:
        ValueError: If it is a damaged `.gz`.
        OSError: If it cannot be read, or the blocks cannot be written.
    """
    index = folder / _SIZES
    if not index.exists():
        folder.mkdir(parents=True, exist_ok=True)
        sizes = []
        with streams.opened(path) as source:
            for number, lines in enumerate(streams.windows(source, **limits)):
                block = Block(str(folder), number, 0, len(lines)).source
                with block.open("wb") as file:
                    streams.Output(file, repr(str(block))).write(b"".join(line + b"\n" for line in lines))
                sizes.append(len(lines))
        with files.replacing(index) as new:
            new.write_text(json.dumps(sizes), encoding="utf-8")
    blocks, first = [], 1
    for number, size in enumerate(json.loads(index.read_text(encoding="utf-8"))):
        blocks.append(Block(str(folder), number, first, size))
        first += size
    return blocks


def join(blocks: Sequence[Block], output: Path) -> None:
    """Joins the results of all blocks of a file, in their order; beside the output, what failed, if anything did.

    Raises:
        OSError: If they cannot be written.
    """
    if output.exists():  # it was joined before the job was interrupted
        return
    if any(block.counts()["failed"] for block in blocks):
        with files.replacing(failures_of(output)) as new, new.open("wb") as file:
            _append(blocks, _FAILURES, file)
    with files.replacing(output) as new, new.open("wb") as file:
        _append(blocks, _OUTPUT, file)


def _append(blocks: Sequence[Block], name: str, file: BinaryIO) -> None:
    for block in blocks:
        with (block.results / name).open("rb") as part:
            shutil.copyfileobj(part, file)
