"""From links between words to the distributions over tokens that attention is trained towards."""

import numpy as np
import pytest

from keras_attn import ParallelDataset, Tokenizer
from keras_attn.text import WordNumbers

LINES = ["low  lower", " wide wider newest ", "slow", "ünïcode three  三 lower"] * 5
LINKS = [{(0, 1), (1, 0)}, {(0, 0), (2, 0), (1, 2)}, {(0, 0)}, set()] * 5


@pytest.mark.parametrize("level", ["bpe", "word", "character"])
def test_words_are_counted_as_the_tokenizer_does(level):
    size = {"vocabulary_size": 290} if level == "bpe" else {}
    tokenizer = Tokenizer.train([*LINES, "low wide new"][:3] * 9, level=level, **size)  # 三 is unknown
    rows = [tokenizer.encode(line.rstrip(" ")) for line in LINES]
    counts = WordNumbers(tokenizer).counts(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))
    assert counts.tolist() == [len(tokenizer.words(row)) for row in rows] == [2, 3, 1, 4] * 5


def test_shifted_rows_by_hand():
    """Row t has the links of the word before the one that it predicts, and that of the end those of the last word.

    A word without links has the end of the source.
    """
    source = Tokenizer.train(["a b"], level="word")
    target = Tokenizer.train(["xy z"], level="character")
    links = [{(1, 0)}, {(0, 0), (1, 1)}, {(1, 1)}, set()]  # the first word of "z xy" and all of "z z" are not linked
    options = {"links": links, "alignment_weight": 0.5, "shift_alignment": True}
    lines = ["xy", "xy z", "z xy", "z z"]
    data = ParallelDataset.from_text(["a b"] * 4, lines, source, target, batch_size=4, **options)
    inputs, labels, _ = data[0]
    expected = {
        "xy": [[0, 0, 0], [0, 0, 0], [0, 0.5, 0]],  # x, y, end
        "xy z": [[0, 0, 0], [0, 0, 0], [0.5, 0, 0], [0.5, 0, 0], [0, 0.5, 0]],  # x, y, blank, z, end
        "z xy": [[0, 0, 0], [0, 0, 0.5], [0, 0, 0.5], [0, 0, 0.5], [0, 0.5, 0]],
        "z z": [[0, 0, 0], [0, 0, 0.5], [0, 0, 0.5], [0, 0, 0.5]],
    }
    for label, targets in zip(labels, inputs["alignments"], strict=True):
        rows = expected[target.decode(label)]
        np.testing.assert_allclose(targets[: len(rows)], rows)  # of a, b and the source's end
        assert targets.sum() == np.sum(rows), "nothing for padding"


def test_a_shifted_link_to_a_word_that_was_cut_off_is_not_one_to_the_end():
    tokenizer = Tokenizer.train(["a b"], level="word")
    options = {"links": [{(1, 0)}], "alignment_weight": 0.5, "shift_alignment": True, "batch_size": 1}
    data = ParallelDataset.from_text(["a b"], ["a b"], tokenizer, tokenizer, **options)
    inputs, labels, _ = data[0]
    cut = inputs["encoder_token_ids"][:, [0, 2]]  # a, end
    (targets,) = data._alignment_targets.of_batch(np.array([0]), cut, labels)
    np.testing.assert_allclose(targets[:3], [[0, 0], [0, 0], [0, 0.5]])  # a, b (after a), end (after b, not linked)


@pytest.mark.parametrize("bpe_dropout", [0.0, 0.5])
def test_every_token_of_a_word_is_linked_to_every_token_of_its_words(bpe_dropout):
    tokenizer = Tokenizer.train(LINES * 3, vocabulary_size=300)
    options = {"batch_size": 4, "links": LINKS, "alignment_weight": 1.0, "bpe_dropout": bpe_dropout}
    data, seen = ParallelDataset.from_text(LINES, LINES, tokenizer, tokenizer, **options), 0
    links_of = dict(zip(LINES, LINKS, strict=True))
    for inputs, labels, weights in data:
        for ids, label, weight, targets in zip(
            inputs["encoder_token_ids"], labels, weights, inputs["alignments"], strict=True
        ):
            if not weight.any():
                assert not targets.any()
                continue
            words = [[positions for _, positions in tokenizer.words(row)] for row in (ids, label)]
            expected = np.zeros_like(targets)
            for i, j in links_of[tokenizer.decode(ids)]:
                expected[np.ix_(words[1][j], words[0][i])] = 1
            expected /= np.maximum(expected.sum(axis=-1, keepdims=True), 1)
            np.testing.assert_allclose(targets, expected, rtol=1e-6)
            seen += 1
    assert seen == len(LINES)


@pytest.mark.parametrize(
    ("links", "weight", "sentence"),
    [
        ([{(0, 0)}], 1.0, "Expected links of 2 pairs. Received: of 1"),
        ([{(0, 0)}, {(1, 3)}], 1.0, "3 target words in pair 2, each numbered from 0. Received: 1-3"),
        ([set(), {(-1, 0)}], 1.0, "Received: -1-0"),
        ([set(), set()], 0.0, "Expected a weight of the alignment loss above 0. Received: 0"),
    ],
)
def test_wrong_links_are_refused(links, weight, sentence):
    tokenizer = Tokenizer.train(["a b c"], level="word")
    options = {"batch_size": 1, "links": links, "alignment_weight": weight}
    with pytest.raises(ValueError, match=sentence):
        ParallelDataset.from_text(["a", "a b"], ["b", "a b c"], tokenizer, tokenizer, **options)
