"""Texts with markup, placeholders or several sentences: cut into sentences, and their translations put together."""

import heapq
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from keras_attn.decoding.word_links import Span, linked_words
from keras_attn.markup import (
    Document,
    TargetWord,
    Unit,
    check_sentence_splitter,
    read_html,
    read_text,
    sentences_of,
    with_tags,
)
from keras_attn.text import checked_text
from keras_attn.translation import Translation

if TYPE_CHECKING:
    from keras_attn.text import Tokenizer


class Documents:
    """Texts as `TextSearch.generate` takes them, with the same arguments. `sentences` are to be translated.

    Raises:
        ValueError: If an argument is not as `generate` says.
        ModuleNotFoundError: If sentences are to be split and sentencex is not installed.
    """

    def __init__(self, texts: Sequence[str], markup: str | None, placeholders: str | None, split_sentences: str | None):
        if markup not in (None, "html"):
            raise ValueError(f'Expected markup to be "html" or None. Received: {markup!r}')
        for name, value in (("placeholders", placeholders), ("split_sentences", split_sentences)):
            if value is not None and not (isinstance(value, str) and value):
                raise ValueError(f"Expected {name} to be a string or None. Received: {value!r}")
        try:
            pattern = re.compile(placeholders) if placeholders else None
        except re.error as error:
            raise ValueError(
                f"Expected placeholders to be a regular expression. Received: {placeholders!r}, {error}"
            ) from None
        if split_sentences:
            check_sentence_splitter(split_sentences)
        read = read_html if markup else read_text
        self.documents: list[Document] = [read(checked_text(text), pattern) for text in texts]
        self._spans = [[_sentence_spans(unit, split_sentences) for unit in one.units] for one in self.documents]
        self.sentences = [
            unit.text[start:end]
            for document, spans in zip(self.documents, self._spans, strict=True)
            for unit, own in zip(document.units, spans, strict=True)
            for start, end in own
        ]

    def joined(
        self,
        translations: Sequence[Translation],
        tokenizers: tuple["Tokenizer", "Tokenizer"],
        n_best: int,
        return_alignments: bool,
    ) -> list[Translation]:
        """Returns the translation of each text.

        Args:
            translations: Of the sentences, with alignments.
            tokenizers: Of source and target.
            n_best: The number of hypotheses of a text.
            return_alignments: Whether translations keep their alignments.
        """
        waiting, results = iter(translations), []
        for document, spans in zip(self.documents, self._spans, strict=True):
            own = list(itertools.islice(waiting, sum(map(len, spans))))
            several = []
            for hypothesis in _hypotheses(own, n_best):
                text = _text(document, spans, hypothesis, tokenizers)
                if not return_alignments:
                    hypothesis = [replace(one, alignment=None, n_best=()) for one in hypothesis]
                several.append(_joined(text, hypothesis))
            results.append(replace(several[0], n_best=tuple(several)) if n_best > 1 else several[0])
        return results


def _sentence_spans(unit: Unit, language: str | None) -> list[Span]:
    return sentences_of(unit.text, language) if language else [(0, len(unit.text))]


def _hypotheses(translations: list[Translation], n_best: int) -> list[list[Translation]]:
    """Returns the `n_best` best choices of a hypothesis for each sentence, by the sum of their scores."""
    best: list[tuple[float, tuple]] = [(0.0, ())]  # each choice as a pair of the one before it and a hypothesis
    for translation in translations:
        longer = (
            (score + one.score, (rest, one)) for score, rest in best for one in translation.n_best or (translation,)
        )
        best = heapq.nlargest(n_best, longer, key=lambda pair: pair[0])
    return [list(_unrolled(chain))[::-1] for _, chain in best]


def _unrolled(chain: tuple) -> Iterator[Translation]:
    while chain:
        chain, last = chain
        yield last


def _joined(text: str, sentences: list[Translation]) -> Translation:
    if len(sentences) == 1:
        return replace(sentences[0], text=text, n_best=(), sentences=tuple(sentences))
    log_probs = [one.token_log_probs for one in sentences if one.token_log_probs is not None]
    return Translation(
        text,
        tokens=tuple(itertools.chain(*(one.tokens for one in sentences))),
        token_ids=tuple(itertools.chain(*(one.token_ids for one in sentences))),
        score=float(sum(one.score for one in sentences)),
        token_log_probs=np.concatenate(log_probs) if log_probs else None,
        source_tokens=tuple(itertools.chain(*(one.source_tokens for one in sentences))),
        source_token_ids=tuple(itertools.chain(*(one.source_token_ids for one in sentences))),
        sentences=tuple(sentences),
    )


def _text(document: Document, spans: list[list[Span]], translations: list[Translation], tokenizers: tuple) -> str:
    """Returns the text of a document whose sentences have these translations."""
    waiting, units = iter(translations), iter(spans)
    parts = []
    for part in document.parts:
        if isinstance(part, str):
            parts.append(part)
            continue
        own = next(units)
        words = _target_words(part, own, list(itertools.islice(waiting, len(own))), tokenizers)
        parts.append(with_tags(part, words, document.escape))
    return "".join(parts)


def _target_words(unit: Unit, spans: list[Span], translations: list[Translation], tokenizers) -> list[TargetWord]:
    words, first = [], 0  # first: the number of the source word with which the sentence begins
    for (start, end), translation in zip(spans, translations, strict=True):
        sources = list(itertools.takewhile(lambda word, end=end: word[0] < end, unit.words[first:]))
        own = [(low - start, high - start) for low, high in sources]
        last, text = 0, translation.text
        for n, ((low, high), source) in enumerate(linked_words(translation, unit.text[start:end], own, tokenizers)):
            source = first + source if source >= 0 else -1
            words.append(TargetWord(text[low:high], source, text[last:low] if n else "", -1 if n else first))
            last = high
        first += len(sources)
    return words
