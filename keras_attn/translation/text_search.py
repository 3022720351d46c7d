"""From text to text by a search: sentences in batches, and back as translations. Needs neither Keras nor a backend.

A subclass computes: `Translator` compiles models of Keras, `keras_attn.runtime` runs graphs in ONNX.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from keras_attn.search import Limits, SampleOptions, SearchOptions, banned_ids, check_numbers, check_sizes
from keras_attn.text import BLANKS, Tokenizer, temporary_ids, visible_name, without_temporary_ids
from keras_attn.translation.batching import (
    Sentence,
    batches,
    check_list,
    check_whole,
    encoded,
    search_inputs,
    token_ids_of,
)
from keras_attn.translation.results import Translation

_MARGIN = 2  # times the longest text of training, up to which a longer source allows a longer translation
_UNKNOWN_TRAINED_LENGTH = 500  # tokens, for a model without `trained_length`


class TextSearch:
    """Search from text to text. A subclass has the model, and overrides the two methods that know it.

    Args:
        source_tokenizer, target_tokenizer: See `keras_attn.Translator`.
        max_length_ratio, max_length_constant, trained_length: See there.
        pointer, source_length: The model's, see `keras_attn.models.Seq2Seq`.
    """

    _least_alone: int | None = None  # source tokens of a batch of one sentence, see `batches`

    def __init__(
        self,
        source_tokenizer: Tokenizer | None,
        target_tokenizer: Tokenizer,
        max_length_ratio: float,
        max_length_constant: float,
        trained_length: int | None,
        *,
        pointer: bool,
        source_length: int | None,
    ):
        check_numbers(max_length_ratio=max_length_ratio, max_length_constant=max_length_constant)
        if trained_length is not None:
            check_sizes(trained_length=trained_length)
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_length_ratio = max_length_ratio
        self.max_length_constant = max_length_constant
        self.trained_length = trained_length
        self.pointer = pointer
        self.source_length = source_length

    @property
    def length_arguments(self) -> dict[str, float | int | None]:
        """The arguments of the constructor from which the longest translations follow."""
        names = "max_length_ratio", "max_length_constant", "trained_length"
        return {name: getattr(self, name) for name in names}

    @property
    def counted_source_length(self) -> int:
        """Source tokens that count for the longest translation, unless an argument of the search gives that."""
        return _MARGIN * (self.trained_length or _UNKNOWN_TRAINED_LENGTH)

    def _search_of(self, options: SearchOptions) -> Callable:
        """The function of these options, whose keyword arguments are among their fields."""
        raise NotImplementedError

    def _searched(
        self, search: Callable, inputs: Mapping[str, np.ndarray], longest: int, count: int, **arguments: Any
    ) -> Mapping[str, np.ndarray]:
        """The arrays of a `SearchResult` by name.

        Args:
            search: The function.
            inputs, longest: From `search_inputs`.
            count: The rows that are sentences; the others fill the batch, and their results are not read.
            arguments: Of `search`.
        """
        raise NotImplementedError

    def _from_arrays(self, source: Any, prefixes: Sequence[str] | None, **options: Any) -> list[Translation]:
        """Translations of a source that is no text."""
        raise NotImplementedError

    @overload
    def generate(self, texts: str, **options: Any) -> Translation: ...

    @overload
    def generate(self, texts: Sequence[str], **options: Any) -> list[Translation]: ...

    def generate(
        self,
        texts: str | Sequence[str],
        *,
        prefixes: str | Sequence[str] | None = None,
        replace_unknown: bool | Mapping[str, str] = False,
        return_alignments: bool = True,
        logits_processor: Callable | None = None,
        **options,
    ) -> Translation | list[Translation]:
        """Translates sentences by beam search, or by greedy search for `beam_size=1`.

        The result is in the order of `texts` and the same for any `batch_size`. Sentences are sorted by length and
        padded to a bounded set of shapes, so that nothing is compiled twice.

        Args:
            texts: A sentence, or a list of them. A blank one gives a `Translation` with the text "".
            prefixes: A text for each sentence that its translation begins with; "" for none.
            replace_unknown: True replaces each `<unk>` of the text by the source word that it is aligned to; a
                dictionary from source words to target words also translates these words.
            return_alignments: Adds alignments, the means of all heads, to translations. Search is a little quicker
                without. Each head's has `score(texts, [t.token_ids for t in translations], each_head=True)`.
            logits_processor: Changes the logits of each step, such as `keras_attn.search.ShallowFusion`; see
                `keras_attn.search.beam_search`.
            **options: The fields of `keras_attn.search.SearchOptions`: `beam_size`, `n_best`, `length_penalty`,
                `max_length`, `batch_size`, ...

        Returns:
            A `Translation` for a sentence, a list of them for a list. With `n_best` above 1 it is the best one, and its
            `n_best` has all.

        Raises:
            ValueError: if a text is not valid Unicode, an option is unknown, or a value is out of range; or if the
                model's logits are NaN.
        """
        if self.source_tokenizer is None:
            settings = {"replace_unknown": replace_unknown, "return_alignments": return_alignments}
            return self._from_arrays(texts, prefixes, **settings, logits_processor=logits_processor, **options)
        options = SearchOptions.from_keywords(options)
        search = self._search_of(options)
        is_one = isinstance(texts, str)
        if is_one:
            prefixes = prefixes if prefixes is None else [prefixes]
            texts = [texts]
        settings = replace_unknown, return_alignments
        found = self._search(texts, search, options, prefixes, *settings, logits_processor=logits_processor)
        return found[0] if is_one else found

    def limits(self, **lengths) -> Limits:
        """The lengths of translations that `generate` allows, given its `max_length`, `min_length_ratio`, ..."""
        return self._limits(SearchOptions.from_keywords(lengths))

    def _limits(self, options: SearchOptions | SampleOptions) -> Limits:
        longest, ratio, constant = options.max_length, options.max_length_ratio, 0.0
        if longest is None and ratio is None:
            ratio, constant = self.max_length_ratio, self.max_length_constant
            longest = Limits(None, ratio, constant).longest(self.counted_source_length)
        return Limits(longest, ratio, constant, options.min_length, options.min_length_ratio)

    def _warn_of_long_sources(self, sentences: Sequence[Sentence], limit: int) -> None:
        most = self.counted_source_length
        if count := sum(len(sentence.token_ids) > most for sentence in sentences):
            trained = f"trained with up to {self.trained_length:,}" if self.trained_length else "of unknown training"
            warnings.warn(
                f"Expected sources of at most {most:,} tokens for a model {trained}. Received {count:,} longer ones: "
                f"their translations have at most {limit:,} tokens. `max_length` or `max_length_ratio` allows more.",
                stacklevel=4,
            )

    def _search(
        self,
        texts: Sequence[str],
        search: Callable,
        options: SearchOptions | SampleOptions,
        prefixes: Sequence[str] | None,
        replace_unknown: bool | Mapping[str, str],
        return_alignments: bool,
        seed: int | None = None,
        row_ids: Sequence[int] | None = None,
        logits_processor: Callable | None = None,
    ) -> list[Translation]:
        texts = check_list("texts", texts)
        if not isinstance(replace_unknown, (bool, Mapping)):
            raise ValueError(
                f"Expected replace_unknown to be True, False or a dictionary. Received: {replace_unknown!r}"
            )
        dictionary = replace_unknown if isinstance(replace_unknown, Mapping) else {} if replace_unknown else None
        arguments = options.arguments_of(search)
        banned, special = token_ids_of(self.target_tokenizer, options.banned_tokens), self.target_tokenizer.special_ids
        arguments["banned_token_ids"] = banned_ids(banned, self.target_tokenizer.vocabulary_size, special.end)
        arguments["return_alignments"] = return_alignments or dictionary is not None
        if logits_processor is not None:
            arguments["logits_processor"] = logits_processor
        limits = self._limits(options)
        sentences = self._sentences(texts, limits, prefixes, row_ids)
        if options.max_length is None and options.max_length_ratio is None and self.max_length_ratio:
            self._warn_of_long_sources(sentences, limits.max_length)
        results = [Translation("")] * len(sentences)
        source_lengths = [len(sentence.token_ids) for sentence in sentences]
        sizes = options.batch_size, options.tokens_per_batch
        for rows, shape in batches(source_lengths, *sizes, self._least_alone):
            ids = self.source_tokenizer.special_ids, self.target_tokenizer.special_ids
            inputs, longest = search_inputs([sentences[row] for row in rows], shape, seed, ids)
            outputs = self._searched(search, inputs, longest, len(rows), **arguments)
            for i, row in enumerate(rows):
                several = self._translations(sentences[row], {k: v[i] for k, v in outputs.items()}, dictionary)
                if not return_alignments:
                    several = [replace(translation, alignment=None) for translation in several]
                many = len(outputs["lengths"][i]) > 1
                results[row] = replace(several[0], n_best=tuple(several)) if many else several[0]
        return results

    def _sentences(
        self,
        texts: Sequence[str],
        limits: Limits,
        prefixes: Sequence[str] | None = None,
        row_ids: Sequence[int] | None = None,
    ) -> list[Sentence]:
        """Each text with its ids, limits, prefix and number."""
        oov = [temporary_ids(self.source_tokenizer, text) if self.pointer else {} for text in texts]
        source_ids = [self._source_row(ids) for ids in encoded(self.source_tokenizer, texts, oov)]
        if self.source_tokenizer.level == "letter":
            _warn_of_unknown(self.source_tokenizer, texts, source_ids)
        prefixes = [""] * len(texts) if prefixes is None else check_list("prefixes", prefixes, len(texts))
        prefix_ids = encoded(self.target_tokenizer, prefixes, oov)
        row_ids = range(len(texts)) if row_ids is None else check_list("row_ids", row_ids, len(texts))
        check_whole(row_ids=row_ids)
        return [
            Sentence(text, ids, limits.longest(len(ids)), limits.shortest(len(ids)), *rest)
            for text, ids, *rest in zip(texts, source_ids, prefix_ids, prefixes, row_ids, oov, strict=True)
        ]

    def _source_row(self, ids: list[int]) -> list[int]:
        """The ids of a text and the end, cut to what the model reads; nothing for a blank text."""
        special, most = self.source_tokenizer.special_ids, self.source_length
        kept = None if most is None else most - len(special.with_end([]))
        return special.with_end(ids[:kept]) if ids else []

    def _translations(
        self, sentence: Sentence, result: Mapping[str, np.ndarray], dictionary: Mapping[str, str] | None = None
    ) -> list[Translation]:
        """The hypotheses of one sentence; fewer may exist than were requested, but there is always one, if empty.

        Args:
            sentence: The source sentence.
            result: Its row of each array of a `SearchResult`.
            dictionary: Replaces each unknown token by the source word that it is aligned to, translated by this
                dictionary if it has that word. None: unknown tokens stay.
        """
        source_tokens = _tokens(sentence, sentence.token_ids, self.source_tokenizer)
        translations = []
        for n in np.flatnonzero(result["lengths"]) if result["lengths"].any() else [0]:
            length = result["lengths"][n]
            ids = [int(i) for i in result["token_ids"][n, :length]]
            alignment = result.get("alignments")
            if alignment is not None:
                alignment = alignment[n, :length, : len(source_tokens)].copy()  # (T, S)
            heads = result.get("head_alignments")
            if heads is not None:
                heads = heads[n, :length, :, : len(source_tokens)].swapaxes(0, 1).copy()  # (heads, T, S)
            translation = Translation(
                text=self._text(sentence, ids, alignment, dictionary),
                tokens=_tokens(sentence, ids, self.target_tokenizer),
                token_ids=tuple(ids),
                score=float(result["scores"][n]),
                token_log_probs=result["token_log_probs"][n, :length].copy(),
                alignment=alignment,
                source_tokens=source_tokens,
                source_token_ids=tuple(sentence.token_ids),
                head_alignments=heads,
            )
            translations.append(translation)
        return translations

    def _text(
        self,
        sentence: Sentence,
        ids: list[int],
        alignment: np.ndarray | None,
        dictionary: Mapping[str, str] | None,
    ) -> str:
        """The text of a hypothesis, with copied words, replaced unknown tokens and the prefix as it was given."""
        target = self.target_tokenizer
        words_of_ids = {token_id: word for word, token_id in sentence.oov.items()}
        copied = {position: words_of_ids[token_id] for position, token_id in enumerate(ids) if token_id in words_of_ids}
        ids = without_temporary_ids(target, ids)
        positions = [position for position, token_id in enumerate(ids) if token_id == target.special_ids.unknown]
        if not positions or (dictionary is None and not copied and positions[0] >= len(sentence.prefix)):
            return target.decode(ids)
        words = [target.unknown_token] * len(positions)
        if dictionary is not None:
            source_ids = without_temporary_ids(self.source_tokenizer, sentence.token_ids)
            source = self.source_tokenizer, source_ids
            words = words_for_unknown(sentence.text, source, (target, ids), alignment, dictionary)
        pieces = copied | dict(enumerate(target.pieces(sentence.prefix_text)[: len(sentence.prefix)]))
        words = [pieces.get(position, word) for position, word in zip(positions, words, strict=True)]
        return target.decode(ids, words)


def _tokens(sentence: Sentence, ids: Sequence[int], tokenizer: Tokenizer) -> tuple[str, ...]:
    """The vocabulary's entry of each id; of an extended-vocabulary id, the word."""
    words = {token_id: word for word, token_id in sentence.oov.items()}
    known = tokenizer.tokens(without_temporary_ids(tokenizer, ids))
    return tuple(words.get(token_id, token) for token_id, token in zip(ids, known, strict=True))


