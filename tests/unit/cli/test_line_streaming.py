"""Windows of lines within bounded memory, and files that are whole or absent; no model is needed."""

import contextlib
import io
import os
import shutil
import sys
import threading
import tracemalloc
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.cli import line_streaming as streams

BOUNDS = {"max_lines": 4096, "max_weight": float("inf"), "weigh": len, "max_bytes": 1 << 20}


def windows(content: bytes, **bounds):
    return list(streams.windows(io.BufferedReader(io.BytesIO(content)), **BOUNDS | bounds))


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(1, 7), st.integers(1, 40))
def test_windows_hold_every_line_once_within_bounds(content, max_lines, max_weight):
    found = windows(content, max_lines=max_lines, max_weight=max_weight)
    lines = content.split(b"\n")
    assert [line for window in found for line in window] == (lines if lines[-1] else lines[:-1])
    for window in found:
        assert 1 <= len(window) <= max_lines
        assert sum(map(len, window[:-1])) < max_weight


def test_lines_end_at_one_byte_alone_and_of_an_overlong_one_the_rest_is_dropped():
    long = b"x" * 200_000
    assert windows(long + b"\na\x0b\xe2\x80\xa8\r\n" + long) == [[long, b"a\x0b\xe2\x80\xa8\r", long]]
    assert windows(b"") == []
    assert windows(b"abcdef\ng\n" + b"h" * 200_000 + b"\ni", max_bytes=3) == [[b"abc", b"g", b"hhh", b"i"]]


class Blocks(io.RawIOBase):
    """A stream of many equal blocks."""

    def __init__(self, count, block):
        self.count, self.block = count, block

    def read1(self, size):
        self.count -= 1
        return b"" if self.count < 0 else self.block


LINES = b"a line of some ten words as they are in newspapers\n" * 1024


def translated(stream, n_best, return_alignments) -> list[int]:
    """The sizes of the windows of a stream, with a translator that answers at once."""

    def echo(texts, numbers):
        return [types.SimpleNamespace(text=text) for text in texts]

    arguments = types.SimpleNamespace(window=4096, max_characters=5000)
    options = {"batch_size": 64, "n_best": n_best, "return_alignments": return_alignments}
    progress, sizes = types.SimpleNamespace(add=lambda lines, done: None), []
    for _, texts, found in streams.results(echo, stream, options, arguments, progress):
        assert [one.text for one in found] == texts
        sizes.append(len(texts))
    return sizes


def test_memory_grows_neither_with_the_length_of_a_line_nor_with_their_number():
    """A line of 131 MB without an end, as /dev/zero has it; 130,000 lines, 7 MB, through the loop of the command."""
    tracemalloc.start()
    ((line,),) = streams.windows(Blocks(2000, bytes(1 << 16)), **BOUNDS | {"max_bytes": 1000})
    lines = sum(translated(Blocks(128, LINES), 1, True))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(line), lines) == (1000, 1 << 17)
    assert peak < 4 << 20


def test_windows_of_long_lines_are_smaller():
    """The memory of a window's alignments is bounded, not only its number of lines."""
    long = (b"x" * 4999 + b"\n") * 200
    plain, aligned = (translated(io.BufferedReader(io.BytesIO(long)), 5, has) for has in (False, True))
    assert sum(plain) == sum(aligned) == 200
    assert max(aligned) < max(plain) < 200
    assert max(aligned) * 5 * 4 * 2500**2 < 2 * 2**27


def test_a_fast_writer_fills_whole_windows(monkeypatch):
    """More than the 64 kB that a pipe holds, so that reader and writer take turns."""
    monkeypatch.setattr(streams, "_PAUSE", 20)  # however busy the machine is
    lines = [b"%07d" % n for n in range(50_000)]
    reading, writing = os.pipe()

    def write():
        with os.fdopen(writing, "wb") as file:
            for start in range(0, len(lines), 1000):
                file.write(b"\n".join(lines[start : start + 1000]) + b"\n")

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading, "rb") as stream:
        found = list(streams.windows(stream, **BOUNDS | {"max_lines": 20_000}))
    writer.join()
    assert [len(window) for window in found] == [20_000, 20_000, 10_000]
    assert [line for window in found for line in window] == lines


def test_a_file_gets_its_name_when_it_is_whole_and_replaces_nothing(tmp_path, capsys):
    path, part = tmp_path / "out.txt", tmp_path / "out.txt.part"
    with contextlib.suppress(KeyboardInterrupt), streams.new_file(path) as output:
        output.write(b"one\n")
        assert part.read_bytes() == b"one\n", "what is written is on the disk at once"
        raise KeyboardInterrupt
    assert "out.txt.part" in capsys.readouterr().err
    with pytest.raises(FileExistsError, match=r"out\.txt\.part"), streams.new_file(path):
        pass
    assert part.read_bytes() == b"one\n", "it may be hours of work"
    part.unlink()
    with streams.new_file(path) as output:
        output.write(b"one\n")
        assert not path.exists()
    with pytest.raises(FileExistsError, match=r"There is already: .*out\.txt'"), streams.new_file(path):
        pass
    with pytest.raises(ValueError, match="at once"), streams.new_file(tmp_path / "other.txt"):
        raise ValueError("at once")
    assert os.listdir(tmp_path) == ["out.txt"], "an empty part is no work"
    with pytest.raises(FileNotFoundError, match=r"Expected a file that can be written\. .*No such file or directory"):
        streams.new_file(tmp_path / "none" / "out.txt").__enter__()

    def write():
        (tmp_path / "folder").mkdir()
        with streams.new_file(tmp_path / "folder" / "out.txt") as output:
            output.write(b"one\n")
            shutil.rmtree(tmp_path / "folder")
            raise ValueError("the first")

    with pytest.raises(ValueError, match="the first"):
        write()


def test_a_stream_that_takes_pieces_is_written_whole():
    """As with PYTHONUNBUFFERED, when stdout has no buffer and may take less than it is given."""

    class Narrow(io.BytesIO):
        def write(self, content):
            return super().write(content[:3])

    stream = Narrow()
    streams.Output(stream, "stdout").write(b"eight or more")
    assert stream.getvalue() == b"eight or more"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_counts_and_estimates_the_rest_of_a_file(monkeypatch):
    seconds = iter([0.0, 10.0, 80.0])
    monkeypatch.setattr(streams.time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(sys, "stderr", Terminal())
    with streams.Progress(True, size=4000) as progress:
        progress.add(25, 1000)
        progress.add(1975, 1000)
    first, second = sys.stderr.getvalue().split("\r")[1:]
    assert first == "25 lines, 2.5 a second, 25%, 0:30 left\x1b[K"
    assert second == "2,000 lines, 25.0 a second, 50%, 1:20 left\x1b[K\n"


@pytest.mark.parametrize(("shown", "stream"), [(True, Terminal), (False, Terminal), (True, io.StringIO)])
def test_progress_is_shown_on_a_terminal_and_of_a_pipe_without_an_end(monkeypatch, shown, stream):
    monkeypatch.setattr(sys, "stderr", stream())
    with streams.Progress(shown, streams.size(io.BytesIO(b"12345"))) as progress:
        progress.add(3, 100)
    found = sys.stderr.getvalue()
    assert "left" not in found
    assert bool(found) == (shown and stream is Terminal)
