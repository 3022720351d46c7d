"""Links between the words of a text and those of its translation, from the alignment of their tokens."""

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_attn.markup import words_of
from keras_attn.plots import merge_alignment
from keras_attn.text import without_temporary_ids
from keras_attn.translation import Translation

if TYPE_CHECKING:
    from keras_attn.text import Tokenizer

Span = tuple[int, int]


def linked_words(
    translation: Translation, text: str, words: Sequence[Span], tokenizers: tuple["Tokenizer", "Tokenizer"]
) -> list[tuple[Span, int]]:
    """Returns the span of each word of a translation, and the number of the source word that it attends to most.

    Words are those of `keras_attn.markup.words_of`, whose tokens `merge_alignment` merges. Of words with equal weights,
    such as those that share a token, one that is the same word is chosen. The number is -1 for a word without weight on
    any source word. If no word has any, because the model has no attention, words are linked by
    their position in the sentence.

    Args:
        translation: A translation with its alignment.
        text: Its source.
        words: The words of the source.
        tokenizers: Of source and target.
    """
    targets = words_of(translation.text)
    groups = _groups(tokenizers[0].spans(text)[: len(translation.source_token_ids)], words)
    target_groups = _groups(_target_spans(translation, tokenizers[1]), targets)
    sources = [-1] * len(targets)
    known = [number for number, group in enumerate(groups) if group]
    found = [number for number, group in enumerate(target_groups) if group]
    if known and found:
        weights = merge_alignment(translation.alignment, [groups[n] for n in known], [target_groups[n] for n in found])
        for number, row in zip(found, weights, strict=True):
            heaviest = [known[place] for place in np.flatnonzero(row == row.max())] if row.max() > 0 else []
            word = translation.text[slice(*targets[number])]
            alike = [source for source in heaviest if text[slice(*words[source])] == word] or heaviest[:1]
            after = sources[number - 1] + 1
            sources[number] = after if after in alike else alike[0] if alike else -1
    if words and max(sources, default=0) < 0:
        sources = [number * len(words) // len(targets) for number in range(len(targets))]
    if words and targets and _is_sign(translation.text[slice(*targets[-1])], text[slice(*words[-1])]):
        sources[-1] = len(words) - 1
    return list(zip(targets, sources, strict=True))


def _is_sign(word: str, other: str) -> bool:
    return word == other and not word.isalnum()


def _groups(spans: Sequence[Span], words: Sequence[Span]) -> list[list[int]]:
    """Returns for each word the numbers of the tokens that have a character of it. Both lists are in order."""
    groups, first = [], 0
    for start, end in words:
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        overlapping = itertools.takewhile(lambda number, end=end: spans[number][0] < end, range(first, len(spans)))
        groups.append([number for number in overlapping if spans[number][1] > start])
    return groups


def _target_spans(translation: Translation, tokenizer: "Tokenizer") -> list[Span]:
    """Returns the span of each token in the text of a translation; tokens that cannot be told apart share one.

    The text may differ from what the ids say, where unknown words were replaced.
    """
    text, ids = translation.text, without_temporary_ids(tokenizer, translation.token_ids)
    places = [found.span() for found in re.finditer("[^ ]+", text)]
    words = [(word, group) for word, group in tokenizer.words(ids) if ids[group[0]] != tokenizer.special_ids.end]
    whole = [text[start:end] for start, end in places]
    spans: list[Span] = []
    if len(words) == len(places):
        located = places
    else:  # a replacement with blanks: what is between the known words at both ends has one place
        pairs = [word for word, _ in words]
        head = _common(pairs, whole)
        tail = min(_common(pairs[::-1], whole[::-1]), len(words) - head, len(places) - head)
        middle = places[head : len(places) - tail]
        region = (middle[0][0], middle[-1][1]) if middle else (len(text), len(text))
        if not middle and head < len(places):
            region = (places[head][0], places[head][0])
        located = [*places[:head], *[region] * (len(words) - head - tail), *places[len(places) - tail :]]
    for (_, group), (start, end) in zip(words, located, strict=True):
        pieces = [tokenizer.decode([ids[position]]).strip(" ") for position in group]
        spans += _piece_spans(pieces, text, start, end) if len(pieces) > 1 else [(start, end)]
    return spans


def _piece_spans(pieces: Sequence[str], text: str, start: int, end: int) -> list[Span]:
    """Returns the span of each piece of the word text[start:end]: of those that are known from either end, their own.

    What is between them, such as unknown characters and single bytes, has a character each if there are as many, or
    else one span.
    """
    first, last, head, tail = 0, len(pieces), [], []
    while first < last and text.startswith(pieces[first], start, end):
        head.append((start, start + len(pieces[first])))
        start, first = head[-1][1], first + 1
    while first < last and text.endswith(pieces[last - 1], start, end):
        tail.append((end - len(pieces[last - 1]), end))
        end, last = tail[-1][0], last - 1
    characters = [(place, place + 1) for place in range(start, end)]
    middle = characters if len(characters) == last - first else [(start, end)] * (last - first)
    return [*head, *middle, *reversed(tail)]


def _common(words: Sequence[str], others: Sequence[str]) -> int:
    """Returns how many words two lists have in common at their beginning."""
    pairs = zip(words, others, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
