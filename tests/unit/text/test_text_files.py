"""Lines of files: plain or compressed, in parts, with a byte order mark; broken files are named; random samples."""

import bz2
import codecs
import gzip
import lzma

import numpy as np
import pytest

from keras_attn.cli.line_streaming import TextReader
from keras_attn.text import (
    Tokenizer,
    corpus_paths,
    iterate_blocks,
    iterate_lines,
    parallel_paths,
    read_lines,
    read_parallel,
    text_files,
)

PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
MARKED = ["le chat", "\ufeffdeux", "trois"]  # the mark is a character of its own within a text


def test_lines_end_at_the_newline_alone(tmp_path):
    text = "a\r\n\nb\u2028c\x85d\x0ce\nlast"
    (tmp_path / "plain").write_bytes(text.encode())
    (tmp_path / "text.gz").write_bytes(gzip.compress((text + "\n").encode()))
    expected = ["a", "", "b\u2028c\x85d\x0ce", "last"]
    assert read_lines(tmp_path / "plain") == expected
    assert list(iterate_lines(str(tmp_path / "text.gz"))) == expected


def test_blocks_are_whole_lines(tmp_path):
    (tmp_path / "text.xz").write_bytes(lzma.compress("".join("a" * n + "\n" for n in range(40)).encode()))
    for size in (1, 7, 1000):
        found = list(iterate_blocks(tmp_path / "text.xz", size))
        assert b"".join(block for _, block in found).decode().split("\n")[:-1] == ["a" * n for n in range(40)]
        assert [number for number, _ in found] == np.cumsum([0, *(b.count(b"\n") for _, b in found)])[:-1].tolist()


def test_broken_files_are_named(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "mark").write_bytes(codecs.BOM_UTF8)
    (tmp_path / "latin").write_bytes("eins\nzwölf\n".encode("latin-1"))
    (tmp_path / "windows").write_bytes(b"a\r\n" * 100 + b"\xff\r\n")
    sentences = {
        "empty": "Received: an empty file",
        "mark": "Received: an empty file",
        "latin": "invalid byte 0xf6 in line 2",
        "windows": "invalid byte 0xff in line 101",
    }
    for suffix, pack in PACK.items():
        (tmp_path / f"short{suffix}").write_bytes(pack(b"".join(b"%d\n" % n for n in range(9999)))[:-400])
        (tmp_path / f"other{suffix}").write_bytes(b"no archive")
        sentences |= {f"short{suffix}": "to be a whole .* damaged after line", f"other{suffix}": "damaged after line 0"}
    for name, sentence in sentences.items():
        with pytest.raises(ValueError, match=f"Expected .*{name}.*{sentence}"):
            read_lines(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="absent"):
        read_lines(tmp_path / "absent")


def test_lines_and_archives_have_bounds(tmp_path, monkeypatch):
    (tmp_path / "line.gz").write_bytes(gzip.compress(bytes(20_000_000), 1))
    with pytest.raises(ValueError, match=r"lines of at most 16,777,216 bytes in .*line\.gz\. Received: .*line 1"):
        read_lines(tmp_path / "line.gz")
    monkeypatch.setattr(text_files, "_LARGEST_UNPACKED", 1 << 16)
    (tmp_path / "lines.gz").write_bytes(gzip.compress(b"\n" * 70_000))
    with pytest.raises(
        ValueError, match=r"text in .*lines\.gz\. Received: a file that unpacks to more than 65,536 bytes"
    ):
        read_lines(tmp_path / "lines.gz")


def test_byte_order_marks(tmp_path):
    """That of UTF-8 is no part of a file or a stream, and stays within it; those of UTF-16 and UTF-32 are refused."""
    text = codecs.BOM_UTF8 + "\n".join(MARKED).encode()
    (tmp_path / "text").write_bytes(text)
    (tmp_path / "text.gz").write_bytes(gzip.compress(text))
    assert read_lines(tmp_path / "text") == read_lines(tmp_path / "text.gz") == MARKED
    reader, lines = TextReader(5000), text.split(b"\n")
    assert reader.read(lines[:1]) + reader.read(lines[1:]) == MARKED
    assert reader.counts["invalid"] == 0
    assert TextReader(5000, at_start=False).read(lines[:1]) == ["\ufeff" + MARKED[0]]
    for mark, encoding in ((b"", "utf-16"), (codecs.BOM_UTF16_BE, "utf-16-be"), (b"", "utf-32")):
        (tmp_path / "text").write_bytes(mark + "\n".join(MARKED).encode(encoding))
        with pytest.raises(ValueError, match=r"Expected UTF-8 in .*text\. Received: UTF-16 or UTF-32"):
            read_lines(tmp_path / "text")
        with pytest.raises(ValueError, match=r"Expected UTF-8 in the input\. Received: UTF-16"):
            TextReader(5000).read([mark + MARKED[0].encode(encoding)])


