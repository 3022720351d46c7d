"""Links between words, and their error rate against a gold standard."""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

Link = tuple[int, int]  # source word, target word, from 0


class Gold(NamedTuple):
    """The annotation of a sentence: the `sure` links, and the `possible` links, among which all sure ones count."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentScore:
    """Alignment error rate `aer`, `precision` and `recall` of a corpus in percent.

    `links`, `sure` and `possible` are the numbers of links that were predicted, and of the two kinds of the gold's.
    """

    aer: float
    precision: float
    recall: float
    links: int
    sure: int
    possible: int


def parse_links(line: str, *, base: int = 0, lengths: tuple[int, int] | None = None) -> Gold:
    """Reads the links of one sentence: `i-j`, source word i with target word j, is sure; `ipj` is only possible.

    Pharaoh lines, as `keras_attn.plots.to_pharaoh` writes them, have this form, too.

    Args:
        line: Links, separated by blanks.
        base: The number of the first word.
        lengths: Number of words of the source and of the target. If given, links are checked against them.

    Raises:
        ValueError: If the line has something other than links, or a link to a word that does not exist.

    Example:
        >>> sorted(parse_links("1-1 2p1", base=1).possible)
        [(0, 0), (1, 0)]
    """
    sure, possible = set(), set()
    for text in line.split():
        match = re.fullmatch(r"([0-9]+)([-p])([0-9]+)", text)
        if match is None:
            raise ValueError(f"Expected links i-j (sure) or ipj (possible). Received: {text!r}")
        link = int(match[1]) - base, int(match[3]) - base
        for number, count, side in zip(link, lengths or (None, None), ("source", "target"), strict=True):
            if number < 0 or (count is not None and number >= count):
                last = "" if count is None else f" to {count + base - 1}"
                raise ValueError(f"Expected {side} words from {base}{last}. Received: the link {text!r}")
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def alignment_error_rate(predicted: Sequence[Set[Link]], gold: Sequence[Gold]) -> AlignmentScore:
    """Computes the alignment error rate (AER), precision and recall over all sentences; a lower AER is better.

        precision = |A & P| / |A|,   recall = |A & S| / |S|
        AER = 1 - (|A & S| + |A & P|) / (|A| + |S|)

    with A the predicted links, S the sure and P the possible ones, S within P (Och & Ney 2003, A Systematic Comparison
    of Various Statistical Alignment Models, Computational Linguistics 29(1), section 5). Without predicted links the
    precision is 0.

    Args:
        predicted: The predicted links of each sentence.
        gold: The annotation of each sentence.

    Raises:
        ValueError: If the lists are empty or differ in length, or no gold link is sure.

    Example:
        >>> keras_attn.evaluation.alignment_error_rate([{(0, 0), (1, 1)}], [parse_links("0-0 1p1 2p1")]).aer
        0.0
    """
    if len(predicted) != len(gold) or not len(gold):
        raise ValueError(
            "Expected predicted and gold links of equally many sentences, one or more. "
            f"Received: {len(predicted)} and {len(gold)}"
        )
    total, sure = sum(map(len, predicted)), sum(len(sentence.sure) for sentence in gold)
    if not sure:
        raise ValueError("Expected at least one sure gold link. Received: none")
    in_sure = sum(len(links & sentence.sure) for links, sentence in zip(predicted, gold, strict=True))
    possible = [sentence.possible | sentence.sure for sentence in gold]
    in_possible = sum(len(links & allowed) for links, allowed in zip(predicted, possible, strict=True))
    return AlignmentScore(
        aer=100 * (1 - (in_sure + in_possible) / (total + sure)),
        precision=100 * in_possible / max(1, total),
        recall=100 * in_sure / sure,
        links=total,
        sure=sure,
        possible=sum(map(len, possible)),
    )
