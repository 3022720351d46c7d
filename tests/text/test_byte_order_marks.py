"""Byte order marks: UTF-8's is no part of a text, UTF-16 is refused; for files, streams and commands alike."""

import codecs
import gzip

import pytest

from keras_attn.cli.line_streaming import TextReader
from keras_attn.text import read_lines

pytestmark = pytest.mark.once
LINES = ["le chat", "\ufeffdeux", "trois"]  # the mark is a character of its own within a text


@pytest.mark.parametrize("opened", [open, gzip.open])
def test_a_mark_of_utf_8_is_no_part_of_the_first_line(tmp_path, opened):
    path = tmp_path / ("text.gz" if opened is gzip.open else "text")
    with opened(path, "wb") as file:
        file.write(codecs.BOM_UTF8 + "\n".join(LINES).encode())
    assert read_lines(path) == LINES


def test_a_file_of_a_mark_alone_is_empty(tmp_path):
    (tmp_path / "text").write_bytes(codecs.BOM_UTF8)
    with pytest.raises(ValueError, match="an empty file"):
        read_lines(tmp_path / "text")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_utf_16_is_refused_with_a_sentence(tmp_path, encoding):
    mark = codecs.BOM_UTF16_BE if encoding == "utf-16-be" else b""
    (tmp_path / "text").write_bytes(mark + "\n".join(LINES).encode(encoding))
    with pytest.raises(ValueError, match=r"Expected UTF-8 in .*text\. Received: UTF-16 or UTF-32"):
        read_lines(tmp_path / "text")
    with pytest.raises(ValueError, match=r"Expected UTF-8 in the input\. Received: UTF-16"):
        TextReader(5000).read([mark + LINES[0].encode(encoding)])


def test_a_stream_has_a_mark_at_its_start_alone():
    lines = [codecs.BOM_UTF8 + LINES[0].encode(), *(line.encode() for line in LINES[1:])]
    reader = TextReader(5000)
    assert reader.read(lines[:1]) + reader.read(lines[1:]) == LINES
    assert reader.counts["invalid"] == 0
    assert TextReader(5000, at_start=False).read(lines[:1]) == ["\ufeff" + LINES[0]]