def test_parallel_files(tmp_path):
    (tmp_path / "train.de").write_text("eins\nzwei\n", encoding="utf-8")
    (tmp_path / "train.en.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
    (tmp_path / "train.fr").write_text("un\ndeux", encoding="utf-8")
    assert read_parallel(tmp_path, "train", "de", "fr") == (["eins", "zwei"], ["un", "deux"])
    assert corpus_paths(tmp_path, "train", "en") == [tmp_path / "train.en.gz"]
    (tmp_path / "train.1.it").write_text("uno", encoding="utf-8")
    (tmp_path / "train.2.it.xz").write_bytes(lzma.compress(b"due\n"))
    (tmp_path / "train.1.pt").write_text("um", encoding="utf-8")
    (tmp_path / "train.2.pt").write_text("dois\n", encoding="utf-8")
    assert read_parallel(tmp_path, "train", "it", "pt") == (["uno", "due"], ["um", "dois"])
    (tmp_path / "train.1.it.gz").write_bytes(gzip.compress((tmp_path / "train.1.it").read_bytes()))
    assert [path.name for path in corpus_paths(tmp_path, "train", "it")] == ["train.1.it", "train.2.it.xz"], "once each"
    with pytest.raises(ValueError, match=r"train\.1\.de in .*, the other side of train\.1\.it\. Received: train\.de$"):
        read_parallel(tmp_path, "train", "de", "it")
    with pytest.raises(ValueError, match=r"lines in .*train\.de as in .*train\.en\.gz. Received: 2 and 3"):
        read_parallel(tmp_path, "train", "de", "en")
    with pytest.raises(FileNotFoundError, match=r"train\.es or train\.es\.gz .* Received: .*train\.de, train\.en\.gz"):
        read_parallel(tmp_path, "train", "de", "es")
    with pytest.raises(FileNotFoundError, match="an empty or missing folder"):
        read_parallel(tmp_path / "absent", "train", "de", "es")


def test_parts_are_paired_by_name_and_the_whole_file_is_read_alone(tmp_path):
    # With their languages, the names are in another order: "train.more.b.en" is before "train.more.en".
    for name in ("more.en", "more.fr", "more.b.en", "more.b.fr", "b.en.x"):
        (tmp_path / f"train.{name}").write_text(f"{name}\n")
    (tmp_path / "trainer.en").write_text("of another split")
    (tmp_path / "train.more.en.gz").write_bytes(gzip.compress(b"another form"))
    pairs = [(f"train.{part}.en", f"train.{part}.fr") for part in ("more", "more.b")]
    assert [(a.name, b.name) for a, b in parallel_paths(tmp_path, "train", "en", "fr")] == pairs
    assert read_parallel(tmp_path, "train", "en", "fr") == (["more.en", "more.b.en"], ["more.fr", "more.b.fr"])
    (tmp_path / "in").mkdir()
    for language in ("en", "fr"):
        (tmp_path / "in" / f"one.in-{language}.{language}").write_text("inside\n")
    assert read_parallel(tmp_path, "in/one", "en", "fr") == (["inside"], ["inside"])
    for language in ("en", "fr"):
        (tmp_path / f"train.{language}").write_text("all\n")
    assert read_parallel(tmp_path, "train", "en", "fr") == (["all"], ["all"])
    (tmp_path / "train.en").unlink()
    (tmp_path / "train.fr").unlink()
    for name in ("train.a.en", "train.b.en", "train.a.fr", "train.c.fr"):
        (tmp_path / name).write_text("a line\n")
    with pytest.raises(ValueError, match=r"Expected train\.c\.en in .*, the other side of train\.c\.fr\. Received: "):
        read_parallel(tmp_path, "train", "en", "fr")
    (tmp_path / "train.c.fr").unlink()
    with pytest.raises(ValueError, match=r"Expected train\.b\.fr in .*, the other side of train\.b\.en\. Received: "):
        read_parallel(tmp_path, "train", "en", "fr")


def test_a_vocabulary_of_a_sample_of_files(tmp_path, monkeypatch):
    lines = [f"word{n} and" for n in range(3000)]
    for part in range(3):
        (tmp_path / f"part-{part}").write_text("\n".join(lines[1000 * part : 1000 * (part + 1)]))
    monkeypatch.setattr(text_files.iterate_blocks, "__defaults__", (500,))
    glob = f"{tmp_path}/part-*"
    assert text_files.sample_lines(glob, 3000) == text_files.sample_lines(glob, 9999) == lines
    one, other = (text_files.sample_lines(glob, 1000, seed) for seed in range(2))
    assert one == text_files.sample_lines(glob, 1000, 0) != other
    assert len(set(one)) == 1000
    assert one == sorted(one, key=lines.index)
    for third in range(3):  # 4.5 standard deviations
        assert abs(len(set(one) & set(lines[1000 * third : 1000 * (third + 1)])) - 333) < 67
    found = Tokenizer.train_from_files(glob, sample=1000, level="word")
    assert found.vocabulary == Tokenizer.train(one, level="word").vocabulary
    assert Tokenizer.train_from_files(glob, level="word").vocabulary_size == 3005
    with pytest.raises(ValueError, match=r"sample of 1 line or more\. Received: 0"):
        Tokenizer.train_from_files(glob, sample=0)
    with pytest.raises(FileNotFoundError, match="absent"):
        Tokenizer.train_from_files(tmp_path / "absent")
