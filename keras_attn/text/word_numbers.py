"""Which word each token of a batch belongs to."""

from typing import TYPE_CHECKING

import numpy as np

from keras_attn.text.bpe_model import BLANK_MARK

if TYPE_CHECKING:
    from keras_attn.text.tokenizer import Tokenizer


class WordNumbers:
    """Numbers the words of rows of ids as `Tokenizer.words` does, many rows at a time.

    Args:
        tokenizer: The tokenizer whose ids they are; temporary ids count as unknown words.
    """

    def __init__(self, tokenizer: "Tokenizer"):
        self._special, tokens = tokenizer.special_ids, tokenizer.vocabulary
        self._opens = np.array([tokenizer._model.opens_word(token) for token in tokens])  # (V,)
        self._visible = np.array([bool(token.strip(BLANK_MARK + " ")) for token in tokens])  # (V,)

    def of_rows(self, token_ids: np.ndarray) -> np.ndarray:
        """Returns the number of each token's word, int (B, S); -1 for pad, start and end.

        Args:
            token_ids: int (B, S), rows of ids, each followed by the end id, if there is one, and padding.
        """
        is_first = np.zeros(token_ids.shape, bool)  # (B, S)
        is_first[:, 0] = True
        special = [i for i in (self._special.pad, self._special.start, self._special.end) if i is not None]
        is_text = ~np.isin(token_ids, special)
        token_ids = self._known(token_ids)
        visible = self._visible[token_ids] & is_text
        has_more = np.maximum.accumulate(visible[:, ::-1], axis=1)[:, ::-1]  # else only blanks, of the last word
        numbers = np.cumsum(is_first | (self._begins(token_ids) & has_more), axis=1) - 1
        return np.where(is_text, numbers, -1)

    def counts(self, token_ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Returns the number of words of each row, int (rows,); blanks at its end may count as one.

        Args:
            token_ids: int (N,), the ids of all rows, without start and end.
            offsets: int (rows + 1,), where the rows begin and end.
        """
        is_first = np.zeros(len(token_ids), bool)
        is_first[offsets[:-1][np.diff(offsets) > 0]] = True
        begun = np.concatenate([[0], np.cumsum(is_first | self._begins(self._known(token_ids)))])  # (N + 1,)
        return begun[offsets[1:]] - begun[offsets[:-1]]

    def _begins(self, token_ids: np.ndarray) -> np.ndarray:
        """Whether another word begins with each token: a blank belongs to the word after it."""
        return self._opens[token_ids] & self._visible[np.roll(token_ids, 1, axis=-1)]

    def _known(self, token_ids: np.ndarray) -> np.ndarray:
        unknown = 0 if self._special.unknown is None else self._special.unknown  # temporary ids need one
        return np.where(token_ids < len(self._opens), token_ids, unknown)
