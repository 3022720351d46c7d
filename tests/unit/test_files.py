"""Staged writing and locks: complete or absent, for one process at a time, whatever is killed."""

import contextlib
import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from keras_attn import files

ROOT = Path(__file__).parents[2]


def start(code, *arguments):
    """A Python process with `files` and `folder`, a path."""
    lines = ["import os, sys, time", "from pathlib import Path", "from keras_attn import files"]
    line = [sys.executable, "-c", "\n".join([*lines, "folder = Path(sys.argv[1])", code]), *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def kill(process):
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@contextlib.contextmanager
def full_disk():
    """A limit of 1,000 bytes to the size of a file stands in for a full disk; the system reports both alike."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


WORK = """
with files.{}(folder) as inside:
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_locked_until_its_process_ends(tmp_path):
    folder = tmp_path / "runs" / "one"
    other = start(WORK.format("locked"), folder)
    assert other.stdout.readline() == "ready\n"
    with pytest.raises(FileExistsError, match=r"no other process in .*one'\. One works there"), files.locked(folder):
        pass
    assert not files.is_empty(folder.parent)
    assert files.is_empty(folder), "a lock is no content"
    other.kill()
    other.communicate()
    with files.locked(folder):
        with pytest.raises(FileExistsError, match="no other process"), files.locked(folder):  # of this process
            pass
        assert names(folder) == [files.LOCK], "still locked"
    with files.locked(folder):
        pass
    assert names(folder) == []


def test_folders_without_content_are_removed(tmp_path):
    for context in (files.locked, files.staging):
        with contextlib.suppress(KeyError), context(tmp_path / "a" / "b"):
            raise KeyError
        assert names(tmp_path) == []
        with context(tmp_path / "a" / "b"):
            (tmp_path / "a" / "kept").touch()
        assert names(tmp_path) == ["a"]
        (tmp_path / "a" / "kept").unlink()
        (tmp_path / "a").rmdir()


def test_leftovers_of_the_dead_are_removed_and_not_those_of_the_living(tmp_path):
    for _ in range(2):
        kill(start(WORK.format("staging"), tmp_path))
    assert len(names(tmp_path)) == 1, "each removes those before it"
    for name in (".tmp-7", ".tmp-" + "g" * 32, "x.tmp-" + "a" * 32):
        (tmp_path / name).mkdir()
    (tmp_path / f".tmp-{'b' * 32}").touch()
    os.symlink(tmp_path / ".tmp-7", tmp_path / f".tmp-{'c' * 32}")
    other = [".tmp-7", f".tmp-{'b' * 32}", f".tmp-{'c' * 32}", ".tmp-" + "g" * 32, "x.tmp-" + "a" * 32]
    with files.staging(tmp_path) as alive:
        (alive / "work").touch()
        with files.staging(tmp_path) as second:
            assert names(tmp_path) == sorted([*other, alive.name, second.name])
        files.remove_leftovers(tmp_path)
        assert (alive / "work").exists()
    assert names(tmp_path) == sorted(other)
    (tmp_path / f".tmp-{'d' * 32}").mkdir()
    with files.locked(tmp_path):
        assert f".tmp-{'d' * 32}" not in names(tmp_path)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    code = """
with files.replacing(folder / "report.json") as partial:
    partial.write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""
    kill(start(code, tmp_path))
    assert path.read_text() == "old"
    full = rf"Expected room for what is written\. Received: '{tmp_path}', {os.strerror(errno.EFBIG)}\."
    with full_disk(), pytest.raises(OSError, match=full), files.replacing(path) as partial:
        partial.write_bytes(bytes(2000))
    assert (path.read_text(), names(tmp_path)) == ("old", ["report.json"])
    descriptors = os.listdir("/dev/fd")
    with files.replacing(path) as partial:
        partial.write_text("new")
    assert (path.read_text(), names(tmp_path)) == ("new", ["report.json"])
    assert len(os.listdir("/dev/fd")) == len(descriptors)


def test_the_first_to_publish_wins(tmp_path):
    for number in (1, 2):
        (tmp_path / f"new{number}").mkdir()
        (tmp_path / f"new{number}" / "file").write_text(str(number))
    assert files.publish(tmp_path / "new1", tmp_path / "target")
    assert not files.publish(tmp_path / "new2", tmp_path / "target")
    assert (tmp_path / "target" / "file").read_text() == "1"
    with pytest.raises(FileNotFoundError):
        files.publish(tmp_path / "new1", tmp_path / "none" / "target")


@pytest.mark.parametrize(
    ("place", "error", "match"),
    [
        ("file", FileExistsError, r"Expected a folder\. Received a file: .*file'"),
        ("file/below", NotADirectoryError, "Expected a folder that can be made"),
        ("long" * 100, OSError, r"Expected a folder that can be made\. Received: .*too long"),
    ],
    ids=["file", "below a file", "long"],
)
def test_a_place_that_cannot_be_written_is_named(tmp_path, place, error, match):
    (tmp_path / "file").touch()
    for context in (files.locked, files.staging):
        with pytest.raises(error, match=match), context(tmp_path / place):
            pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_written_all_the_same(number, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    leftover = tmp_path / f".tmp-{'d' * 32}"
    leftover.mkdir()
    with files.locked(tmp_path), files.replacing(tmp_path / "file") as partial:
        partial.write_text("new")
    assert (tmp_path / "file").read_text() == "new"
    assert leftover.exists(), "its writer may be alive"


def test_contents_reach_the_disk_before_their_name_and_the_name_before_the_end(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: done.append(os.fstat(number).st_ino) or fsync(number))
    monkeypatch.setattr(os, "replace", lambda old, new: done.append(Path(new).name) or replace(old, new))
    with files.staging(tmp_path) as folder:
        (folder / "new" / "inner").mkdir(parents=True)
        for name in ("one", "inner/two"):
            (folder / "new" / name).write_text("x")
        assert files.publish(folder / "new", tmp_path / "target")
    target = tmp_path / "target"
    flushed = {path.stat().st_ino: path.name for path in (target / "one", target / "inner" / "two", tmp_path)}
    assert [flushed.get(entry, entry) for entry in done] == ["one", "two", "target", tmp_path.name]


def test_only_small_regular_files_are_read_whole(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert files.read_bounded(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match=r"to have at most 4 bytes\. Received: 5"):
        files.read_bounded(tmp_path / "file", 4)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"pipe' to be a file\. Received: a pipe or a device"):
        files.read_bounded(tmp_path / "pipe", 4)


def test_processes_may_write_at_once(tmp_path):
    code = """
for n in range(20):
    with files.replacing(folder / f"file{n % 3}") as partial:
        partial.write_text("x" * 999)
"""
    processes = [start(code, tmp_path) for _ in range(3)]
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert names(tmp_path) == ["file0", "file1", "file2"]
    assert {path.read_text() for path in tmp_path.iterdir()} == {"x" * 999}
