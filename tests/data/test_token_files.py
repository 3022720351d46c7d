"""Text files to token files: the same with any number of processes, resumed, waited for, and opened again fast."""

import bz2
import gzip
import json
import lzma
import os
import shutil
import threading
import time

import numpy as np
import pytest

from keras_attn import ParallelDataset, Tokenizer, files
from keras_attn.data import batch_plan, token_files
from keras_attn.text import Encoders, encoding, iterate_blocks, read_lines

pytestmark = pytest.mark.once

SOURCE = ["eins zwei drei", "", "vier fünf", "sechs", "sieben acht neun zehn"] * 41
TARGET = ["one two three", "none", "four five", " \u2003", "seven eight nine ten"] * 41
PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(SOURCE + TARGET)


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """Two files, of 60 bytes a block."""
    monkeypatch.setattr(token_files, "_BLOCK", 60)
    return [write(tmp_path / name, lines) for name, lines in (("train.de", SOURCE), ("train.en", TARGET))]


def write(path, lines):
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(PACK[path.suffix](content) if path.suffix in PACK else content)
    return path


def dataset(texts, tokenizer, cache, **options):
    return ParallelDataset.from_files(*texts, tokenizer, tokenizer, cache, **{"batch_size": 11} | options)


def stored(cache):
    """The token files of the only folder of a cache."""
    (folder,) = cache.iterdir()
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "checked.json"}


def batches(data):
    return [[array.tolist() for array in (*inputs.values(), *rest)] for inputs, *rest in data]


def test_any_number_of_processes_writes_the_same(texts, tokenizer, tmp_path):
    one, three = (dataset(texts, tokenizer, tmp_path / str(n), workers=n) for n in (1, 3))
    assert stored(tmp_path / "1") == stored(tmp_path / "3")
    assert batches(one) == batches(three)
    assert one.report()["pairs"] == 123


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".bz2"])
def test_parts_of_a_text_are_the_text(texts, tokenizer, tmp_path, suffix):
    whole = dataset(texts, tokenizer, tmp_path / "whole")
    for start in range(0, 205, 70):
        for name, lines in (("de", SOURCE), ("en", TARGET)):
            write(tmp_path / f"part-{start:03}.{name}{suffix}", lines[start : start + 70])
    globs = [f"{tmp_path}/part-*.{name}{suffix}" for name in ("de", "en")]
    lists = [[tmp_path / f"part-{start:03}.{name}{suffix}" for start in (0, 70, 140)] for name in ("de", "en")]
    for number, some in enumerate((globs, lists)):
        assert batches(dataset(some, tokenizer, tmp_path / str(number))) == batches(whole)
        assert stored(tmp_path / str(number)) == stored(tmp_path / "whole")


def test_blocks_are_whole_lines(tmp_path):
    path = write(tmp_path / "text.xz", ["a" * n for n in range(40)])
    for size in (1, 7, 1000):
        found = list(iterate_blocks(path, size))
        assert b"".join(block for _, block in found).decode().split("\n")[:-1] == ["a" * n for n in range(40)]
        assert [number for number, _ in found] == np.cumsum([0, *(b.count(b"\n") for _, b in found)])[:-1].tolist()


@pytest.mark.parametrize("suffix", PACK)
def test_a_damaged_archive_is_named(tmp_path, suffix):
    path = write(tmp_path / f"text{suffix}", [str(n) for n in range(9999)])
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(ValueError, match=rf"Expected .*text{suffix} to be a whole .* damaged after line"):
        read_lines(path)
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="damaged after line 0"):
        read_lines(path)


def test_what_does_not_fit_is_refused(texts, tokenizer, tmp_path):
    cache = tmp_path / "cache"
    with pytest.raises(ValueError, match=r"workers to be a whole number of 1 or more. Received: 0"):
        dataset(texts, tokenizer, cache, workers=0)
    with pytest.raises(ValueError, match=r"as many source files as target files. Received: 2 and 1"):
        dataset([[texts[0], texts[0]], texts[1]], tokenizer, cache)
    with pytest.raises(FileNotFoundError, match=r"absent.*Received: a pattern that no file matches"):
        dataset([f"{tmp_path}/absent.*", texts[1]], tokenizer, cache)
    with pytest.raises(ValueError, match="Received: none"):
        dataset([[], texts[1]], tokenizer, cache)
    short = write(tmp_path / "short.en", TARGET[:3])
    long = write(tmp_path / "long.en", [*TARGET, *TARGET[3:]])
    with pytest.raises(ValueError, match=r"lines in .*train\.de as in .*short\.en. Received: 205 and 3"):
        dataset([[texts[0], texts[0]], [short, long]], tokenizer, cache)
    texts[1].write_bytes("\n".join(TARGET[:200]).encode() + b"\n\xff\n" + b"x\n" * 99)
    with pytest.raises(ValueError, match=r"train\.en. Received: an invalid byte 0xff in line 201"):
        dataset(texts, tokenizer, cache, workers=2)
    assert not cache.exists()


