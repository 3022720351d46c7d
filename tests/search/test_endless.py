"""Search without an end token against brute force: every hypothesis has its row's longest length."""

import numpy as np
import pytest

from keras_attn import SpecialIds
from keras_attn.search import beam_search, greedy_search, sample
from tests.search.searching import (
    MODES,
    B,
    L,
    RecurrentModel,
    TableModel,
    brute_force,
    check_against,
    log_softmax,
    options_of,
    run,
)

IDS = SpecialIds(end=None)
CONTENT = (1, 3, 4, 5, 6)  # 3 is a token like any other
EVERYTHING = 631  # at most 5^4 hypotheses before the last step
LONGEST = [3, 5, 1]
EACH_ROW = {"row_max_length": LONGEST, "special_ids": IDS}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("constraint", [{}, {"prefix": [[4], [6, 3], [5]], "banned": [1], "ngram": 2}])
def test_a_wide_beam_is_brute_force(constraint, mode):
    model, options = TableModel(), options_of("average", 0.6, 0.3)
    prefix = constraint.get("prefix", [[], [], []])
    others = {"banned": constraint.get("banned", ()), "ngram": constraint.get("ngram", 0)}
    result = run(
        beam_search,
        model,
        mode,
        beam_size=EVERYTHING,
        n_best=7,
        forced_prefix=np.array([row + [IDS.pad] * (3 - len(row)) for row in prefix], "int32"),
        banned_token_ids=others["banned"],
        no_repeat_ngram_size=others["ngram"],
        **EACH_ROW,
        **options,
    )
    for row in range(B):
        longest = LONGEST[row]
        expected = brute_force(
            model, row, options, longest, 1, prefix[row][:longest], content=CONTENT, has_end=False, **others
        )
        check_against(result, row, expected)


def test_a_beam_of_one_is_greedy_search_and_both_are_the_best_tokens():
    model = RecurrentModel()
    one, best = run(beam_search, model, beam_size=1, **EACH_ROW), run(greedy_search, model, **EACH_ROW)
    assert best.token_ids.tolist() == one.token_ids.tolist()
    np.testing.assert_allclose(best.scores, one.scores, atol=1e-5)
    np.testing.assert_allclose(best.alignments, one.alignments, atol=1e-5)
    for row in range(B):
        tokens = []
        for _ in range(LONGEST[row]):
            logits, _ = model.logits_and_alignments(row, [*tokens, 0])
            tokens.append(max(CONTENT, key=lambda token: logits[-1][token]))
        assert best.token_ids[row, 0].tolist() == tokens + [IDS.pad] * (L - LONGEST[row])


def test_samples_have_the_longest_length_and_follow_the_distribution():
    model = TableModel(seed=1)
    drawn = run(sample, model, seed=5, num_samples=797, **EACH_ROW)
    assert drawn.lengths.tolist() == [[longest] * 797 for longest in LONGEST]
    logits, _ = model.logits_and_alignments(2, [1])
    chances = np.exp(log_softmax(logits)[0, list(CONTENT)])
    shares = [(drawn.token_ids[2, :, 0] == token).mean() for token in CONTENT]
    np.testing.assert_allclose(shares, chances / chances.sum(), atol=0.07)
