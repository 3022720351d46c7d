"""Files and folders that appear complete or not at all, and locks that end with the process that holds them.

Whatever takes time to write is written into a folder `.tmp-<32 hexadecimal digits>` beside its place (`staging`) and
then moved there: contents reach the disk first, the name after them. The folder has a file that the writer keeps
locked. If the writer is killed, the lock is free, and the next one to write in the same place removes the folder.

On the few file systems without locks, two processes do not see each other, and the folders of killed writers stay;
names are unique there, too.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".keras_attn.lock"
_STAGING = re.compile(r"\.tmp-[0-9a-f]{32}")
_WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
_REMOVED = (FileExistsError, FileNotFoundError)  # making a folder that another process removes meanwhile
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Keeps a folder for this process, until the end of the block or of the process, and makes it if it is missing.

    What killed writers left in it is removed first. If it was made and is still empty at the end, it is removed.

    Args:
        folder: The folder.
        wait: bool, whether to wait for the end of another process that has locked the folder.

    Raises:
        FileExistsError: if another process has locked the folder and `wait` is False, or it is a file.
        OSError: if it cannot be written.
    """
    with _made(folder):
        with _names(folder, "written"):
            lock = _locked(folder, wait)
        if lock is None:
            raise FileExistsError(
                f"Expected no other process in {str(folder)!r}. One works there: wait for its end, or choose another "
                "folder."
            )
        try:
            remove_leftovers(folder)
            yield
        finally:
            with contextlib.suppress(PermissionError):  # on Windows `release` removes it
                (folder / LOCK).unlink(missing_ok=True)  # while it is locked, so that no other process has it
            lock.release()


def as_path(place: str | os.PathLike, expected: str) -> Path:
    """Returns a path.

    Args:
        place: What a caller gave as a path.
        expected: What it should lead to, for the message.

    Raises:
        ValueError: if it is no path.
    """
    if not isinstance(place, (str, os.PathLike)):
        raise ValueError(f"Expected {expected}. Received: {place!r}")
    return Path(place)


def existing(place: str | os.PathLike, expected: str) -> Path:
    """Returns the path of a file.

    Args:
        place, expected: See `as_path`.

    Raises:
        ValueError: if it is no path.
        FileNotFoundError: if no file is there.
    """
    path = as_path(place, expected)
    if not path.is_file():
        reason = "which is no file" if path.exists() else "which does not exist"
        raise FileNotFoundError(f"Expected {expected}. Received: {str(path)!r}, {reason}")
    return path


def is_empty(folder: Path) -> bool:
    """Returns whether a folder has no files, its lock apart."""
    return all(path.name == LOCK for path in folder.iterdir())


@contextlib.contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Makes a folder in `parent` in which to write what is then moved into `parent`; removes it at the end.

    What killed writers left in `parent` is removed first. If `parent` was made and is still empty at the end, it is
    removed.

    Raises:
        FileExistsError: if `parent` is a file.
        OSError: if `parent` cannot be written, or the disk is full.
    """
    with _made(parent):
        remove_leftovers(parent)
        lock = None
        while lock is None:  # until it is locked, another process may take it for a leftover
            folder = parent / f".tmp-{uuid.uuid4().hex}"
            with _names(parent, "written"):
                folder.mkdir()
                with contextlib.suppress(*_REMOVED):
                    lock = _lock(folder)
        try:
            with needs_room(parent):
                yield folder
        finally:
            _remove(folder, lock)


@contextlib.contextmanager
def needs_room(folder: Path) -> Iterator[None]:
    """Re-raises a "disk full" error with the folder's name.

    Raises:
        OSError: if the disk is full; see `is_disk_full`.
    """
    try:
        yield
    except OSError as error:
        if not is_disk_full(error) or error.strerror is None:
            raise
        full = type(error)(f"Expected room for what is written. Received: {str(folder)!r}, {error.strerror}.")
        full.errno = error.errno
        raise full from error


def is_disk_full(error: BaseException) -> bool:
    """Returns whether an error is that of a full disk, a used-up quota or a limit to the size of files."""
    return isinstance(error, OSError) and error.errno in _FULL


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields another path to write a file to. At the end of the block the file replaces `path` in one move.

    Raises:
        OSError: see `staging`.
    """
    with staging(path.parent) as folder:
        yield folder / path.name
        move(folder / path.name, path)


