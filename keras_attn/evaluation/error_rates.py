"""Error rates of items that are right or wrong as a whole, such as pronunciations, with several right answers each."""

from collections.abc import Sequence

from keras_attn.evaluation.scores import Score


def edit_distance(first: Sequence, second: Sequence) -> int:
    """Returns the least number of insertions, deletions and substitutions between two sequences (Levenshtein 1966).

    Args:
        first, second: Strings, or lists of anything that can be compared.

    Example:
        >>> keras_attn.evaluation.edit_distance("K AE T".split(), "K AH T S".split())
        2
    """
    row = list(range(len(second) + 1))
    for i, item in enumerate(first, start=1):
        diagonal, row[0] = row[0], i
        for j, counterpart in enumerate(second, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (item != counterpart))
    return row[-1]


def _check_answers(hypotheses: Sequence[str], answers: Sequence[Sequence[str]]) -> str:
    """Raises ValueError for lists that cannot be scored, and returns the signature otherwise."""
    if isinstance(hypotheses, str) or isinstance(answers, str):
        raise ValueError("Expected a list of hypotheses and a list of their right answers. Received: one string")
    if len(hypotheses) != len(answers) or not len(hypotheses):
        raise ValueError(
            "Expected at least one hypothesis, and a list of right answers for each. "
            f"Received: {len(hypotheses)} hypotheses and {len(answers)} lists of answers"
        )
    if wrong := [one for one in hypotheses if not isinstance(one, str)]:
        raise ValueError(f"Expected hypotheses as str. Received: {wrong[0]!r:.80}")
    for number, right in enumerate(answers, start=1):
        if isinstance(right, str) or not len(right) or not all(answer.split() for answer in right):
            raise ValueError(
                "Expected a list of one or more right answers that are not blank. "
                f"Received: {right!r} for hypothesis {number}"
            )
    return f"items:{len(hypotheses)}|answers:{sum(map(len, answers))}|nearest"


def phoneme_error_rate(hypotheses: Sequence[str], answers: Sequence[Sequence[str]]) -> Score:
    """Phoneme error rate (PER): edits to the nearest right pronunciation, in percent of its phonemes; lower is better.

    With y the hypothesis for a word and R its right pronunciations, summed over all words:

        PER = 100 sum min_{r in R} d(y, r) / sum |r*|,   r* the nearest r

    The nearest of several reference pronunciations counts, as is customary (Yao & Zweig 2015, arXiv:1506.00196,
    section 4); of several equally near ones it is the first in the list. Any symbols separated by blanks can be scored.

    Args:
        hypotheses: A pronunciation of each word, as symbols separated by blanks.
        answers: All right pronunciations of each word.

    Raises:
        ValueError: If the lists are empty or differ in length, or a word has no right answer.

    Example:
        >>> print(keras_attn.evaluation.phoneme_error_rate(["K AH T"], [["K AE T", "K AE T S"]]))
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
    """Word error rate (WER) of pronunciations: percent of words whose hypothesis is not a right one; lower is better.

    This is the word error rate of grapheme-to-phoneme conversion (Yao & Zweig 2015, arXiv:1506.00196, section 4): a
    word is right if its whole hypothesis equals one of its pronunciations. The word error rate of speech recognition
    is another one, which counts edits between sequences of words.

    Args:
        hypotheses: A pronunciation of each word, as symbols separated by blanks.
        answers: All right pronunciations of each word.

    Raises:
        ValueError: If the lists are empty or differ in length, or a word has no right answer.

    Example:
        >>> print(keras_attn.evaluation.word_error_rate(["K AH T", "D AO G"], [["K AE T", "K AE T S"], ["D AO G"]]))
        WER|items:2|answers:3|nearest = 50.00 1 wrong / 2
    """
    signature = _check_answers(hypotheses, answers)
    wrong = sum(
        hypothesis.split() not in [answer.split() for answer in right]
        for hypothesis, right in zip(hypotheses, answers, strict=True)
    )
    return Score("WER", 100 * wrong / len(hypotheses), signature, f"{wrong} wrong / {len(hypotheses)}")
