"""A stretch of text that is translated as a whole, with the tags in it."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from keras_attn.markup.words import words_of
from keras_attn.text import BLANKS


class Tag(NamedTuple):
    """A tag of a unit: one half of an element, or a point, which has no content and no partner."""

    written: str
    partner: int  # the number of the other half; its own for a point
    gap: int  # the number of atoms before it
    blank_before: bool  # whether a blank is between it and the word or point before it
    blank_after: bool


class Unit(NamedTuple):
    """A text without its tags, and where they are.

    An atom is a word or a sign (see `words_of`), or a part of a word where a tag stands inside a word. The gaps
    between atoms, with one before the first and one after the last, contain blanks and tags.

    Example:
        >>> (unit,) = keras_attn.markup.read_text("Two  dogs.").units
        >>> unit.text, [unit.text[start:end] for start, end in unit.words]
        ('Two dogs.', ['Two', 'dogs', '.'])
    """

    text: str  # every run of blanks is one blank, and there is none at either end
    written: Sequence[str]  # each character of the text as the source has it
    words: Sequence[tuple[int, int]]  # (start, end) in the text
    atoms: Sequence[tuple[int, int]]  # the same for atoms
    first_atoms: Sequence[int]  # of each word, and the number of atoms
    gaps: Sequence[Sequence[str | int]]  # blanks, and the numbers of tags
    tags: Sequence[Tag]  # in the order of the text


class UnitBuilder:
    """Collects the characters and the tags of a unit in their order."""

    def __init__(self):
        self._text: list[str] = []
        self._written: list[str] = []
        self._items: list[tuple[int, str | int]] = []  # the length of the text before each blank and each tag
        self._tags: list[tuple[str, int, int]] = []
        self._is_open = False  # whether a blank must precede the next character

    def add_text(self, characters: Iterable[tuple[str, str]]) -> None:
        """Adds characters, each with the string by which it is written."""
        for character, written in characters:
            if character in BLANKS:
                self._items.append((len(self._text), written))
                self._is_open = bool(self._text)
                continue
            if self._is_open:
                self._text.append(" ")
                self._written.append(" ")
                self._is_open = False
            self._text.append(character)
            self._written.append(written)

    def add_tag(self, written: str, key: int = -1, partner: int = -1) -> None:
        """Adds a tag. Halves of an element have keys, and each the other's key as partner."""
        self._items.append((len(self._text), len(self._tags)))
        self._tags.append((written, key, partner))

    @property
    def has_words(self) -> bool:
        """Whether there is anything to translate."""
        return any(character.isalnum() for character in self._text)

    def build(self) -> Unit:
        """Returns the unit."""
        text = "".join(self._text)
        words = words_of(text)
        cuts = {length for length, item in self._items if not isinstance(item, str)}
        atoms, first_atoms = [], []
        for start, end in words:
            first_atoms.append(len(atoms))
            inner = [place for place in range(start + 1, end) if place in cuts]
            atoms += itertools.pairwise([start, *inner, end])
        gap_of = {0: 0} | {end: number for number, (_, end) in enumerate(atoms, start=1)}
        gaps = [[] for _ in range(len(atoms) + 1)]
        for length, item in self._items:
            gaps[gap_of[length]].append(item)
        return Unit(text, self._written, words, atoms, [*first_atoms, len(atoms)], gaps, self._numbered(gaps))

    def _numbered(self, gaps: list[list[str | int]]) -> list[Tag]:
        numbers = {key: number for number, (_, key, _) in enumerate(self._tags) if key >= 0}
        partners = [numbers.get(partner, number) for number, (_, _, partner) in enumerate(self._tags)]
        before, after = [False] * len(partners), [False] * len(partners)
        for items in gaps:
            for flags, ordered in ((before, items), (after, reversed(items))):
                is_apart = False
                for item in ordered:
                    if isinstance(item, str):
                        is_apart = True
                        continue
                    flags[item] = is_apart
                    is_apart = is_apart and partners[item] != item
        places = [gap for gap, items in enumerate(gaps) for item in items if not isinstance(item, str)]
        texts = [written for written, _, _ in self._tags]
        return list(map(Tag, texts, partners, places, before, after))
