"""Votes, solved by hand and against a plain count; translations as they are shown."""

import numpy as np
import pytest

from keras_attn import Translation
from keras_attn.translation import vote


def said(*pairs: tuple[str, float]) -> list[Translation]:
    return [Translation(text, score=score) for text, score in pairs]


def test_votes_by_hand():
    """The text that most translators found, then the highest single score, then the first translator's.

    Sentence 1: two of three, though the third is surest. 2: three texts, the second has the highest score.
    3: two against two, and the highest single score wins, not the sum. 4: equal in all, the first translator's.
    """
    candidates = [
        said(("a", -0.9), ("a", -0.9), ("a", -0.5), ("a", -1.0)),
        said(("b", -0.1), ("b", -0.2), ("b", -0.1), ("b", -1.0)),
        said(("a", -0.7), ("c", -0.3), ("a", -0.6), ("c", -1.0)),
        said(("d", -0.2), ("d", -0.8), ("b", -2.0), ("d", -1.0)),
    ]
    winners = vote(candidates)
    assert [(one.text, one.score) for one in winners] == [("a", -0.7), ("b", -0.2), ("b", -0.1), ("a", -1.0)]
    assert winners[0] is candidates[2][0], "the translation itself, with its alignment"


def test_one_translator_decides_alone_and_no_sentences_are_none():
    alone = said(("a", -0.9), ("", 0.0))
    assert vote([alone]) == alone
    assert vote([[], []]) == []


@pytest.mark.parametrize(("candidates", "lengths"), [([], r"\[\]"), ([said(("a", 0)), []], r"\[0, 1\]")])
def test_lists_that_do_not_fit_are_refused(candidates, lengths):
    with pytest.raises(ValueError, match=f"of equal length. Received: lengths {lengths}"):
        vote(candidates)


def test_a_translation_is_shown_in_a_line_and_in_a_notebook_with_its_alignment():
    best = Translation("<b>", ("<b>", "</s>"), score=-0.25, alignment=np.array([[0.9], [1.5]]), source_tokens=("a",))
    assert repr(best) == "<Translation '<b>', score -0.25>"
    assert repr(Translation("x", n_best=(best, best))) == "<Translation 'x', score 0, 2 hypotheses>"
    shown = best._repr_html_()
    assert "<b>" not in shown
    assert shown.count("<td") == 2
    assert 'rgba(31, 119, 180, 0.90)" title="0.90"' in shown
    assert Translation("a & b")._repr_html_() == "<p>a &amp; b <small>score 0</small></p>"
