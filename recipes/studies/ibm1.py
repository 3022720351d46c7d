"""IBM Model 1, the classic aligner of words: Brown, Della Pietra, Della Pietra, Mercer. The Mathematics of Statistical
Machine Translation: Parameter Estimation. Computational Linguistics 19(2), 1993, section 4.

Every target word f_j comes from one source word e_i, or from the empty word e_0, whatever their places:

    p(f | e) = prod_j sum_{i=0..I} t(f_j | e_i) / (I + 1)
    EM:  c(f, e) = sum over places of t(f | e) / sum_i t(f | e_i),   t(f | e) = c(f, e) / sum_f' c(f', e)
"""

from collections.abc import Iterable, Sequence

import numpy as np

EMPTY = ""  # e_0; no word is empty


class Model1:
    """t(f | e) of all pairs of words that stand in some pair of sentences together, found by EM from a uniform start.

    Arguments:
        sources, targets: Sentences, words with blanks between; a pair with a blank side is left out.
        iterations: Of EM.
        empty: Whether a target word may come from the empty word.

    Raises:
        ValueError: for sides of unequal length, or no pair.

    Example:

    >>> model = Model1(["the house", "the book"], ["das Haus", "das Buch"], iterations=9)
    >>> sorted(model.links("the book", "das Buch"))
    [(0, 0), (1, 1)]
    """

    def __init__(self, sources: Sequence[str], targets: Sequence[str], *, iterations: int = 10, empty: bool = True):
        if len(sources) != len(targets):
            raise ValueError(f"Expected as many sources as targets, received {len(sources)} and {len(targets)}.")
        self._start = [EMPTY] if empty else []
        pairs = [(s.split(), t.split()) for s, t in zip(sources, targets, strict=True) if s.split() and t.split()]
        if not pairs:
            raise ValueError("Expected a pair of sentences, received none that is not blank.")
        self._source_ids = _number(word for source, _ in pairs for word in [*self._start, *source])
        self._target_ids = _number(word for _, target in pairs for word in target)
        keys, places = self._cells(pairs)
        self._keys, cells = np.unique(keys, return_inverse=True)  # a pair of words each; which one a cell is of
        givens = self._keys // len(self._target_ids)
        self._table = np.ones(len(self._keys))
        for _ in range(iterations):
            weights = self._table[cells]
            weights /= np.bincount(places, weights)[places]
            counts = np.bincount(cells, weights, minlength=len(self._keys))
            self._table = counts / np.bincount(givens, counts)[givens]

    def _cells(self, pairs) -> tuple[np.ndarray, np.ndarray]:
        """Every target word with every source word of its sentence: the key of the two, and the target word's place."""
        source = np.array([self._source_ids[w] for words, _ in pairs for w in [*self._start, *words]], np.int64)
        target = np.array([self._target_ids[w] for _, words in pairs for w in words], np.int64)
        lengths = np.array([(len(self._start) + len(s), len(t)) for s, t in pairs], np.int64)
        first = np.repeat(lengths[:, 0].cumsum() - lengths[:, 0], lengths[:, 1])  # its sentence's first source word
        many = np.repeat(lengths[:, 0], lengths[:, 1])
        places = np.repeat(np.arange(len(target)), many)
        inside = np.arange(many.sum()) - np.repeat(many.cumsum() - many, many)
        return source[first[places] + inside] * len(self._target_ids) + target[places], places

    def probabilities(self, source: str, target: str) -> np.ndarray:
        """t(f_j | e_i) `(T, S)`, with the empty word, if there is one, in column 0; 0 for words never seen together."""
        rows = np.array([[self._source_ids.get(word, -1) for word in [*self._start, *source.split()]]])
        columns = np.array([[self._target_ids.get(word, -1)] for word in target.split()]).reshape(-1, 1)
        keys = np.where((rows >= 0) & (columns >= 0), rows * len(self._target_ids) + columns, -1)
        near = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        return np.where(self._keys[near] == keys, self._table[near], 0.0)

    def links(self, source: str, target: str) -> set[tuple[int, int]]:
        """The best source word of each target word, from 0; none where that is the empty word, or none is known."""
        found = set()
        for j, row in enumerate(self.probabilities(source, target)):
            i = int(row.argmax())
            if row[i] > 0 and i >= len(self._start):
                found.add((i - len(self._start), j))
        return found


def _number(words: Iterable[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(dict.fromkeys(words))}