class Stopped(BaseException):
    """In the place of an interruption."""


def stop_after(monkeypatch, count):
    """Lets `count` blocks be encoded in this process; returns the blocks."""
    encoded, encode = [], encoding.encode_block

    def counted(block, tokenizers):
        if len(encoded) == count:
            raise Stopped
        encoded.append(block)
        return encode(block, tokenizers)

    monkeypatch.setattr(encoding, "encode_block", counted)
    return encoded


@pytest.mark.parametrize("damage", [None, "torn line", "other ids", "ids without a line", "no offsets", "noise"])
@pytest.mark.parametrize("count", [5, 50])
def test_what_is_done_is_kept(texts, tokenizer, tmp_path, monkeypatch, count, damage):
    dataset(texts, tokenizer, tmp_path / "whole")
    cache = tmp_path / "cache"
    blocks = [len(list(iterate_blocks(text, 60))) for text in texts]
    assert count < sum(blocks)
    with monkeypatch.context() as patched:
        stop_after(patched, count)
        with pytest.raises(Stopped):
            dataset(texts, tokenizer, cache, workers=1)
    (part,) = cache.iterdir()
    assert part.suffix == ".part"
    side = "source" if count < blocks[0] else "target"
    journal, ids, offsets = part / f"{side}.journal", part / "encoded" / f"{side}.ids", part / f"encoded/{side}.offsets"
    lost = 0
    if damage == "torn line":
        journal.write_bytes(journal.read_bytes()[:-1])
        lost = 1
    elif damage == "other ids":
        ids.write_bytes(ids.read_bytes()[:-4] + bytes(4))
        lost = 1
    elif damage == "ids without a line":
        ids.write_bytes(ids.read_bytes() + bytes(9))
        offsets.write_bytes(offsets.read_bytes() + bytes(3))
    elif damage == "no offsets":
        offsets.unlink()
        lost = count - (0 if side == "source" else blocks[0])
    elif damage == "noise":
        journal.write_bytes(np.random.default_rng(0).bytes(1000))
        lost = count - (0 if side == "source" else blocks[0])
    encoded = stop_after(monkeypatch, None)
    dataset(texts, tokenizer, cache, workers=1)
    assert len(encoded) == sum(blocks) - count + lost
    assert stored(cache) == stored(tmp_path / "whole")


def test_a_process_that_is_killed_is_named_and_what_is_done_stays(texts, tokenizer, tmp_path, monkeypatch):
    cache, ask = tmp_path / "cache", Encoders._ask

    def killing(self, block):
        if block.number > 100:  # the first blocks are written before these are sent
            for process in self._processes:
                process.kill()
        return ask(self, block)

    with monkeypatch.context() as patched:
        patched.setattr(Encoders, "_ask", killing)
        with pytest.raises(ChildProcessError, match=r"Expected a process that encodes text\. Received: its end, with"):
            dataset(texts, tokenizer, cache, workers=2)
    (part,) = cache.iterdir()
    assert (part / "source.journal").stat().st_size
    dataset(texts, tokenizer, cache, workers=2)
    dataset(texts, tokenizer, tmp_path / "whole")
    assert stored(cache) == stored(tmp_path / "whole")


