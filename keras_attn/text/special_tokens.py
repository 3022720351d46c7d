"""The common part of all tokenizers: special ids, the levels, whitespace, lower case, and the check of a text."""

import dataclasses
import functools
from collections.abc import Sequence
from operator import index
from typing import Any, Self

PAD_ID, UNKNOWN_ID, START_ID, END_ID = 0, 1, 2, 3  # where nothing else is given
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
LEVELS = ("bpe", "word", "symbol", "character", "letter")  # that can be trained
# Unicode's White_Space, written out: Python's str.split, its \s, RE2's \s and C's isspace all differ.
BLANKS = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecialIds:
    """The special ids of a vocabulary. Tokenizer, data, model, search and export of one side share them.

    Args:
        pad: Fills rows; never produced.
        unknown: Stands for tokens outside the vocabulary; None: there is none, and such tokens are refused.
        start: The decoder's first input; never produced. None: no target begins with it, as on a source side.
        end: Ends a sentence. None: there is no end token. A source row is then its ids alone, and every output has
            the longest length that its search allows: a fixed length.

    Raises:
        ValueError: if an id is no whole number of at least 0, or two are equal.

    Example:
        >>> keras_attn.SpecialIds(pad=0, unknown=3, start=1, end=2)
        SpecialIds(pad=0, unknown=3, start=1, end=2)
    """

    pad: int = PAD_ID
    unknown: int | None = UNKNOWN_ID
    start: int | None = START_ID
    end: int | None = END_ID

    def __post_init__(self):
        given = self.get_config()
        for name, token_id in given.items():
            if token_id is None and name != "pad":
                continue
            try:
                whole = index(token_id)
            except TypeError:
                whole = -1
            if not 0 <= whole < 2**31:
                raise ValueError(f"Expected `{name}` to be an id, a whole number from 0. Received: {name}={token_id!r}")
            object.__setattr__(self, name, whole)  # an int64 of NumPy would make int64 of int32
        ids = self.all
        if len(set(ids)) < len(ids):
            raise ValueError(f"Expected special ids that differ from each other. Received: {given}")

    @property
    def all(self) -> tuple[int, ...]:
        """The special ids that the vocabulary has."""
        return tuple(token_id for token_id in self.get_config().values() if token_id is not None)

    @property
    def reserved(self) -> frozenset[int]:
        """Pad, start and end, which no text is encoded to."""
        return frozenset(self.all) - {self.unknown}

    @property
    def filler(self) -> int:
        """An id that is not padding, for rows that only fill a batch: the end, or any other if there is no end."""
        return self.end if self.end is not None else int(self.pad == 0)

    def with_end(self, token_ids: Sequence[int]) -> list[int]:
        """Returns the ids of a sentence and the end id, if there is one."""
        return [*token_ids] if self.end is None else [*token_ids, self.end]

    def ordinary(self, vocabulary_size: int) -> list[int]:
        """Returns all ids of a vocabulary but the special ones."""
        special = set(self.all)
        return [token_id for token_id in range(vocabulary_size) if token_id not in special]

    def check(self, vocabulary_size: int, name: str = "special ids") -> None:
        """Refuses ids outside a vocabulary.

        Raises:
            ValueError: if an id is not in it.
        """
        if max(self.all) >= vocabulary_size:
            raise ValueError(f"Expected {name} below the vocabulary's size, {vocabulary_size}. Received: {self}")

    def check_start(self) -> None:
        """Refuses the ids of a target that has no start.

        Raises:
            ValueError: if `start` is None.
        """
        if self.start is None:
            raise ValueError(f"Expected a target with a start id, the decoder's first input. Received: {self}")

    def get_config(self) -> dict[str, Any]:
        """The fields, for Keras."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)


DEFAULT_IDS = SpecialIds()


@functools.cache
def lowercase_table() -> dict[int, int]:
    """Returns Unicode's simple lower-case mapping of code points: the first character that `str.lower` gives.

    One character for one, so that Python, SentencePiece and a TensorFlow graph agree. Only "İ" has a second one.
    """
    pairs = ((code, ord(chr(code).lower()[0])) for code in range(0x110000))
    return {code: lower for code, lower in pairs if code != lower}


def checked_text(text: str) -> str:
    """Returns a text if it is valid.

    Raises:
        ValueError: If it is no str, or has half of a surrogate pair.
    """
    if not isinstance(text, str):
        raise ValueError(f"Expected text as a str. Received: {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            "Expected text that can be encoded in UTF-8. Received: the lone surrogate "
            f"U+{ord(text[error.start]):04X} at character {error.start}"
        ) from None
    return text
