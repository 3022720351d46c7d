"""Rows of token ids that are drawn anew in each pass over the data, by BPE-dropout."""

from collections.abc import Sequence

import numpy as np

from keras_attn.data.token_store import TokenStore
from keras_attn.text import BLANKS, BPEDropout, Tokenizer

_DRAWS = 4  # whose longest is the planned length of a row
_ATTEMPTS = 3  # to draw a row that is no longer than its bucket


class DrawnStore(TokenStore):
    """Rows whose ids BPE-dropout draws when a batch asks for them: a pure function of the seed, the pass and the batch.

    The shapes and the pairs of the batches stay as they are planned, so the length of a row, on which the plan is made,
    is the longest of its plain segmentation and of four that are drawn beforehand. A row that turns out longer than its
    bucket is drawn again, at last segmented plainly.

    Args:
        plain: The ids of the lines without dropout.
        lines: The lines.
        tokenizer: A tokenizer of level "bpe".
        rate: The probability that a merge is left out.
        seed: Whole numbers of 0 or more.

    Raises:
        ValueError: For a tokenizer of another level, or a rate out of range.
    """

    def __init__(self, plain: TokenStore, lines: Sequence[str], tokenizer: Tokenizer, rate: float, seed: Sequence[int]):
        super().__init__(plain.token_ids, plain.offsets, special_ids=plain.special_ids)
        self._lines = [line if line.strip(BLANKS) else "" for line in lines]
        self._dropout, self._seed = BPEDropout(tokenizer, rate), tuple(seed)
        self.largest_id = tokenizer.vocabulary_size - 1  # any piece may be drawn
        draws = [[len(ids) for ids in self._draw(self._lines, n, 0)] for n in range(_DRAWS)]
        self._longest = np.max([np.diff(plain.offsets), *draws], axis=0).astype(np.int32)  # (rows,)

    def lengths(self, start: int, stop: int) -> np.ndarray:
        return self._longest[start:stop]

    def pad(self, rows: np.ndarray, shape: tuple[int, int], pass_number: int = 0) -> np.ndarray:
        room, batch = shape[1] - self.ends, rows[:1].tolist()  # a pair is in one batch of a pass
        drawn, waiting = {}, list(range(len(rows)))
        for attempt in range(_ATTEMPTS):
            draws = self._draw([self._lines[rows[n]] for n in waiting], attempt, 1 + pass_number, *batch)
            drawn |= {n: ids for n, ids in zip(waiting, draws, strict=True) if len(ids) <= room}
            waiting = [n for n in waiting if n not in drawn]
        drawn |= {n: self.token_ids[slice(*self.offsets[rows[n] : rows[n] + 2])] for n in waiting}
        ids = [drawn[n] for n in range(len(rows))]
        return TokenStore.from_lists(ids, self.special_ids).pad(np.arange(len(rows)), shape)

    def _draw(self, lines: Sequence[str], *key: int) -> list[list[int]]:
        seed = np.random.SeedSequence((*self._seed, *key)).generate_state(1)[0]
        return self._dropout.encode(lines, int(seed) >> 1)
