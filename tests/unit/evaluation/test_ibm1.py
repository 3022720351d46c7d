"""IBM Model 1 against a textbook's table and plain loops; links of both directions, by hand."""

import collections
import itertools
import random

import numpy as np
import pytest

from keras_attn.evaluation import grow_diag_final_and, model1_links
from keras_attn.evaluation.links import EMPTY, Model1

GERMAN, ENGLISH = ["das haus", "das buch", "ein buch"], ["the house", "the book", "a book"]


def test_model1_gives_the_textbooks_table():
    """Koehn, Statistical Machine Translation (2010), figure 4.4, third iteration; it has no empty word."""
    model = Model1(GERMAN, ENGLISH, iterations=3, empty=False)
    das, ein = model.probabilities("das", "the book house")[:, 0], model.probabilities("ein", "book a")[:, 0]
    np.testing.assert_allclose(das, [0.7479, 0.1208, 0.1313], atol=5e-5)
    np.testing.assert_allclose(ein, [0.3466, 0.6534], atol=5e-5)


def plain_model1(pairs, iterations):
    """The definition, word by word."""
    table = collections.defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts, totals = collections.Counter(), collections.Counter()
        for source, target in pairs:
            for f in target:
                total = sum(table[e, f] for e in source)
                for e in source:
                    counts[e, f] += table[e, f] / total
                    totals[e] += table[e, f] / total
        table = {(e, f): count / totals[e] for (e, f), count in counts.items()}
    return table


def test_model1_equals_its_definition():
    rng = random.Random(11)
    texts = [[" ".join(rng.choices(words, k=rng.randint(1, 7))) for _ in range(43)] for words in ("abcde", "vwxyz")]
    texts[0][7] = texts[1][5] = " "  # a blank side: left out
    model = Model1(*texts, iterations=4)
    pairs = [([EMPTY, *s.split()], t.split()) for s, t in zip(*texts, strict=True) if s.split() and t.split()]
    table = plain_model1(pairs, 4)
    table_of_model = model.probabilities("a b c d e", "v w x y z")
    expected = [[table.get((e, f), 0) for e in (EMPTY, *"abcde")] for f in "vwxyz"]
    np.testing.assert_allclose(table_of_model, expected, rtol=1e-9)
    np.testing.assert_allclose(table_of_model.sum(axis=0), 1, rtol=1e-9)
    for e, words in model.most_probable(3).items():
        by_rank = sorted((t for (given, f), t in table.items() if given == e and t), reverse=True)
        np.testing.assert_allclose([table[e, f] for f in words], by_rank[:3], rtol=1e-9)
    for source, target in itertools.islice(zip(*texts, strict=True), 5):
        best = [max([EMPTY, *source.split()], key=lambda e, f=f: table[e, f]) for f in target.split()]
        links = sorted(model.links(source, target), key=lambda link: link[1])
        assert [source.split()[i] for i, _ in links] == [e for e in best if e != EMPTY]


def test_model1_links_no_unknown_word():
    model = Model1(GERMAN, ENGLISH)
    assert model.links("das neue buch", "the new book") == {(0, 0), (2, 2)}
    plain = Model1(GERMAN, ENGLISH, empty=False)
    assert model.links("", "the") == plain.links("", "the") == plain.links("das", "") == set()
    with pytest.raises(ValueError, match="Received: 3 and 2"):
        Model1(GERMAN, ENGLISH[:2])
    with pytest.raises(ValueError, match="none with words on both sides"):
        Model1([""], ["a"])


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        # (1, 1) is diagonally beside (0, 0), and source word 1 is free; (3, 3), (4, 4) and their words stand alone.
        ({(0, 0), (2, 1), (3, 3)}, {(0, 0), (1, 1), (2, 1), (4, 4)}, {(0, 0), (1, 1), (2, 1), (3, 3), (4, 4)}),
        # (0, 2) is beside none that both have, and source word 0 is taken: final-and wants both words free.
        ({(0, 0), (0, 2)}, {(0, 0)}, {(0, 0)}),
        # grown step by step: (0, 1) is beside (0, 0), and (0, 2) beside (0, 1) then.
        ({(0, 0)}, {(0, 0), (0, 1), (0, 2)}, {(0, 0), (0, 1), (0, 2)}),
        # in one pass from (0, 0) to (1, 3), before (2, 4) is reached, which would take (1, 3) first
        (
            {(0, 0), (2, 4), (5, 2), (0, 1), (1, 2), (1, 3)},
            {(0, 0), (2, 4), (5, 2)},
            {(0, 0), (0, 1), (1, 2), (1, 3), (2, 4), (5, 2)},
        ),
        # Both directions want a word: the forward one comes first.
        ({(0, 1)}, {(0, 0)}, {(0, 1)}),
    ],
)
def test_grow_diag_final_and_by_hand(forward, backward, expected):
    before = set(forward), set(backward)
    assert grow_diag_final_and(forward, backward) == expected
    assert (forward, backward) == before


def test_model_1_in_both_directions_with_blank_pairs():
    sources = ["das Haus", "", "das Buch", "ein Buch", "x"] * 3
    targets = ["the house", "", "the book", "a book", ""] * 3
    links = model1_links(sources, targets, iterations=9)
    assert links == [{(0, 0), (1, 1)}, set(), {(0, 0), (1, 1)}, {(0, 0), (1, 1)}, set()] * 3
    with pytest.raises(ValueError, match="as many sources as targets"):
        model1_links(["a"], [])
