"""Batches with BPE-dropout: other pieces in each epoch, the same text, shapes and pairs, and the same for a seed."""

import numpy as np
import pytest

from keras_attn import ParallelDataset, Tokenizer
from keras_attn.data import token_store
from tests.data.test_dataset import pairs_of

LINES = [f"{word} and {other}er" for word in ("low", "new", "wide", "slow") for other in ("low", "fast", "old")] * 7
LINES[5] = " "


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(LINES, vocabulary_size=300)


def made(tokenizer, **options):
    options = {"batch_size": 8, "seed": 3, "bpe_dropout": 0.3} | options
    return ParallelDataset.from_text(LINES, LINES[::-1], tokenizer, tokenizer, **options)


def arrays_of(dataset):
    return [array for inputs, labels, weights in dataset for array in (*inputs.values(), labels, weights)]


def equal(one, other):
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def test_epochs_have_the_same_text_in_other_pieces(tokenizer):
    dataset, epochs = made(tokenizer, shuffle=False), []
    kept = [pair for pair in zip(LINES, LINES[::-1], strict=True) if all(line.strip() for line in pair)]
    for _ in range(2):
        rows = [(source, target) for _, source, target in pairs_of(dataset)]
        assert sorted((tokenizer.decode(s), tokenizer.decode(t)) for s, t in rows) == sorted(kept)
        epochs.append(rows)
        dataset.on_epoch_end()
    assert epochs[0] != epochs[1]
    assert [s for s, _ in epochs[0]] != [tokenizer.encode(tokenizer.decode(s)) for s, _ in epochs[0]]
    assert dataset.largest_token_ids == (299, 299)


@pytest.mark.parametrize("options", [{}, {"batches_per_epoch": 4}])
def test_a_resumed_run_draws_what_an_uninterrupted_one_does(options, tokenizer):
    whole, resumed, other = (made(tokenizer, **options, seed=seed) for seed in (3, 3, 4))
    for _ in range(3):
        whole.on_epoch_end()
    resumed.set_epoch(3)
    assert equal(arrays_of(whole), arrays_of(resumed))
    assert equal([whole[2][1]], [resumed[2][1]]), "whatever was drawn before"
    other.set_epoch(3)
    assert not equal(arrays_of(whole), arrays_of(other))


def test_parts_of_a_pass_have_the_pieces_of_the_pass(tokenizer):
    def rows(dataset, epochs):
        found = []
        for _ in range(epochs):
            found += [(tuple(source), tuple(target)) for _, source, target in pairs_of(dataset)]
            dataset.on_epoch_end()
        return sorted(found)

    length = len(made(tokenizer))
    assert rows(made(tokenizer), 1) == rows(made(tokenizer, batches_per_epoch=1), length)


def test_the_sides_are_drawn_apart(tokenizer):
    same = ParallelDataset.from_text(LINES, LINES, tokenizer, tokenizer, batch_size=8, bpe_dropout=0.3)
    assert any(source != target for _, source, target in pairs_of(same))


def test_a_draw_that_is_too_long_for_its_bucket_is_plain_at_last(tokenizer, monkeypatch):
    monkeypatch.setattr(token_store, "_DRAWS", 0)  # the buckets are those of the plain pieces
    dataset = made(tokenizer, bpe_dropout=1.0)  # characters, which never fit
    rows = [(source, target) for _, source, target in pairs_of(dataset)]
    assert all(ids == tokenizer.encode(tokenizer.decode(ids)) for pair in rows for ids in pair)


def test_without_dropout_nothing_changes(tokenizer):
    plain = ParallelDataset.from_text(LINES, LINES[::-1], tokenizer, tokenizer, batch_size=8, seed=3)
    assert equal(arrays_of(made(tokenizer, bpe_dropout=0.0)), arrays_of(plain))


def test_token_files_are_refused(tokenizer, tmp_path):
    for name, value in (("bpe_dropout", 0.1), ("links", [{(0, 0)}])):
        with pytest.raises(ValueError, match=f"Expected no {name} with token files"):
            ParallelDataset.from_files("a", "b", tokenizer, tokenizer, tmp_path, batch_size=8, **{name: value})
