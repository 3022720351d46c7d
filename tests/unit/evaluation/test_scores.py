"""Scores against sacreBLEU's own; errors as sentences."""

import json
import random
from dataclasses import asdict

import numpy as np
import pytest
import sacrebleu

from keras_attn import evaluation

HYPOTHESES = ["the cat sat on the mat", "there is a dog here", "two men walk ."]
REFERENCES = ["the cat sat on a mat", "there is a dog in here", "Two men are walking ."]


def test_scores_equal_sacrebleu_and_options_reach_the_signature(caplog):
    assert evaluation.bleu(HYPOTHESES, REFERENCES).score == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert evaluation.chrf(HYPOTHESES, REFERENCES).score == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert evaluation.ter(HYPOTHESES, REFERENCES).score == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    tokenized = evaluation.bleu(["a dog runs ."] * 101, ["a dog runs ."] * 101, tokenize="none")
    assert not caplog.records  # no warning that the text is tokenized
    lowercased = evaluation.bleu(HYPOTHESES, REFERENCES, tokenize="none", lowercase=True)
    assert "case:lc" in lowercased.signature
    assert "tok:none" in lowercased.signature
    assert lowercased.score > evaluation.bleu(HYPOTHESES, REFERENCES, tokenize="none").score
    assert tokenized.score == pytest.approx(100)
    assert evaluation.chrf(HYPOTHESES, REFERENCES, word_order=2).name == "chrF2++"


def test_several_references_and_the_form_of_a_score():
    several = evaluation.bleu(HYPOTHESES, [REFERENCES, HYPOTHESES])
    assert several.score == pytest.approx(100)
    assert several.signature.startswith("nrefs:2|")
    score = evaluation.bleu(HYPOTHESES, REFERENCES)
    assert score == evaluation.bleu(tuple(HYPOTHESES), tuple(REFERENCES))
    metric = sacrebleu.metrics.BLEU()
    line = metric.corpus_score(HYPOTHESES, [REFERENCES]).format(signature=str(metric.get_signature()))
    assert str(score) == line
    assert json.loads(json.dumps(asdict(score))) == asdict(score)


@pytest.mark.parametrize(
    ("hypotheses", "references", "sentence"),
    [
        (["a", "b"], ["a"], r"Received: 2 hypotheses and 1 references \(list 1\)"),
        (["a"], [["a"], ["a", "b"]], r"Received: 1 hypotheses and 2 references \(list 2\)"),
        ([], [], "Received: 0 hypotheses and 0 lists"),
        ("a b", ["a", "b", "c"], "hypotheses as a list of strings. Received: one string"),
        (["a"], "a", "references as a list of strings. Received: one string"),
        (["a", None], ["a", "b"], "strings in hypotheses. Received: NoneType in line 2"),
    ],
)
def test_unfit_input_is_refused(hypotheses, references, sentence):
    for score in (evaluation.bleu, evaluation.chrf, evaluation.ter):
        with pytest.raises(ValueError, match=sentence):
            score(hypotheses, references)
    with pytest.raises(ValueError, match=r"one of .*13a.*\. Received: 'moses'"):
        evaluation.bleu(["a"], ["a"], tokenize="moses")


def degraded(lines, share, seed):
    """Lines with a share of their words replaced."""
    rng = random.Random(seed)
    return [" ".join("x" if rng.random() < share else word for word in line.split()) for line in lines]


def test_paired_bootstrap_refuses_what_does_not_fit():
    """tests/unit/training/test_commands.py compares what it computes with sacreBLEU's command."""
    with pytest.raises(ValueError, match=r"at least two systems.*Received: 1"):
        evaluation.paired_bootstrap({"one": ["a"]}, ["a"])
    with pytest.raises(ValueError, match=r"names among: bleu, chrf, ter\. Received: rouge"):
        evaluation.paired_bootstrap({"one": ["a"], "two": ["b"]}, ["a"], names=["rouge"])
    with pytest.raises(ValueError, match="2 hypotheses and 1 references"):
        evaluation.paired_bootstrap({"one": ["a"], "two": ["b", "c"]}, ["a"])


def test_bleu_interval_is_that_of_resampled_test_sets():
    """The same draws, each scored anew from its lines."""
    rng = random.Random(0)
    references = [" ".join(rng.choice("abcdefg") for _ in range(rng.randrange(1, 13))) for _ in range(31)]
    hypotheses = degraded(references, 0.3, 1)
    interval = evaluation.bleu_interval(hypotheses, references, samples=53, confidence=0.8, seed=3)
    scores = []
    for sampled in np.random.default_rng(3).integers(0, 31, (53, 31)):
        resampled = [[lines[n] for n in sampled] for lines in (hypotheses, references)]
        scores.append(sacrebleu.corpus_bleu(resampled[0], [resampled[1]]).score)
    np.testing.assert_allclose([interval.low, interval.high], np.quantile(scores, [0.1, 0.9]), rtol=1e-9)
    assert interval.score == evaluation.bleu(hypotheses, references)
    assert interval.low < interval.score.score < interval.high
    with pytest.raises(ValueError, match=r"confidence between 0 and 1\. Received: samples=1, confidence=1"):
        evaluation.bleu_interval(["a"], ["a"], samples=1, confidence=1)
