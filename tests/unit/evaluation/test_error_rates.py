"""Error rates of phonemes, words and links, by hand and against brute force; scores by the metric of a run."""

import functools
import random

import pytest

from keras_attn import evaluation
from keras_attn.evaluation import by_metric
from keras_attn.evaluation.error_rates import edit_distance
from keras_attn.evaluation.links import Gold, alignment_error_rate, parse_links


def test_edit_distance_equals_its_definition():
    """The textbook's recurrence over prefixes, without a table."""

    @functools.cache
    def recursive(one: str, other: str) -> int:
        if not one or not other:
            return len(one) + len(other)
        substituted = recursive(one[:-1], other[:-1]) + (one[-1] != other[-1])
        return min(substituted, recursive(one[:-1], other) + 1, recursive(one, other[:-1]) + 1)

    assert recursive("kitten", "sitting") == 3
    rng = random.Random(3)
    for _ in range(211):
        one, other = ("".join(rng.choice("abc") for _ in range(rng.randrange(8))) for _ in range(2))
        assert edit_distance(one, other) == recursive(one, other), (one, other)


def test_error_rates_by_hand():
    """Three words, of which the first is right by its second answer.

    Word 2: one edit from its first answer (3 phonemes), two from the other. Word 3: nothing was said, two deletions.
    """
    hypotheses = ["T AH", "K AE  B", ""]
    answers = [["T EY", "T AH"], ["K AE T", "K AE T S"], ["D OW"]]
    per, wer = evaluation.phoneme_error_rate(hypotheses, answers), evaluation.word_error_rate(hypotheses, answers)
    assert per.score == pytest.approx(100 * (0 + 1 + 2) / (2 + 3 + 2))
    assert wer.score == pytest.approx(100 * 2 / 3)
    assert per.signature == wer.signature == "items:3|answers:5|nearest"
    assert (str(per), wer.verbose) == ("PER|items:3|answers:5|nearest = 42.86 3 edits / 7 symbols", "2 wrong / 3")


@pytest.mark.parametrize(
    ("hypotheses", "answers", "sentence"),
    [
        ([], [], "Received: 0 hypotheses and 0 lists"),
        (["a", "b"], [["a"]], "Received: 2 hypotheses and 1 lists"),
        (["a"], [[]], r"Received: \[\] for hypothesis 1"),
        (["a", "b"], [["a"], "b"], "Received: 'b' for hypothesis 2"),
        (["a"], [["a", " "]], "that are not blank"),
        ("a", ["a"], "Received: one string"),
        ([None], [["a"]], "Expected hypotheses as str. Received: None"),
    ],
)
def test_unfit_input_is_refused(hypotheses, answers, sentence):
    for rate in (evaluation.phoneme_error_rate, evaluation.word_error_rate):
        with pytest.raises(ValueError, match=sentence):
            rate(hypotheses, answers)


def test_an_unknown_metric_is_refused():
    for score in (evaluation.main_score, evaluation.all_scores):
        with pytest.raises(ValueError, match=r"among: bleu, wer\. Received: 'rouge'"):
            score("rouge", ["a"], ["b"], ["b"], "13a")


def test_a_word_of_several_lines_counts_once():
    sources, references = ["a", "c a t", "a", "d o"], ["AH", "K AE T", "EY", "D UW"]
    hypotheses = ["EY", "K AE B", "EY", "D UW"]
    assert by_metric.items(sources, references, hypotheses) == (
        ["EY", "K AE B", "D UW"],
        [["AH", "EY"], ["K AE T"], ["D UW"]],
    )
    scores = by_metric.all_scores("wer", sources, references, hypotheses, "13a")
    assert {name: one["score"] for name, one in scores.items()} == {"wer": 33.33, "per": round(100 / 6, 2)}
    assert by_metric.main_score("wer", sources, references, hypotheses, "13a") == pytest.approx(100 / 3)
    assert by_metric.is_better("wer", 3.0, 4.0)
    assert not by_metric.is_better("wer", 4.0, 4.0)
    assert by_metric.is_better("bleu", 4.0, 3.0)
    with pytest.raises(ValueError, match="at least one hypothesis"):
        evaluation.all_scores("wer", [], [], [], "none")


def test_stress_is_scored_apart():
    answers = ["HH AH0 L OW1", "HH M", "R IY1 D", "B IY1 T"]
    hypotheses = ["HH AH1 L OW0", "HH M", "R EH1 D", "B IY1 T"]
    scores = by_metric.all_scores("wer", ["hello", "hm", "read", "beat"], answers, hypotheses, "none")
    assert {name: one["score"] for name, one in scores.items() if name != "per"} == {
        "wer": 50.0,
        "wer_without_stress": 25.0,  # read
        "wer_of_stress": 25.0,  # hello
    }


def test_mcnemar_by_hand():
    """Three words that only the first gets right, one that only the second does: 2 (1 + 4) / 2^4."""
    sources = [*"abcdef"]
    result = by_metric.mcnemar_test(sources, sources, [*"abcxex"], [*"xxxdex"])
    assert result == {"only_first_right": 3, "only_second_right": 1, "p_value": 10 / 16}
    assert by_metric.mcnemar_test(sources, sources, sources, sources)["p_value"] == 1


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
