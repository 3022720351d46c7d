"""Error rates of what is right or wrong as a whole, such as pronunciations, with several right answers an item."""

from collections.abc import Sequence

from keras_attn.evaluation.scores import Score


def edit_distance(one: Sequence, other: Sequence) -> int:
    """The fewest insertions, deletions and substitutions that turn one sequence into the other (Levenshtein 1966).

    Example:

    >>> edit_distance("K AE T".split(), "K AH T S".split())
    2
    """
    row = list(range(len(other) + 1))
    for i, item in enumerate(one, start=1):
        diagonal, row[0] = row[0], i
        for j, counterpart in enumerate(other, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (item != counterpart))
    return row[-1]


def _check_answers(hypotheses: Sequence[str], answers: Sequence[Sequence[str]]) -> str:
    """Refuses what cannot be scored; the signature otherwise."""
    if isinstance(hypotheses, str) or isinstance(answers, str):
        raise ValueError("Expected a list of hypotheses and a list of their right answers, received one string.")
    if len(hypotheses) != len(answers) or not len(hypotheses):
        raise ValueError(
            "Expected at least one hypothesis, and for each a list of right answers, "
            f"received {len(hypotheses)} hypotheses and {len(answers)} lists of answers."
        )
    for number, right in enumerate(answers, start=1):
        if isinstance(right, str) or not len(right) or not all(answer.split() for answer in right):
            raise ValueError(
                f"Expected a list of one or more right answers that are not blank, received {right!r}, "
                f"for hypothesis {number}."
            )
    return f"items:{len(hypotheses)}|answers:{sum(map(len, answers))}|nearest"


def phoneme_error_rate(hypotheses: Sequence[str], answers: Sequence[Sequence[str]]) -> Score:
    """PER: edits to the nearest right pronunciation, for each hundred phonemes of these, lower is better.

    With y the hypothesis for a word and R its pronunciations, summed over all words:

        PER = 100 sum min_{r in R} d(y, r) / sum |r*|,   r* the nearest r

    That of several reference pronunciations the nearest counts is the field's custom (Yao & Zweig 2015,
    arXiv:1506.00196, section 4); of equally near ones the first in the list does. It is defined for any symbols with
    blanks between.

    Args:
        hypotheses: One pronunciation a word, symbols with blanks between.
        answers: For each word all its right pronunciations.

    Raises:
        ValueError: If the lists are empty or of unequal length, or a word has no right answer.

    Example:

    >>> print(phoneme_error_rate(["K AH T"], [["K AE T", "K AE T S"]]))
    PER|items:1|answers:2|nearest = 33.33 1 edit / 3 symbols
    """
    signature = _check_answers(hypotheses, answers)
    edits = length = 0
    for hypothesis, right in zip(hypotheses, answers, strict=True):
        distances = [(edit_distance(hypothesis.split(), answer.split()), len(answer.split())) for answer in right]
        nearest = min(distances, key=lambda pair: pair[0])
        edits, length = edits + nearest[0], length + nearest[1]
    return Score("PER", 100 * edits / length, signature, f"{edits} edit{'s' * (edits != 1)} / {length} symbols")


def word_error_rate(hypotheses: Sequence[str], answers: Sequence[Sequence[str]]) -> Score:
    """WER of pronunciations: words of a hundred whose hypothesis is none of the right ones, lower is better.

    This is the word error rate of grapheme-to-phoneme conversion (Yao & Zweig 2015, arXiv:1506.00196, section 4): a
    word is right if its whole hypothesis equals one of its pronunciations. That of speech recognition, edits between
    sequences of words, is another thing.

    Args, Raises: as `phoneme_error_rate`.

    Example:

    >>> print(word_error_rate(["K AH T", "D AO G"], [["K AE T", "K AE T S"], ["D AO G"]]))
    WER|items:2|answers:3|nearest = 50.00 1 wrong / 2
    """
    signature = _check_answers(hypotheses, answers)
    wrong = sum(
        hypothesis.split() not in [answer.split() for answer in right]
        for hypothesis, right in zip(hypotheses, answers, strict=True)
    )
    return Score("WER", 100 * wrong / len(hypotheses), signature, f"{wrong} wrong / {len(hypotheses)}")
