"""Links of both directions: by hand, and against sets that they must lie between."""

import random

import pytest

from keras_attn.evaluation import grow_diag_final_and, model1_links


@pytest.mark.parametrize(
    ("forward", "backward", "expected"),
    [
        ({(0, 0)}, {(0, 0)}, {(0, 0)}),
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
        (set(), set(), set()),
    ],
)
def test_by_hand(forward, backward, expected):
    before = set(forward), set(backward)
    assert grow_diag_final_and(forward, backward) == expected
    assert (forward, backward) == before


def test_what_both_have_is_kept_and_nothing_is_invented():
    drawn = random.Random(3)
    for _ in range(50):
        forward, backward = (
            {(drawn.randrange(6), drawn.randrange(6)) for _ in range(drawn.randrange(9))} for _ in range(2)
        )
        links = grow_diag_final_and(forward, backward)
        assert forward & backward <= links <= forward | backward
        for i, j in forward | backward:  # final-and leaves no link whose words are both free
            assert any(i == source or j == target for source, target in links)


def test_model_1_in_both_directions_with_blank_pairs():
    sources = ["das Haus", "", "das Buch", "ein Buch", "x"] * 3
    targets = ["the house", "", "the book", "a book", ""] * 3
    links = model1_links(sources, targets, iterations=9)
    assert links == [{(0, 0), (1, 1)}, set(), {(0, 0), (1, 1)}, {(0, 0), (1, 1)}, set()] * 3
    with pytest.raises(ValueError, match="as many sources as targets"):
        model1_links(["a"], [])