def move(new: Path, target: Path) -> None:
    """Moves a file or a folder into place. A power cut leaves the old one or the whole new one.

    Raises:
        OSError: if it cannot be moved; a folder, too, if there is one already.
    """
    for path in (new, *new.rglob("*")):
        if path.is_file():
            _flush(path)
    os.replace(new, target)
    if os.name != "nt":  # where folders cannot be opened
        _flush(target.parent)


def publish(new: Path, target: Path) -> bool:
    """Moves a folder into place unless there is one already; returns whether it was moved."""
    try:
        move(new, target)
    except OSError:
        if not target.exists():
            raise
        return False
    return True


def leftovers(parent: Path) -> Iterator[Path]:
    """Yields each folder that `staging` made for a process that was killed; removes it afterwards."""
    for folder in list(parent.glob(".tmp-*")):
        if not _STAGING.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
            continue
        try:
            lock = _lock(folder)
        except OSError:  # another user's, or removed by another process
            continue
        if lock is None or not lock.is_locked:  # its writer is alive, or may be
            continue
        try:
            yield folder
        finally:
            _remove(folder, lock)


def remove_leftovers(parent: Path) -> None:
    """Removes the folders that `staging` made for processes that were killed."""
    for _ in leftovers(parent):
        pass


def read_bounded(path: Path, limit: int) -> bytes:
    """Reads a whole file, which must be a regular one: a pipe would wait, and a device might have no end.

    Raises:
        ValueError: if it is not a regular file, or has more than `limit` bytes.
        OSError: if it cannot be read.
    """
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"Expected {str(path)!r} to be a file. Received: a pipe or a device")
        if status.st_size > limit:
            raise ValueError(f"Expected {str(path)!r} to have at most {limit:,} bytes. Received: {status.st_size:,}")
        return file.read(limit)


def digests(folder: Path) -> dict[str, dict[str, int | str]]:
    """Returns the size and the SHA-256 of each file below a folder, by its path from there."""
    return {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(folder: Path, name: str, size: int, digest: str) -> None:
    """Checks that a file has the size and the SHA-256 that were recorded when it was saved.

    Raises:
        FileNotFoundError: if it is missing.
        ValueError: if it is truncated or changed.
    """
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(f"Expected {str(folder)!r} to have a file {name}. It is missing.")
    if path.stat().st_size != size:
        raise ValueError(f"Expected {str(path)!r} to have {size} bytes. It has {path.stat().st_size}: truncated?")
    if sha256(path) != digest:
        raise ValueError(f"Expected {str(path)!r} to be as it was saved. Its SHA-256 has changed.")


def check_archive(path: Path) -> None:
    """Checks that a zip file, whose parts are stored as they are, takes no more memory than disk when it is read.

    Raises:
        ValueError: if it takes more: a few kilobytes that unpack to gigabytes.
        zipfile.BadZipFile: if it is no zip file.
    """
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
    if unpacked > (size := path.stat().st_size):
        raise ValueError(f"Expected {size:,} bytes that are not compressed. Received: {unpacked:,} bytes, compressed.")


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Makes a folder and its parents. Those that were made and are empty at the end of the block are removed."""
    with _names(folder, "made"):
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"Expected a folder. Received a file: {str(folder)!r}")
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        _make(folder)
    try:
        yield
    finally:
        for path in missing:
            with contextlib.suppress(OSError):  # it has files now
                path.rmdir()


def _make(folder: Path) -> None:
    for attempts_left in reversed(range(10)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return
        except _REMOVED:
            if not attempts_left:
                raise


@contextlib.contextmanager
def _names(folder: Path, done: str) -> Iterator[None]:
    """Re-raises an error of the system with the folder's name."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # it has the name
            raise
        raise type(error)(
            f"Expected a folder that can be {done}. Received: {str(folder)!r}, {error.strerror}."
        ) from None


def _lock(folder: Path, wait: bool = False) -> FileLock | None:
    """Returns the lock of a folder; None if another process has it.

    Where there are no locks, the one returned is not locked.

    Raises:
        OSError: if the lock's file cannot be opened.
    """
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(blocking=wait)
    except Timeout:
        return None
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
    return lock


def _locked(folder: Path, wait: bool) -> FileLock | None:
    """Returns the lock of a folder, which its last holder may remove meanwhile."""
    while True:
        _make(folder)
        with contextlib.suppress(*_REMOVED):
            return _lock(folder, wait)


def _remove(folder: Path, lock: FileLock) -> None:
    """Removes a folder while it is locked, so that no other process takes it as its own meanwhile."""
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()
    with contextlib.suppress(OSError):  # on Windows the lock's file stayed until now; elsewhere all is gone
        folder.rmdir()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
