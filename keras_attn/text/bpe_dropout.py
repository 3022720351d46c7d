"""BPE-dropout: the same text in other pieces each time, for training."""

import itertools
import math
import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_attn.text.bpe_model import BLANK_MARK
from keras_attn.text.special_tokens import lowercase_table

if TYPE_CHECKING:
    from keras_attn.text.tokenizer import Tokenizer

_WORD = re.compile(f"{BLANK_MARK}?[^{BLANK_MARK}]+|{BLANK_MARK}")
_MOST_WORDS = 1 << 17  # whose plain segmentations are kept


class BPEDropout:
    """Segments text at random: at each step of BPE, each merge that is possible is left out with probability p.

    The best of those that remain is made, until none remains. At p = 0 the pieces are those of `Tokenizer.encode`, at
    p = 1 single characters. A model that is trained on such pieces, drawn anew for each pass over the data, learns what
    words are made of, and is less misled by rare ones; translation uses the plain pieces (Provilkov, Emelianenko,
    Voita. BPE-Dropout: Simple and Effective Subword Regularization. ACL 2020, arXiv:1910.13267, section 3.1,
    algorithm 1).

    The same seed gives the same pieces in every process. SentencePiece's own sampling does not: its generator mixes a
    number into the seed that each process draws for itself.

    Args:
        tokenizer: A `Tokenizer` of level "bpe" that was trained here.
        rate: p, from 0 to 1; 0.1 in the paper.

    Raises:
        ValueError: For another tokenizer, or a rate out of range.

    Example:
        >>> tokenizer = keras_attn.Tokenizer.train(["low lower lowest"] * 9, vocabulary_size=280)
        >>> drawn = keras_attn.text.BPEDropout(tokenizer, 0.5).encode(["low lower"], seed=3)
        >>> tokenizer.decode(drawn[0])
        'low lower'
    """

    def __init__(self, tokenizer: "Tokenizer", rate: float):
        if tokenizer.sentencepiece_model is None or tokenizer._model.is_foreign:
            kind = repr(tokenizer.level) if tokenizer.sentencepiece_model is None else "one of another program"
            raise ValueError(f"Expected a tokenizer of level 'bpe' that was trained here. Received: {kind}")
        if not 0 <= rate <= 1:
            raise ValueError(f"Expected a rate of BPE-dropout from 0 to 1. Received: {rate}")
        import sentencepiece

        self.rate = rate
        self._table = lowercase_table() if tokenizer.lowercase else {}
        self._unknown = tokenizer.special_ids.unknown
        processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.sentencepiece_model)
        self._ids: dict[str, int] = {}  # of what merges can make; an earlier one is a better merge
        self._bytes: list[int] = []
        for token_id, piece in enumerate(tokenizer.vocabulary):
            if processor.is_byte(token_id):
                self._bytes.append(token_id)
            elif not processor.is_control(token_id) and not processor.is_unknown(token_id):
                self._ids[piece] = token_id
        # Where SentencePiece itself leaves out every merge, a piece of several characters is whole only if it is a tag.
        long = [piece for piece in self._ids if len(piece) > 1]
        cut = processor.encode(long, enable_sampling=True, nbest_size=-1, alpha=1.0)
        tags = [piece for piece, ids in zip(long, cut, strict=True) if len(ids) == 1]
        self._tags = {tag: self._ids.pop(tag) for tag in sorted(tags, key=len, reverse=True)}
        self._tag = re.compile(f"({'|'.join(map(re.escape, self._tags))})") if tags else None
        self._plain: dict[str, tuple[list[int], int]] = {}

    def encode(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """Returns the ids of each text, without start and end."""
        draws, rows = random.Random(seed), []
        for text in texts:
            ids: list[int] = []
            text = text.translate(self._table)
            for part in self._tag.split(text) if self._tag else [text]:
                if part in self._tags:
                    ids.append(self._tags[part])
                    continue
                for word in _WORD.findall(part.replace(" ", BLANK_MARK)):
                    ids += self._drawn(word, draws)
            rows.append(self._joined(ids))
        return rows

    def _drawn(self, word: str, draws: random.Random) -> list[int]:
        plain = self._plain.get(word)
        if plain is None:
            pieces = self._segment(word, math.inf, draws)
            plain = self._to_ids(pieces), len(word) - len(pieces)
            if len(self._plain) >= _MOST_WORDS:  # other threads may do the same: nothing is read from it afterwards
                self._plain.clear()
            self._plain[word] = plain
        ids, merges = plain
        if not self.rate or not merges:
            return ids
        # The first of the best merges that is left out: a geometric draw in the place of one for each.
        made = 0 if self.rate == 1 else math.log(1 - draws.random()) / math.log1p(-self.rate)
        return ids if made >= merges else self._to_ids(self._segment(word, int(made), draws))

    def _segment(self, word: str, made: float, draws: random.Random) -> list[str]:
        """Returns the pieces of a word of which so many best merges are made, and the next is left out."""
        pieces, step = list(word), 0
        while True:
            found = ((self._ids.get(a + b), n) for n, (a, b) in enumerate(itertools.pairwise(pieces)))
            merges = sorted(merge for merge in found if merge[0] is not None)
            if step >= made:
                first = 1 if step == made else 0
                merges = [merge for merge in merges[first:] if draws.random() >= self.rate]
            if not merges:
                return pieces
            place = merges[0][1]
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
            step += 1

    def _to_ids(self, pieces: Sequence[str]) -> list[int]:
        ids = []
        for piece in pieces:
            if piece in self._ids:
                ids.append(self._ids[piece])
            elif self._bytes:
                ids += [self._bytes[byte] for byte in piece.encode()]
            else:
                ids.append(self._unknown)
        return ids

    def _joined(self, ids: list[int]) -> list[int]:
        """The ids with one unknown id for several in a row, as SentencePiece has it."""
        if self._bytes or self._unknown not in ids:
            return ids
        return [i for n, i in enumerate(ids) if i != self._unknown or not n or ids[n - 1] != self._unknown]
