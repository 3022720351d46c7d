"""The targets of guided alignment: links between words, as distributions over the source's tokens."""

from collections.abc import Collection, Sequence

import numpy as np

from keras_attn.data.token_store import TokenStore
from keras_attn.text import Tokenizer, WordNumbers


class AlignmentTargets:
    """The target alignments of a batch, from links between the words of its pairs.

    The target of a token is uniform over all tokens of the words that its word is linked to. Ends, padding, and words
    without links have none. With `shift`, row t is not of the token that it predicts but of the word before that one,
    which the decoder has then read (Chen, Liu, Liu & Chen 2020, arXiv:2004.14837, section 3.1): the row of a word's
    tokens has the links of the word before, that of the end those of the last word, and that of the first word none. A
    word without links is then linked to the end of the source, which stands for the empty word of IBM Model 1.

    Args:
        links: For each pair its links (source word, target word), numbered from 0 as `Tokenizer.words` does.
        tokenizers: Of source and target.
        sides: The pairs' rows of ids.
        weight: What the rows of a target sum to.
        shift: Whether rows belong to the word before.

    Raises:
        ValueError: For another number of pairs, a link to a word that does not exist, or a weight that is not above 0.
    """

    def __init__(
        self,
        links: Sequence[Collection[tuple[int, int]]],
        tokenizers: tuple[Tokenizer, Tokenizer],
        sides: Sequence[TokenStore],
        weight: float,
        shift: bool = False,
    ):
        if len(links) != len(sides[0]):
            raise ValueError(f"Expected links of {len(sides[0]):,} pairs. Received: of {len(links):,}")
        if not 0 < weight < np.inf:
            raise ValueError(f"Expected a weight of the alignment loss above 0. Received: {weight}")
        self._weight, self._shift, self._ends = weight, shift, [one.special_ids.end for one in tokenizers]
        self._numbers = [WordNumbers(tokenizer) for tokenizer in tokenizers]
        self._offsets = np.cumsum([0, *map(len, links)])  # (pairs + 1,)
        flat = [link for one in links for link in sorted(one)]
        self._links = np.array(flat, np.int32).reshape(-1, 2)  # (links, 2)
        counts = [one.counts(side.token_ids, side.offsets) for one, side in zip(self._numbers, sides, strict=True)]
        pairs = np.repeat(np.arange(len(links)), np.diff(self._offsets))  # (links,)
        limits = np.stack([count[pairs] for count in counts], axis=1)  # (links, 2)
        wrong = ((self._links < 0) | (self._links >= limits)).any(axis=1) & (limits > 0).all(axis=1)
        if wrong.any():
            number = int(wrong.argmax())
            source, target = limits[number]
            raise ValueError(
                f"Expected links from {source} source words to {target} target words in pair {pairs[number] + 1:,}, "
                f"each numbered from 0. Received: {self._links[number][0]}-{self._links[number][1]}"
            )

    def of_batch(self, rows: np.ndarray, source: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Returns the targets of a batch, float32 (B, T, S).

        Args:
            rows: int (pairs,), the numbers of its pairs, at most B.
            source, labels: int (B, S) and (B, T), the batch's ids.
        """
        count = len(rows)
        words = [numbers.of_rows(ids[:count]) for numbers, ids in zip(self._numbers, (source, labels), strict=True)]
        sizes = [1 + side.max(initial=-1) for side in words]
        lengths = self._offsets[rows + 1] - self._offsets[rows]  # (pairs,)
        pairs = np.repeat(np.arange(count), lengths)  # of each link
        places = np.repeat(self._offsets[rows] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        links = self._links[places]  # (links of the batch, 2)
        is_present = links < sizes  # (links, 2), whether truncation has left the word
        linked = np.zeros((count, sizes[1] + 1, sizes[0] + 2), bool)  # the last row and column are of no word
        source_words, target_words = words[0], words[1]  # (pairs, S), (pairs, T), the word of each column and row
        if self._shift:
            linked[:, :-1, sizes[0]] = True  # the empty word
            linked[pairs[is_present[:, 1]], links[is_present[:, 1], 1], sizes[0]] = False
            source_words = np.where(source[:count] == self._ends[0], sizes[0], source_words)
            last = target_words.max(axis=1, keepdims=True)  # (pairs, 1)
            target_words = np.where(labels[:count] == self._ends[1], last, np.maximum(target_words, 0) - 1)
        pairs, links = pairs[is_present.all(axis=1)], links[is_present.all(axis=1)]
        linked[pairs, links[:, 1], links[:, 0]] = True
        pairs = np.arange(count)[:, None, None]
        targets = np.zeros((*labels.shape, source.shape[1]), np.float32)  # (B, T, S)
        targets[:count] = linked[pairs, target_words[:, :, None], source_words[:, None, :]]
        return targets * (self._weight / np.maximum(targets.sum(axis=-1, keepdims=True), 1)).astype(np.float32)