def test_others_wait_while_one_encodes(texts, tokenizer, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    begun, goes_on, encode = threading.Event(), threading.Event(), encoding.encode_block
    encoded, found = [], []

    def slow(block, tokenizers):
        encoded.append(block)
        begun.set()
        assert goes_on.wait(30)
        return encode(block, tokenizers)

    monkeypatch.setattr(encoding, "encode_block", slow)
    threads = [threading.Thread(target=lambda: found.append(dataset(texts, tokenizer, cache))) for _ in range(3)]
    for thread in threads:
        thread.start()
        assert begun.wait(30)
    time.sleep(0.3)
    assert len(encoded) == 1
    goes_on.set()
    for thread in threads:
        thread.join(30)
    assert len(encoded) == sum(len(list(iterate_blocks(text, 60))) for text in texts)
    assert [batches(one) for one in found] == [batches(found[0])] * 3
    assert len(list(cache.iterdir())) == 1


def forbid(monkeypatch, *names):
    def fail(*_, **__):
        raise AssertionError("It is not kept.")

    for module, name in names:
        monkeypatch.setattr(module, name, fail)


def test_the_choice_of_buckets_is_kept(texts, tokenizer, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    first = dataset(texts, tokenizer, cache, shard=(0, 2))
    in_memory = ParallelDataset.from_text(SOURCE, TARGET, tokenizer, tokenizer, batch_size=11, shard=(0, 2))
    with monkeypatch.context() as patched:
        forbid(patched, (batch_plan, "_make"), (token_files, "_encode"), (token_files, "_digests"))
        again, other = (dataset(texts, tokenizer, cache, shard=(index, 2)) for index in range(2))
    assert batches(again) == batches(first) == batches(in_memory)
    assert again.report() == first.report() == in_memory.report()
    assert again.shapes == first.shapes == other.shapes
    assert again.largest_token_ids == in_memory.largest_token_ids
    assert len(first) == len(other)
    for spelling in (np.array([[9, 30], [30, 30]]), [(9, 30), (30, 30)]):
        assert dataset(texts, tokenizer, cache, bucket_boundaries=spelling, max_length=30).shapes
    for size in range(2, 14):  # other settings have other files, and the oldest go
        assert dataset(texts, tokenizer, cache, batch_size=size).shapes[0][0] == size
    assert len([name for name in stored(cache) if name.endswith(".plan")]) == 8


@pytest.mark.parametrize("place", [3, 80, -5])
def test_a_damaged_choice_is_made_anew(texts, tokenizer, tmp_path, place):
    cache = tmp_path / "cache"
    whole = batches(dataset(texts, tokenizer, cache))
    (path,) = cache.rglob("*.plan")
    content = path.read_bytes()
    for damaged in (b"", content[:place], content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]):
        path.write_bytes(damaged if place > 0 or not damaged else content[:place])
        assert batches(dataset(texts, tokenizer, cache)) == whole
        assert path.read_bytes() == content


def replace_by(kind, path):
    path.unlink()
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 1 << 40)


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a terabyte of nothing"])
@pytest.mark.parametrize("name", ["source.ids", "target.offsets", "files.json", "checked.json", "*.plan"])
def test_a_cache_that_has_no_end_is_written_anew(texts, tokenizer, tmp_path, name, kind):
    cache = tmp_path / "cache"
    whole = batches(dataset(texts, tokenizer, cache))
    (path,) = cache.rglob(name)
    content = path.read_bytes()
    replace_by(kind, path)
    assert batches(dataset(texts, tokenizer, cache)) == whole
    if name != "checked.json":  # it has times
        (path,) = cache.rglob(name)
        assert path.read_bytes() == content


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a terabyte of nothing"])
@pytest.mark.parametrize("name", ["source.journal", "encoded/source.ids", "encoded/source.offsets", "text.json"])
def test_what_a_killed_process_left_may_have_no_end(texts, tokenizer, tmp_path, monkeypatch, name, kind):
    with monkeypatch.context() as patched:
        stop_after(patched, 5)
        with pytest.raises(Stopped):
            dataset(texts, tokenizer, tmp_path / "cache", workers=1)
    (part,) = (tmp_path / "cache").glob("*.part")
    replace_by(kind, part / name)
    dataset(texts, tokenizer, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.part"))


def test_token_files_are_read_again_when_they_were_touched(texts, tokenizer, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    dataset(texts, tokenizer, cache)
    shutil.copytree(cache, tmp_path / "copy")
    compared, digests = [], token_files._digests
    monkeypatch.setattr(token_files, "_digests", lambda folder: compared.append(folder) or digests(folder))
    for _ in range(2):
        dataset(texts, tokenizer, tmp_path / "copy")
    assert len(compared) == 1
    (checked,) = (tmp_path / "copy").rglob("checked.json")
    for damaged in (b"", b"[" * 10**5, json.dumps([1]).encode()):
        checked.write_bytes(damaged)
        dataset(texts, tokenizer, tmp_path / "copy")
    assert len(compared) == 4


def test_what_a_killed_process_left_after_its_last_step_is_removed(texts, tokenizer, tmp_path):
    cache = tmp_path / "cache"
    dataset(texts, tokenizer, cache)
    (folder,) = cache.iterdir()
    (part := folder.with_name(f"{folder.name}.part")).mkdir()
    (part / "source.journal").write_text("x")
    (part / files.LOCK).touch()
    dataset(texts, tokenizer, cache)
    assert [path.name for path in cache.iterdir()] == [folder.name]


def test_what_a_killed_process_left_of_text_that_has_changed_is_removed(texts, tokenizer, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    other = write(tmp_path / "other.de", SOURCE)

    def killed(*_):
        raise ChildProcessError

    with monkeypatch.context() as patch:
        patch.setattr(token_files, "_encode_side", killed)
        for source in (texts[0], other):
            with pytest.raises(ChildProcessError):
                dataset([source, texts[1]], tokenizer, cache)
    left = {path.name for path in cache.iterdir()}
    assert len(left) == 2
    write(texts[0], [*SOURCE[:-1], "elf"])
    dataset(texts, tokenizer, cache)
    names = {path.name for path in cache.iterdir()}
    assert len(names) == 2
    assert len(names & left) == 1, "that of the other text, which can go on"
    dataset([other, texts[1]], tokenizer, cache)
    assert not list(cache.glob("*.part"))
