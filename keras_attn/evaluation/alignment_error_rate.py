"""Links between words, and how many of them are right by a gold standard."""

import re
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

Link = tuple[int, int]  # source word, target word, from 0


class Gold(NamedTuple):
    """What annotators say of a sentence: links that are sure, and all that are possible, the sure ones among them."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentScore:
    """Alignment error rate, precision and recall of a corpus in percent, and the numbers of links that they are of."""

    aer: float
    precision: float
    recall: float
    links: int
    sure: int
    possible: int

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)


def parse_links(line: str, *, base: int = 0, lengths: tuple[int, int] | None = None) -> Gold:
    """Links of one sentence: `i-j`, source word i with target word j, is sure, and `ipj` is only possible.

    Pharaoh lines, as `keras_attn.plots.to_pharaoh` writes them, are of this form, too.

    Args:
        line: Links with blanks between.
        base: The number of the first word.
        lengths: Words of the source and of the target, if they are to be checked.

    Raises:
        ValueError: for what is no link, or a link of a word that there is not.

    Example:

    >>> sorted(parse_links("1-1 2p1", base=1).possible)
    [(0, 0), (1, 0)]
    """
    sure, possible = set(), set()
    for text in line.split():
        match = re.fullmatch(r"([0-9]+)([-p])([0-9]+)", text)
        if match is None:
            raise ValueError(f"Expected links i-j (sure) or ipj (possible). Received: {text!r}.")
        link = int(match[1]) - base, int(match[3]) - base
        for number, count, side in zip(link, lengths or (None, None), ("source", "target"), strict=True):
            if number < 0 or (count is not None and number >= count):
                last = "" if count is None else f" to {count + base - 1}"
                raise ValueError(f"Expected {side} words from {base}{last}. Received the link {text!r}.")
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Gold(frozenset(sure), frozenset(possible))


def alignment_error_rate(found: Sequence[Set[Link]], gold: Sequence[Gold]) -> AlignmentScore:
    """AER, precision and recall of links against sure and possible ones, over all sentences; lower AER is better.

        precision = |A & P| / |A|,   recall = |A & S| / |S|
        AER = 1 - (|A & S| + |A & P|) / (|A| + |S|)

    with A the links found, S the sure and P the possible ones, S within P (Och & Ney 2003, A Systematic Comparison of
    Various Statistical Alignment Models, Computational Linguistics 29(1), section 5). Where nothing is found the
    precision is 0.

    Args:
        found: For each sentence its links.
        gold: For each sentence what is right.

    Raises:
        ValueError: for lists that are empty or of unequal length, or gold without a sure link.

    Example:

    >>> alignment_error_rate([{(0, 0), (1, 1)}], [parse_links("0-0 1p1 2p1")]).aer
    0.0
    """
    if len(found) != len(gold) or not len(gold):
        raise ValueError(
            f"Expected links and gold of as many sentences, one or more. Received: {len(found)} and {len(gold)}"
        )
    total, sure = sum(map(len, found)), sum(len(one.sure) for one in gold)
    if not sure:
        raise ValueError("Expected gold with a sure link. Received: none")
    in_sure = sum(len(links & one.sure) for links, one in zip(found, gold, strict=True))
    in_possible = sum(len(links & one.possible) for links, one in zip(found, gold, strict=True))
    return AlignmentScore(
        aer=100 * (1 - (in_sure + in_possible) / (total + sure)),
        precision=100 * in_possible / max(1, total),
        recall=100 * in_sure / sure,
        links=total,
        sure=sure,
        possible=sum(len(one.possible) for one in gold),
    )
