"""Levels "word", "symbol", "character" and "letter": the text is split, and each token looked up in a vocabulary."""

import collections
import re
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Self

from keras_attn.text.special_tokens import BLANKS, DEFAULT_IDS, SPECIAL_TOKENS, SpecialIds, lowercase_table

LETTERS = r"<2[^ >]+>|[^ ]"  # of level "letter": tags and characters; RE2 reads it as Python does
# Pieces of a text that are normalized alone: a tag, Korean letters, a character with its combining marks.
_NORMALIZED_ALONE = re.compile("<2[^ >]+>|[\u1100-\u11ff]+|(?s:.)[\u0300-\u036f\u3099\u309a]*")
APOSTROPHES = "\u2018\u2019\u02bc\u0060\u00b4"  # other than "'"
_ACCENTED = (*range(0xC0, 0x250), *range(0x1E00, 0x1F00))  # Latin


class LookupModel:
    """A vocabulary of tokens, and the way in which a text is split into them.

    Args:
        level: "word", "symbol", "character" or "letter".
        vocabulary: list of str, one token for each id.
        character_table: dict of code points for `str.translate`, applied to the text before it is split.
        special_ids: The special ids of the vocabulary.
        unicode_form: "NFC" or "NFD", into which a text of level "letter" is brought before all else.
    """

    sentencepiece_model = None

    def __init__(
        self,
        level: str,
        vocabulary: list[str],
        character_table: dict[int, int | None],
        special_ids: SpecialIds = DEFAULT_IDS,
        unicode_form: str = "NFC",
    ):
        self._level = level
        self.unicode_form = unicode_form if level == "letter" else None
        self.vocabulary = vocabulary
        self.character_table = character_table
        self.special_ids = special_ids
        self.separator = "" if level == "character" else " "
        self._ids = {vocabulary[token_id]: token_id for token_id in special_ids.ordinary(len(vocabulary))}

    @staticmethod
    def table(level: str, lowercase: bool) -> dict[int, int | None]:
        """Returns the character table of `Tokenizer`: for words every blank is one separator."""
        blanks = {} if level == "character" else dict.fromkeys(map(ord, BLANKS), ord(" "))
        blanks.pop(ord(" "), None)
        return blanks | (lowercase_table() if lowercase else {})

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        level: str,
        size: int | None,
        min_frequency: int,
        lowercase: bool,
        tags: Sequence[str] = (),
    ) -> Self:
        """Counts tokens and keeps the most frequent ones; see `Tokenizer.train`."""
        table = cls.table(level, lowercase)
        splitter = cls(level, list(SPECIAL_TOKENS), table)
        counts = collections.Counter()
        for line in lines:
            counts.update(splitter.cut(line))
        first = [*SPECIAL_TOKENS, *tags]
        for token in first:
            counts.pop(token, None)
        tokens = sorted((t for t, n in counts.items() if n >= min_frequency), key=lambda t: (-counts[t], t))
        if not tokens:
            raise ValueError(
                f"Expected text with at least one {level} that occurs {min_frequency} times or more. Received: none"
            )
        kept = None if size is None else size - len(first)
        return cls(level, [*first, *tokens[:kept]], table)

    def extended(self, other: Self) -> Self:
        """Returns a model with the tokens of another behind its own; see `Tokenizer.extended`."""
        known = set(self.vocabulary)
        tokens = [other.vocabulary[token_id] for token_id in other.special_ids.ordinary(len(other.vocabulary))]
        longer = self._with(vocabulary=[*self.vocabulary, *(token for token in tokens if token not in known)])
        return longer.with_letters() if self._level == "letter" else longer

    def with_letters(self) -> Self:
        """Returns a model of level "letter" with this vocabulary; see `Tokenizer.with_letters`."""
        known = {self.vocabulary[token_id] for token_id in self.special_ids.ordinary(len(self.vocabulary))}
        letters = sorted(token for token in known if len(token) == 1)
        others = [token for token in known if len(token) > 1 and not re.fullmatch(LETTERS, token)]
        if others or not letters:
            raise ValueError(
                "Expected a vocabulary of single characters and tags such as '<2fr>'. Received: "
                f"{', '.join(sorted(others)[:9]) or 'no character'}"
            )
        composed = any(unicodedata.normalize("NFD", letter) != letter for letter in letters)
        pairs = (first + second for first in letters for second in letters)
        form = "NFC" if composed or all(unicodedata.normalize("NFC", pair) == pair for pair in pairs) else "NFD"
        table = self.table("letter", lowercase=not any(letter.isupper() for letter in letters))
        for code in [] if form == "NFD" else _ACCENTED:
            own = chr(table.get(code, code))
            if own not in known and (base := unicodedata.normalize("NFD", own)[0]) in known:
                table[code] = ord(base)
        if "'" in known:
            table |= {ord(other): ord("'") for other in APOSTROPHES if other not in known}
        return self._with(level="letter", character_table=table, unicode_form=form)

    def _with(self, **changes) -> Self:
        own = {"level": self._level, "vocabulary": self.vocabulary, "character_table": self.character_table}
        own |= {"special_ids": self.special_ids, "unicode_form": self.unicode_form}
        return type(self)(**own | changes)

    def encode(self, texts: list[str], threads: int | None = None) -> list[list[int]]:
        """Returns the ids of each text. One thread encodes, whatever `threads` is."""
        unknown = self.special_ids.unknown
        if unknown is None:
            return [[self._known(token) for token in self.cut(text)] for text in texts]
        return [[self._ids.get(token, unknown) for token in self.cut(text)] for text in texts]

    def cut(self, text: str) -> list[str]:
        """Returns the tokens of a text, one for each id."""
        if self.unicode_form:
            text = unicodedata.normalize(self.unicode_form, text)
        text = text.translate(self.character_table)
        if self._level == "letter":
            return re.findall(LETTERS, text)
        return [token for token in text.split(self.separator) if token] if self.separator else list(text)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the (start, end) of each token in the text."""
        if self._level == "letter":
            pieces = _NORMALIZED_ALONE.finditer(text)
            return [piece.span() for piece in pieces for _ in self.cut(piece[0])]
        token = re.compile(f"[^{self.separator}]+" if self.separator else "(?s:.)")
        spans = [match.span() for match in token.finditer(text.translate(self.character_table))]
        if None not in self.character_table.values():
            return spans
        kept = [
            place for place, character in enumerate(text) if self.character_table.get(ord(character), 0) is not None
        ]
        return [(kept[start], kept[end - 1] + 1) for start, end in spans]

    def join(self, ids: list[int], unknown: list[str]) -> str:
        """Returns the text of ids, with a string of `unknown` for each unknown id."""
        unknown = iter(unknown)
        return self.separator.join(next(unknown) if i == self.special_ids.unknown else self.vocabulary[i] for i in ids)

    def opens_word(self, token: str) -> bool:
        """Returns True if a word begins with this token."""
        return bool(self.separator) or token == " "

    def manifest(self) -> dict[str, Any]:
        """Returns what `tokenizer.json` records of this model."""
        table = {chr(key): "" if value is None else chr(value) for key, value in self.character_table.items()}
        special = self.special_ids
        own = special == DEFAULT_IDS and tuple(self.vocabulary[: len(SPECIAL_TOKENS)]) == SPECIAL_TOKENS
        foreign = {} if own else {"special_ids": special.get_config()}
        form = {"unicode_form": self.unicode_form} if self.unicode_form else {}
        return {"character_table": table, "vocabulary": self.vocabulary} | foreign | form

    @classmethod
    def restore(cls, manifest: dict[str, Any]) -> Self:
        """Returns the model that a `manifest` records; any error if it records none."""
        table = {ord(key): ord(value) if value else None for key, value in manifest["character_table"].items()}
        vocabulary = manifest["vocabulary"]
        special = SpecialIds(**manifest.get("special_ids", {}))
        special.check(len(vocabulary))
        if "special_ids" not in manifest and tuple(vocabulary[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
            raise ValueError("Expected the special tokens first.")
        form = manifest.get("unicode_form", "NFC")
        if form not in ("NFC", "NFD"):
            raise ValueError("Expected a Unicode form.")
        return cls(manifest["level"], vocabulary, table, special, form)

    def _known(self, token: str) -> int:
        if token not in self._ids:
            raise ValueError(
                "Expected tokens of the vocabulary, because it has no unknown token. "
                f"Received: {textwrap.shorten(token, 80)!r}"
            )
        return self._ids[token]


def visible_name(letter: str) -> str:
    """Returns a letter, or its code point if it is invisible or stands on another, such as "U+0301"."""
    shown = ((one, one.isprintable() and not unicodedata.combining(one)) for one in letter)
    return "".join(one if is_shown else f"U+{ord(one):04X}" for one, is_shown in shown)