def words_for_unknown(
    text: str,
    source: tuple[Tokenizer, Sequence[int]],
    target: tuple[Tokenizer, Sequence[int]],
    alignment: np.ndarray,
    dictionary: Mapping[str, str],
) -> list[str]:
    """The replacement of each unknown id of a translation, in their order, for `Tokenizer.decode`.

    An unknown word is replaced by the source word with the largest alignment weight, or by that word's entry in the
    dictionary (Luong et al. 2015, arXiv:1410.8206, section 3; by attention as in Jean et al. 2015, arXiv:1412.2007,
    and Luong, Pham & Manning 2015, arXiv:1508.04025). The word is a substring of the raw source text, with its case
    and its characters, whatever the tokenizer knows. An unknown id that is only part of a word (a rare character
    among pieces) is replaced by the text of the aligned source id, not by the whole word.

    Args:
        text: The source sentence.
        source: Its tokenizer, and its ids with the end token.
        target: Tokenizer and ids of the translation.
        alignment: `(T, S)`. A row without weight on any word leaves the unknown token.
        dictionary: From source words to target words; source words as in the text or, for a tokenizer that
            lower-cases, in lower case. Words that are not in it are copied.
    """
    words, parts = _source_words(text, *source)
    read = len(source[1]) - (source[0].special_ids.end in source[1][-1:])  # of a source that was cut, fewer than words
    tokenizer, ids = target
    unknown, surface = tokenizer.special_ids.unknown, tokenizer.unknown_token
    whole = {position for word, group in tokenizer.words(ids) if word == surface for position in group}
    replacements = []
    for position in np.flatnonzero(np.asarray(ids) == unknown):
        weights = alignment[position, : min(len(words), read)]  # without the end token
        is_aligned = bool(weights.size) and weights.max() > 0
        word = (words if position in whole else parts)[int(weights.argmax())] if is_aligned else ""
        lower = word.lower() if source[0].lowercase else word
        replacements.append(dictionary.get(word, dictionary.get(lower, word)) if word else surface)
    return replacements


