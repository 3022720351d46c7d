"""Links of two directions made one, and links of parallel text by IBM Model 1 in both."""

import heapq
from collections.abc import Sequence, Set

from keras_attn.evaluation.alignment_error_rate import Link
from keras_attn.evaluation.ibm1 import Model1

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def grow_diag_final_and(forward: Set[Link], backward: Set[Link]) -> set[Link]:
    """Symmetrises the links of two directions, by the heuristic grow-diag-final-and.

    It begins with the links that both have. As long as it finds one, it then adds a link of either direction that is
    beside or diagonally beside one it has, if its source or its target word has none yet (grow-diag). It goes through
    the links in their order, those included that it has just added. At last it adds
    links of the forward direction, then of the backward one, whose words both have none (final-and).

    Args:
        forward, backward: Links (source word, target word) of a sentence in both directions, in this order of words.

    Example:
        >>> sorted(keras_attn.evaluation.grow_diag_final_and({(0, 0), (1, 1)}, {(0, 0), (0, 1)}))
        [(0, 0), (0, 1), (1, 1)]

    Reference: Koehn et al. Edinburgh System Description for the 2005 IWSLT Speech Translation Evaluation. IWSLT 2005.
    """
    links, either = set(forward & backward), forward | backward
    sources, targets = {i for i, _ in links}, {j for _, j in links}

    def add(link: Link) -> None:
        links.add(link)
        sources.add(link[0])
        targets.add(link[1])

    count = -1
    while count < len(links):
        count = len(links)
        to_visit = sorted(links)  # a heap
        while to_visit:
            i, j = heapq.heappop(to_visit)
            for di, dj in _NEIGHBOURS:
                link = i + di, j + dj
                if link in either and link not in links and (link[0] not in sources or link[1] not in targets):
                    add(link)
                    if link > (i, j):
                        heapq.heappush(to_visit, link)
    for direction in (forward, backward):
        for link in sorted(direction):
            if link[0] not in sources and link[1] not in targets:
                add(link)
    return links


def model1_links(sources: Sequence[str], targets: Sequence[str], *, iterations: int = 5) -> list[set[Link]]:
    """Links the words of parallel text by IBM Model 1 in both directions, symmetrised by `grow_diag_final_and`.

    Args:
        sources, targets: Sentences of words separated by blanks.
        iterations: Iterations of EM.

    Returns:
        The links (source word, target word) of each pair; none if a side is blank.

    Raises:
        ValueError: For sides of unequal length, or no pair with words on both sides.

    Example:
        >>> texts = ["das Haus", "das Buch", "ein Buch"], ["the house", "the book", "a book"]
        >>> [sorted(links) for links in keras_attn.evaluation.model1_links(*texts, iterations=9)]
        [[(0, 0), (1, 1)], [(0, 0), (1, 1)], [(0, 0), (1, 1)]]
    """
    forward = Model1(sources, targets, iterations=iterations)
    backward = Model1(targets, sources, iterations=iterations)
    return [
        grow_diag_final_and(forward.links(source, target), {(i, j) for j, i in backward.links(target, source)})
        for source, target in zip(sources, targets, strict=True)
    ]
