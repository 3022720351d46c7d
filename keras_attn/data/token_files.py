"""Text files to token files: encoded by processes side by side, resumable, written once, and checked when opened.

A folder of token files has `source` and `target` as `.ids` and `.offsets`, and their sizes and SHA-256 in `files.json`.
While they are written they are in a folder `<name>.part` beside it, which is locked, with a line in a journal for each
block of text that is done. Another process that wants the same token files waits. If the writer is killed, the next one
checks the blocks that are done and goes on after them. If the text has changed meanwhile, it cannot: `text.json` in the
old folder has the names of the files and the tokenizers, and the next one that encodes these removes the folder.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from keras_attn import files
from keras_attn.data.token_store import MANIFEST, SIDES
from keras_attn.text import Encoders, TextBlock, Tokenizer, iterate_blocks, unequal_lengths_error

_CHECKED = "checked.json"  # the state of the files when their SHA-256 was last compared
_TEXT = "text.json"  # what is being encoded, whatever it contains
_BLOCK = 1 << 20  # bytes of text
_TOKEN_FILES = [f"{side}.{kind}" for side in SIDES for kind in ("ids", "offsets")]
_SMALL = 1 << 20  # bytes; more than any of the JSON files has
_LINE = re.compile(rb"(?P<text>[0-9a-f]{64}) (?P<ids>\d{1,15}) (?P<tokens>[0-9a-f]{64})\n")  # of a journal
_LONGEST_LINE = 256  # bytes
_MOST_TOKENS = 16  # of a byte of text, which normalization may make longer
_TEXT_OF_A_WORKER = 1 << 23  # bytes of a side; for less, it is not worth starting another process
_MOST_WORKERS = 32  # one process reads for all of them


def default_workers(paths: tuple[list[Path], list[Path]]) -> int:
    """Returns one process for each processor that this one may use, fewer for small files."""
    if not sys.executable:  # embedded
        return 1
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    size = sum(path.stat().st_size for path in paths[0])
    return min(processors, _MOST_WORKERS, 1 + size // _TEXT_OF_A_WORKER)


def encode_files(
    paths: tuple[list[Path], list[Path]], tokenizers: tuple[Tokenizer, Tokenizer], folder: Path, workers: int
) -> None:
    """Writes token files into a folder, unless it has them as they were written.

    The folder appears only when it is complete. One process encodes at a time; the others wait for it.

    Raises:
        ValueError: If the sides have different numbers of files or lines, or as `iterate_lines`.
        OSError: If the folder cannot be written, or the disk is full.
        ChildProcessError: If a process that encodes was killed. What is done stays.
    """
    if len(paths[0]) != len(paths[1]):
        raise ValueError(
            f"Expected as many source files as target files. Received: {len(paths[0])} and {len(paths[1])}"
        )
    part = folder.with_name(f"{folder.name}.part")
    if is_whole(folder):
        for parent in (folder.parent, folder):
            files.remove_leftovers(parent)
        if not part.exists():
            return
        # Its writer was killed after its last step, or is about to remove it. It is in nobody's way.
        with contextlib.suppress(OSError), files.locked(part, wait=True):
            _clear(part)
    else:
        with files.locked(part, wait=True), files.needs_room(folder.parent):
            files.remove_leftovers(folder.parent)
            try:
                if not is_whole(folder):  # else another process was faster
                    _remove_outdated(paths, tokenizers, part)
                    _encode(paths, tokenizers, part, workers)
                    _publish(part, folder)
            except ChildProcessError:
                raise
            except (ValueError, OSError):
                _clear(part)
                raise
            _clear(part)
    with contextlib.suppress(OSError):  # another process has it now
        part.rmdir()


def is_whole(folder: Path) -> bool:
    """Returns whether token files are as they were written.

    Their SHA-256 is compared if the files were touched since it was last compared: if their size, inode or one of
    their times is another one.
    """
    try:
        recorded, state = json.loads(files.read_bounded(folder / MANIFEST, _SMALL)), _state(folder)
    except (OSError, ValueError, RecursionError):
        return False
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if json.loads(files.read_bounded(folder / _CHECKED, _SMALL)) == state:
            return True
    if not _has_sizes(recorded, state) or recorded != _digests(folder):
        return False
    _record(folder)
    return True


def _digests(folder: Path) -> dict[str, dict[str, int | str]]:
    paths = {name: folder / name for name in _TOKEN_FILES}
    return {name: {"size": path.stat().st_size, "sha256": files.sha256(path)} for name, path in paths.items()}


def _has_sizes(recorded: Any, state: dict[str, list[int]]) -> bool:
    """Returns whether the token files have the sizes of the manifest, so that no more is read than was written."""
    try:
        return all(recorded[name]["size"] == state[name][0] for name in _TOKEN_FILES)
    except (LookupError, TypeError):
        return False


def _state(folder: Path) -> dict[str, list[int]]:
    """Returns the size, inode and times of each file.

    Raises:
        ValueError: If one is not a regular file: reading a pipe or a device might not end.
    """
    found = {name: (folder / name).stat() for name in (*_TOKEN_FILES, MANIFEST)}
    if irregular := [name for name, status in found.items() if not stat.S_ISREG(status.st_mode)]:
        raise ValueError(f"Expected files in {folder}. Received: {irregular[0]}, a pipe or a device")
    return {name: [s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns] for name, s in found.items()}


def _record(folder: Path) -> None:
    """Notes that the files are as they were written."""
    # If it cannot be written, the files are read at each opening.
    with contextlib.suppress(OSError), files.replacing(folder / _CHECKED) as path:
        path.write_text(json.dumps(_state(folder)))


def _publish(part: Path, folder: Path) -> None:
    encoded = part / "encoded"
    (encoded / MANIFEST).write_text(json.dumps(_digests(encoded)))
    if folder.exists():
        os.rename(folder, part / "damaged")
    files.move(encoded, folder)
    _record(folder)


def _remove_outdated(paths: tuple[list[Path], ...], tokenizers: tuple[Tokenizer, ...], part: Path) -> None:
    """Removes what killed writers left of the same files with other text, and notes which files these are."""
    names = [[str(path.resolve()) for path in side] for side in paths]
    text = json.dumps([*names, *(tokenizer.fingerprint for tokenizer in tokenizers)])
    for other in part.parent.glob("*.part"):
        # Locked: another process encodes into it. Not readable: it is removed meanwhile.
        with contextlib.suppress(OSError, ValueError):
            if other != part and files.read_bounded(other / _TEXT, len(text.encode())).decode() == text:
                with files.locked(other):
                    _clear(other)
                other.rmdir()
    (part / _TEXT).unlink(missing_ok=True)  # a pipe would not end
    (part / _TEXT).write_text(text, encoding="utf-8")


def _clear(part: Path) -> None:
    """Removes what is in the folder but its lock, which `files.locked` removes."""
    for path in part.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != files.LOCK:
            path.unlink(missing_ok=True)


def _encode(paths: tuple[list[Path], ...], tokenizers: tuple[Tokenizer, ...], part: Path, workers: int) -> None:
    (part / "encoded").mkdir(exist_ok=True)
    counts: list[list[int]] = [[], []]  # lines of each file
    with Encoders(tokenizers, workers) as encoders:
        for side, name in enumerate(SIDES):
            blocks = _blocks(paths[side], side, counts[side])
            _encode_side(blocks, encoders, part / "encoded" / name, part / f"{name}.journal")
    for pair, numbers in zip(zip(*paths, strict=True), zip(*counts, strict=True), strict=True):
        if numbers[0] != numbers[1]:
            raise unequal_lengths_error(*pair, *numbers)


def _blocks(paths: list[Path], side: int, counts: list[int]) -> Iterator[TextBlock]:
    for path in paths:
        counts.append(0)
        for number, text in iterate_blocks(path, _BLOCK):
            counts[-1] = number + text.count(b"\n") + (not text.endswith(b"\n"))
            yield TextBlock(text, path, number, side)


def _encode_side(blocks: Iterator[TextBlock], encoders: Encoders, prefix: Path, journal: Path) -> None:
    """Writes the ids of the blocks, in order; those that the journal has are compared and kept."""
    with _changed(f"{prefix}.ids") as ids, _changed(f"{prefix}.offsets") as offsets, _changed(journal) as lines:
        if np.fromfile(offsets, np.int64, 1).tolist() != [0]:
            offsets.seek(0)
            offsets.write(np.zeros(1, np.int64))
        places, following = [file.tell() for file in (ids, offsets, lines)], []
        done = iter(lambda: lines.readline(_LONGEST_LINE), b"")
        for line, block in zip(done, blocks, strict=False):  # takes a line first, and no block when there is none
            if not _is_done(line, block.text, ids, offsets):
                following = [block]
                break
            places = [ids.tell(), offsets.tell(), places[2] + len(line)]
        for file, place in zip((ids, offsets, lines), places, strict=True):
            file.seek(place)
            file.truncate()
        texts: deque[str] = deque()  # SHA-256 of the blocks that are being encoded

        def noted() -> Iterator[TextBlock]:
            for block in itertools.chain(following, blocks):
                texts.append(hashlib.sha256(block.text).hexdigest())
                yield block

        total = places[0] // np.dtype(np.int32).itemsize
        for token_ids, lengths in encoders.encode(noted()):
            ends = total + np.cumsum(lengths, dtype=np.int64)  # (lines,)
            total = int(ends[-1])
            line = f"{texts.popleft()} {len(token_ids)} {_digest(token_ids, ends)}\n".encode()
            for file, content in ((ids, token_ids), (offsets, ends), (lines, line)):  # the line that says so comes last
                file.write(content)
                file.flush()


def _changed(path: Path | str) -> BinaryIO:
    """Opens a file for reading and writing, and makes it if it is missing, or a link, a pipe or a device."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            os.unlink(path)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")


def _is_done(line: bytes, text: bytes, ids: BinaryIO, offsets: BinaryIO) -> bool:
    """Returns whether a line of a journal is that of this text, and the next ids and offsets are those it names."""
    found = _LINE.fullmatch(line)
    if found is None or found["text"].decode() != hashlib.sha256(text).hexdigest():
        return False
    count = int(found["ids"])
    if 4 * count > os.fstat(ids.fileno()).st_size or count > _MOST_TOKENS * (len(text) + 1):
        return False
    rows = text.count(b"\n") + (not text.endswith(b"\n"))
    token_ids, ends = np.fromfile(ids, np.int32, count), np.fromfile(offsets, np.int64, rows)
    return found["tokens"].decode() == _digest(token_ids, ends)


def _digest(token_ids: np.ndarray, ends: np.ndarray) -> str:
    digest = hashlib.sha256(token_ids)
    digest.update(ends)
    return digest.hexdigest()
