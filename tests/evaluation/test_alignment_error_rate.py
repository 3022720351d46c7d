"""Links and their error rates against hand-solved cases; IBM Model 1 against a textbook's table and plain loops."""

import collections
import itertools
import random

import numpy as np
import pytest

from keras_attn.evaluation.alignment_error_rate import Gold, alignment_error_rate, parse_links
from keras_attn.evaluation.ibm1 import EMPTY, Model1

pytestmark = pytest.mark.once


def test_links_are_read_from_either_base():
    gold = parse_links("1-1 2p3 3-2", base=1, lengths=(3, 3))
    assert gold == Gold(frozenset({(0, 0), (2, 1)}), frozenset({(0, 0), (1, 2), (2, 1)}))
    assert parse_links("0-0 2-1").sure == gold.sure
    assert parse_links("") == Gold(frozenset(), frozenset())


@pytest.mark.parametrize(
    ("line", "options", "sentence"),
    [
        ("1-1 2:2", {}, r"Expected links i-j \(sure\) or ipj \(possible\)\. Received: '2:2'"),
        ("1-", {}, "Received: '1-'"),
        ("-1-1", {}, "Received: '-1-1'"),
        ("0-1", {"base": 1}, "Expected source words from 1. Received: the link '0-1'"),
        ("3p1", {"base": 1, "lengths": (2, 5)}, "Expected source words from 1 to 2. Received: the link '3p1'"),
        ("2-6", {"base": 1, "lengths": (2, 5)}, "Expected target words from 1 to 5. Received: the link '2-6'"),
        ("2-5", {"lengths": (3, 5)}, "Expected target words from 0 to 4"),
    ],
)
def test_malformed_links_are_refused(line, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse_links(line, **options)


def test_alignment_error_rate_by_hand():
    """Sentence 1: of three links one is sure and one more possible, of two sure links. Sentence 2: all is right."""
    gold = [parse_links("0-0 2-2 1p1"), parse_links("0-0")]
    predicted = [{(0, 0), (1, 1), (2, 1)}, {(0, 0)}]
    score = alignment_error_rate(predicted, gold)
    assert score.aer == pytest.approx(100 * (1 - ((1 + 1) + (2 + 1)) / (4 + 3)))
    assert (score.precision, score.recall) == pytest.approx((100 * 3 / 4, 100 * 2 / 3))
    assert (score.links, score.sure, score.possible) == (4, 3, 4)


def test_only_what_is_sure_must_be_found():
    gold = [parse_links("0-0 1-1 2p0")]
    assert alignment_error_rate([gold[0].sure], gold).aer == alignment_error_rate([gold[0].possible], gold).aer == 0
    apart = Gold(frozenset({(0, 0)}), frozenset({(1, 1)}))  # lists of their own
    assert alignment_error_rate([{(0, 0), (1, 1)}], [apart]).aer == 0
    nothing = alignment_error_rate([set()], gold)
    assert (nothing.aer, nothing.precision, nothing.recall) == (100, 0, 0)


@pytest.mark.parametrize(
    ("predicted", "gold", "sentence"),
    [
        ([], [], "one or more. Received: 0 and 0"),
        ([set()], [parse_links("0-0")] * 2, "Received: 1 and 2"),
        ([set()], [parse_links("0p0")], "Expected at least one sure gold link"),
    ],
)
def test_what_cannot_be_scored_is_refused(predicted, gold, sentence):
    with pytest.raises(ValueError, match=sentence):
        alignment_error_rate(predicted, gold)


GERMAN, ENGLISH = ["das haus", "das buch", "ein buch"], ["the house", "the book", "a book"]


@pytest.mark.parametrize(
    ("iterations", "das", "ein"),
    [  # t(the | das), t(book | das), t(house | das); t(book | ein), t(a | ein)
        (1, (0.5, 0.25, 0.25), (0.5, 0.5)),
        (2, (0.6364, 0.1818, 0.1818), (0.4286, 0.5714)),
        (3, (0.7479, 0.1208, 0.1313), (0.3466, 0.6534)),
    ],
)
def test_model1_gives_the_textbooks_table(iterations, das, ein):
    """Koehn, Statistical Machine Translation (2010), figure 4.4; it has no empty word."""
    model = Model1(GERMAN, ENGLISH, iterations=iterations, empty=False)
    np.testing.assert_allclose(model.probabilities("das", "the book house")[:, 0], das, atol=5e-5)
    np.testing.assert_allclose(model.probabilities("ein", "book a")[:, 0], ein, atol=5e-5)


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


def test_model1_links_no_word_that_it_does_not_know():
    model = Model1(GERMAN, ENGLISH)
    assert model.links("das neue buch", "the new book") == {(0, 0), (2, 2)}
    assert model.links("", "the") == set()
    with pytest.raises(ValueError, match="Received: 3 and 2"):
        Model1(GERMAN, ENGLISH[:2])
    with pytest.raises(ValueError, match="none with words on both sides"):
        Model1([""], ["a"])


def test_a_blank_side_has_no_links():
    model = Model1(GERMAN, ENGLISH, empty=False)
    assert model.links("", "the") == model.links("das", "") == set()
