"""Rows of ids: in token files that are encoded once and resumed, and drawn anew by BPE-dropout."""

import os
import threading
import time

import numpy as np
import pytest

from keras_attn import ParallelDataset, Tokenizer
from keras_attn.data import token_store
from keras_attn.text import iterate_blocks
from tests.unit.data.test_dataset import pairs_of
from tests.unit.text.test_text_files import PACK

SOURCE = ["eins zwei drei", "", "vier fünf", "sechs", "sieben acht neun zehn"] * 41
TARGET = ["one two three", "none", "four five", " \u2003", "seven eight nine ten"] * 41


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(SOURCE + TARGET)  # BPE, which has pieces for blanks


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """Two files, of 60 bytes a block."""
    monkeypatch.setattr(token_store, "_BLOCK", 60)
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
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def batches(data):
    return [[array.tolist() for array in (*inputs.values(), *rest)] for inputs, *rest in data]


def test_text_and_files_give_the_same_batches_with_any_number_of_threads(texts, tokenizer, tmp_path):
    options = {"seed": 3, "shard": (1, 2)}
    in_memory = ParallelDataset.from_text(SOURCE, TARGET, tokenizer, tokenizer, batch_size=11, **options)
    for workers in (1, 3, None):
        found = dataset(texts, tokenizer, tmp_path / str(workers), workers=workers, **options)
        assert batches(found) == batches(in_memory)
        assert found.report() == in_memory.report()
        assert found.largest_token_ids == in_memory.largest_token_ids
        assert stored(tmp_path / str(workers)) == stored(tmp_path / "1")
    assert (found.report()["pairs"], found.report()["dropped_blank"]) == (123, 82)
    assert isinstance(found._sides[0].token_ids, np.memmap)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".bz2"])
def test_parts_of_a_text_are_the_text(texts, tokenizer, tmp_path, suffix):
    whole = dataset(texts, tokenizer, tmp_path / "whole")
    for start in range(0, 205, 70):
        for name, lines in (("de", SOURCE), ("en", TARGET)):
            write(tmp_path / f"part-{start:03}.{name}{suffix}", lines[start : start + 70])
    parts = [f"{tmp_path}/part-*.{name}{suffix}" for name in ("de", "en")]
    if suffix:
        parts = [[tmp_path / f"part-{start:03}.{name}{suffix}" for start in (0, 70, 140)] for name in ("de", "en")]
    assert batches(dataset(parts, tokenizer, tmp_path / "parts")) == batches(whole)
    assert stored(tmp_path / "parts") == stored(tmp_path / "whole")


def test_wrong_files_and_options_are_refused(texts, tokenizer, tmp_path):
    cache = tmp_path / "cache"
    with pytest.raises(ValueError, match=r"workers to be a whole number of 1 or more. Received: 0"):
        dataset(texts, tokenizer, cache, workers=0)
    with pytest.raises(ValueError, match=r"as many source files as target files. Received: 2 and 1"):
        dataset([[texts[0], texts[0]], texts[1]], tokenizer, cache)
    with pytest.raises(FileNotFoundError, match=r"absent.*Received: a pattern that no file matches"):
        dataset([f"{tmp_path}/absent.*", texts[1]], tokenizer, cache)
    with pytest.raises(ValueError, match="Received: none"):
        dataset([[], texts[1]], tokenizer, cache)
    for name, value in (("bpe_dropout", 0.1), ("links", [{(0, 0)}])):
        with pytest.raises(ValueError, match=f"Expected no {name} with token files"):
            dataset(texts, tokenizer, cache, **{name: value})
    short = write(tmp_path / "short.en", TARGET[:3])
    long = write(tmp_path / "long.en", [*TARGET, *TARGET[3:]])
    with pytest.raises(ValueError, match=r"lines in .*train\.de as in .*short\.en. Received: 205 and 3"):
        dataset([[texts[0], texts[0]], [short, long]], tokenizer, cache)
    texts[1].write_bytes("\n".join(TARGET[:200]).encode() + b"\n\xff\n" + b"x\n" * 99)
    with pytest.raises(ValueError, match=r"train\.en. Received: an invalid byte 0xff in line 201"):
        dataset(texts, tokenizer, cache)
    assert not cache.exists()


