"""Links and their error rates against hand-solved cases."""

import pytest

from keras_attn.evaluation.alignment_error_rate import Gold, alignment_error_rate, parse_links


def test_links_are_read_from_either_base():
    gold = parse_links("1-1 2p3 3-2", base=1, lengths=(3, 3))
    assert gold == Gold(frozenset({(0, 0), (2, 1)}), frozenset({(0, 0), (1, 2), (2, 1)}))
    assert parse_links("0-0 2-1").sure == gold.sure
    assert parse_links("") == Gold(frozenset(), frozenset())


@pytest.mark.parametrize(
    ("line", "options", "sentence"),
    [
        ("1-1 2:2", {}, r"Expected links i-j \(sure\) or ipj \(possible\)\. Received: '2:2'"),
        ("-1-1", {}, "Received: '-1-1'"),
        ("0-1", {"base": 1}, "Expected source words from 1. Received: the link '0-1'"),
        ("3p1", {"base": 1, "lengths": (2, 5)}, "Expected source words from 1 to 2. Received: the link '3p1'"),
        ("2-5", {"lengths": (3, 5)}, "Expected target words from 0 to 4"),
    ],
)
def test_malformed_links_are_refused(line, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse_links(line, **options)


def test_alignment_error_rate_by_hand():
    """Sentence 1: of three links one is sure and one more possible, of two sure links. Sentence 2: all is right."""
    gold = [parse_links("0-0 2-2 1p1"), parse_links("0-0")]
    score = alignment_error_rate([{(0, 0), (1, 1), (2, 1)}, {(0, 0)}], gold)
    assert score.aer == pytest.approx(100 * (1 - ((1 + 1) + (2 + 1)) / (4 + 3)))
    assert (score.precision, score.recall) == pytest.approx((100 * 3 / 4, 100 * 2 / 3))
    assert (score.links, score.sure, score.possible) == (4, 3, 4)


def test_only_sure_links_must_be_found():
    gold = [parse_links("0-0 1-1 2p0")]
    assert alignment_error_rate([gold[0].sure], gold).aer == alignment_error_rate([gold[0].possible], gold).aer == 0
    apart = Gold(frozenset({(0, 0)}), frozenset({(1, 1)}))  # disjoint lists
    assert alignment_error_rate([{(0, 0), (1, 1)}], [apart]).aer == 0
    nothing = alignment_error_rate([set()], gold)
    assert (nothing.aer, nothing.precision, nothing.recall) == (100, 0, 0)
    for predicted, others, sentence in (
        ([], [], "one or more. Received: 0 and 0"),
        ([set()], gold * 2, "Received: 1 and 2"),
        ([set()], [parse_links("0p0")], "Expected at least one sure gold link"),
    ):
        with pytest.raises(ValueError, match=sentence):
            alignment_error_rate(predicted, others)
