"""Levels "word", "symbol" and "character": the text is split, and each token looked up in a vocabulary."""

import collections
import re
from collections.abc import Iterable
from typing import Any, Self

from keras_attn.text.lowercase import lowercase_table
from keras_attn.text.special_tokens import BLANKS, SPECIAL_TOKENS, UNKNOWN_ID


class LookupModel:
    """A vocabulary of tokens, and the way in which a text is split into them.

    Args:
        level: "word", "symbol" or "character".
        vocabulary: list of str, one token for each id; the first four are the special tokens.
        character_table: dict of code points for `str.translate`, applied to the text before it is split.
    """

    sentencepiece_model = None

    def __init__(self, level: str, vocabulary: list[str], character_table: dict[int, int]):
        self.vocabulary = vocabulary
        self.character_table = character_table
        self.separator = "" if level == "character" else " "
        self._ids = {token: index for index, token in enumerate(vocabulary) if index >= len(SPECIAL_TOKENS)}

    @classmethod
    def train(cls, lines: Iterable[str], level: str, size: int | None, min_frequency: int, lowercase: bool) -> Self:
        """Counts tokens and keeps the most frequent ones; see `Tokenizer.train`."""
        blanks = {} if level == "character" else dict.fromkeys(map(ord, BLANKS), ord(" "))
        blanks.pop(ord(" "), None)
        table = blanks | (lowercase_table() if lowercase else {})
        splitter = cls(level, list(SPECIAL_TOKENS), table)
        counts = collections.Counter()
        for line in lines:
            counts.update(splitter.cut(line))
        for special in SPECIAL_TOKENS:
            counts.pop(special, None)
        tokens = sorted((t for t, n in counts.items() if n >= min_frequency), key=lambda t: (-counts[t], t))
        if not tokens:
            raise ValueError(
                f"Expected text with at least one {level} that occurs {min_frequency} times or more. Received: none"
            )
        kept = None if size is None else size - len(SPECIAL_TOKENS)
        return cls(level, [*SPECIAL_TOKENS, *tokens[:kept]], table)

    def encode(self, texts: list[str], threads: int | None = None) -> list[list[int]]:
        """Returns the ids of each text. One thread encodes, whatever `threads` is."""
        return [[self._ids.get(token, UNKNOWN_ID) for token in self.cut(text)] for text in texts]

    def cut(self, text: str) -> list[str]:
        """Returns the tokens of a text, one for each id."""
        text = text.translate(self.character_table)
        return [token for token in text.split(self.separator) if token] if self.separator else list(text)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the (start, end) of each token in the text."""
        token = re.compile(f"[^{self.separator}]+" if self.separator else "(?s:.)")
        return [match.span() for match in token.finditer(text.translate(self.character_table))]

    def join(self, ids: list[int], unknown: list[str]) -> str:
        """Returns the text of ids, with a string of `unknown` for each unknown id."""
        unknown = iter(unknown)
        return self.separator.join(next(unknown) if i == UNKNOWN_ID else self.vocabulary[i] for i in ids)

    def opens_word(self, token: str) -> bool:
        """Whether a word begins with this token."""
        return bool(self.separator) or token == " "

    def manifest(self) -> dict[str, Any]:
        """Returns what `tokenizer.json` records of this model."""
        table = {chr(key): chr(value) for key, value in self.character_table.items()}
        return {"character_table": table, "vocabulary": self.vocabulary}