def _warn_of_unknown(tokenizer: Tokenizer, texts: Sequence[str], rows: Sequence[Sequence[int]]) -> None:
    """Warns of letters that the model has not seen, whose sounds it can only guess."""
    unknown = tokenizer.special_ids.unknown
    strange = [(text, ids) for text, ids in zip(texts, rows, strict=True) if unknown in ids]
    pieces = {
        piece for text, ids in strange for piece, i in zip(tokenizer.pieces(text), ids, strict=False) if i == unknown
    }
    if pieces:
        warnings.warn(
            f"Expected letters that the model has seen. Received {len(strange):,} texts with others: "
            f"{' '.join(map(visible_name, sorted(pieces)))[:200]}",
            stacklevel=5,
        )


def _source_words(text: str, tokenizer: Tokenizer, token_ids: Sequence[int]) -> tuple[list[str], list[str]]:
    """For each source id but the end token: the word of the text to which it belongs, and its own text."""
    spans = tokenizer.spans(text)
    words = [""] * len(spans)
    for _, group in tokenizer.words(token_ids[: len(spans)]):
        word = text[spans[group[0]][0] : spans[group[-1]][1]].strip(BLANKS)
        for position in group:
            words[position] = word
    parts = [text[start:end].strip(BLANKS) or word for (start, end), word in zip(spans, words, strict=True)]
    return words, parts