def encoded_after(monkeypatch, stop=None):
    """The texts that are encoded from now on; at number `stop` the process is interrupted."""
    encoded, encode = [], token_store.encode_lines

    def counted(lines, *arguments):
        if len(encoded) == stop:
            raise KeyboardInterrupt
        encoded.append(lines)
        return encode(lines, *arguments)

    monkeypatch.setattr(token_store, "encode_lines", counted)
    return encoded


def interrupt(texts, tokenizer, cache, monkeypatch, stop):
    """Encodes `stop` blocks; returns the folder that is left."""
    with monkeypatch.context() as patched:
        encoded_after(patched, stop)
        with pytest.raises(KeyboardInterrupt):
            dataset(texts, tokenizer, cache)
    return max(cache.glob("*.part"), key=lambda part: part.stat().st_mtime_ns)


def test_token_files_are_used_again_until_something_changes(texts, tokenizer, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    first = batches(dataset(texts, tokenizer, cache))
    encoded = encoded_after(monkeypatch)
    assert batches(dataset(texts, tokenizer, cache)) == first
    assert not encoded
    write(texts[0], [line.replace("eins", "elf") for line in SOURCE])
    assert batches(dataset(texts, tokenizer, cache)) != first
    assert len(list(cache.iterdir())) == 2
    dataset(texts, Tokenizer.train(SOURCE + TARGET, lowercase=True), cache)
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("damage", [None, "torn line", "other ids", "ids without a line", "no offsets", "noise"])
@pytest.mark.parametrize("count", [5, 50])
def test_encoded_blocks_are_kept(texts, tokenizer, tmp_path, monkeypatch, count, damage):
    dataset(texts, tokenizer, tmp_path / "whole")
    cache, blocks = tmp_path / "cache", [len(list(iterate_blocks(text, 60))) for text in texts]
    assert blocks[0] < 50 < sum(blocks)
    part = interrupt(texts, tokenizer, cache, monkeypatch, count)
    side, of_side = ("source", count) if count < blocks[0] else ("target", count - blocks[0])
    journal, ids, offsets = part / f"{side}.journal", part / "encoded" / f"{side}.ids", part / f"encoded/{side}.offsets"
    lost = {None: 0, "ids without a line": 0, "torn line": 1, "other ids": 1}.get(damage, of_side)
    if damage == "torn line":
        journal.write_bytes(journal.read_bytes()[:-1])
    elif damage == "other ids":
        ids.write_bytes(ids.read_bytes()[:-4] + bytes(4))
    elif damage == "ids without a line":
        ids.write_bytes(ids.read_bytes() + bytes(9))
        offsets.write_bytes(offsets.read_bytes() + bytes(3))
    elif damage == "no offsets":
        offsets.unlink()
    elif damage == "noise":
        journal.write_bytes(np.random.default_rng(0).bytes(1000))
    encoded = encoded_after(monkeypatch)
    dataset(texts, tokenizer, cache)
    assert len(encoded) == sum(blocks) - count + lost
    assert stored(cache) == stored(tmp_path / "whole")


def test_others_wait_while_one_encodes(texts, tokenizer, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    begun, goes_on, encode = threading.Event(), threading.Event(), token_store.encode_lines
    encoded, found = [], []

    def slow(lines, *arguments):
        encoded.append(lines)
        begun.set()
        assert goes_on.wait(30)
        return encode(lines, *arguments)

    monkeypatch.setattr(token_store, "encode_lines", slow)
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
@pytest.mark.parametrize("name", ["source.ids", "files.json", "source.journal", "encoded/source.offsets"])
def test_a_cache_without_an_end_is_written_anew(texts, tokenizer, tmp_path, monkeypatch, name, kind):
    """Finished, or left by a killed process."""
    cache = tmp_path / "cache"
    dataset(texts, tokenizer, tmp_path / "whole")
    if name in ("source.ids", "files.json"):
        dataset(texts, tokenizer, cache)
        (path,) = cache.rglob(name)
    else:
        path = interrupt(texts, tokenizer, cache, monkeypatch, 5) / name
    replace_by(kind, path)
    dataset(texts, tokenizer, cache)
    assert stored(cache) == stored(tmp_path / "whole")


def test_blocks_before_a_change_of_the_text_are_kept(texts, tokenizer, tmp_path, monkeypatch):
    cache, other = tmp_path / "cache", write(tmp_path / "other.de", SOURCE)
    part = interrupt([other, texts[1]], tokenizer, cache, monkeypatch, 9)
    assert interrupt(texts, tokenizer, cache, monkeypatch, 20) != part
    blocks = [len(list(iterate_blocks(text, 60))) for text in texts]
    write(texts[0], [*SOURCE[:50], "elf", *SOURCE[51:]])
    before = next(n for n, (number, _) in enumerate(iterate_blocks(texts[0], 60)) if number > 50) - 1
    assert 0 < before < 20
    with monkeypatch.context() as patched:
        encoded = encoded_after(patched)
        dataset(texts, tokenizer, cache)
        assert len(encoded) == sum(blocks) - before
    assert list(cache.glob("*.part")) == [part], "that of the other text, which can go on"


LINES = [f"{word} and {other}er" for word in ("low", "new", "wide", "slow") for other in ("low", "fast", "old")] * 7
LINES[5] = " "


@pytest.fixture(scope="module")
def pieces():
    return Tokenizer.train(LINES, vocabulary_size=300)


def drawn(tokenizer, **options):
    options = {"batch_size": 8, "seed": 3, "bpe_dropout": 0.3} | options
    return ParallelDataset.from_text(LINES, LINES[::-1], tokenizer, tokenizer, **options)


def test_epochs_have_the_same_text_in_other_pieces(pieces):
    data, epochs = drawn(pieces, shuffle=False), []
    kept = [pair for pair in zip(LINES, LINES[::-1], strict=True) if all(line.strip() for line in pair)]
    for _ in range(2):
        rows = [(source, target) for _, source, target in pairs_of(data)]
        assert sorted((pieces.decode(s), pieces.decode(t)) for s, t in rows) == sorted(kept)
        epochs.append(rows)
        data.on_epoch_end()
    assert epochs[0] != epochs[1]
    assert [s for s, _ in epochs[0]] != [pieces.encode(pieces.decode(s)) for s, _ in epochs[0]]
    assert data.largest_token_ids == (299, 299)


@pytest.mark.parametrize("options", [{}, {"batches_per_epoch": 4}])
def test_a_resumed_run_has_the_draws_of_an_uninterrupted_one(options, pieces):
    whole, resumed, other = (drawn(pieces, **options, seed=seed) for seed in (3, 3, 4))
    for _ in range(3):
        whole.on_epoch_end()
    resumed.set_epoch(3)
    assert batches(whole) == batches(resumed)
    assert whole[2][1].tolist() == resumed[2][1].tolist(), "whatever was drawn before"
    other.set_epoch(3)
    assert batches(whole) != batches(other)


def test_parts_of_a_pass_have_the_pieces_of_the_pass(pieces):
    def rows(data, epochs):
        found = []
        for _ in range(epochs):
            found += [(tuple(source), tuple(target)) for _, source, target in pairs_of(data)]
            data.on_epoch_end()
        return sorted(found)

    length = len(drawn(pieces))
    assert rows(drawn(pieces), 1) == rows(drawn(pieces, batches_per_epoch=1), length)


def test_the_sides_are_drawn_apart(pieces):
    same = ParallelDataset.from_text(LINES, LINES, pieces, pieces, batch_size=8, bpe_dropout=0.3)
    assert any(source != target for _, source, target in pairs_of(same))


def test_a_draw_that_is_too_long_for_its_bucket_is_plain_at_last(pieces, monkeypatch):
    monkeypatch.setattr(token_store, "_DRAWS", 0)  # the buckets are those of the plain pieces
    data = drawn(pieces, bpe_dropout=1.0)  # characters, which never fit
    rows = [(source, target) for _, source, target in pairs_of(data)]
    assert all(ids == pieces.encode(pieces.decode(ids)) for pair in rows for ids in pair)
