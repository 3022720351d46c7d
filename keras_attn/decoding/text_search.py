"""From text to text by a search: sentences in batches, and back as translations. It needs neither Keras nor a backend.

What computes is a subclass's: `Engine` compiles models of Keras, `keras_attn.runtime` runs graphs in ONNX.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from keras_attn.decoding.batching import Sentence, batches, encoded, search_inputs, token_ids_of
from keras_attn.decoding.checks import check_list, check_whole
from keras_attn.decoding.results import translations_of
from keras_attn.search import Limits, SampleOptions, SearchOptions, check_numbers
from keras_attn.text import Tokenizer, temporary_ids
from keras_attn.translation import Translation


class TextSearch:
    """Search from text to text. A subclass has the model, and overrides the four members that know it.

    For the arguments see `keras_attn.Translator`.
    """

    def __init__(
        self,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        max_length_ratio: float,
        max_length_constant: float,
    ):
        check_numbers(max_length_ratio=max_length_ratio, max_length_constant=max_length_constant)
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_length_ratio = max_length_ratio
        self.max_length_constant = max_length_constant

    @property
    def pointer(self) -> bool:
        """Whether the model copies words of the source; see `Seq2Seq`."""
        raise NotImplementedError

    @property
    def source_length(self) -> int | None:
        """The length that the model pads or cuts source rows to; see `Seq2Seq`."""
        raise NotImplementedError

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

    def generate(
        self,
        texts: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        replace_unknown: bool | Mapping[str, str] = False,
        return_alignments: bool = True,
        **options,
    ) -> list[Translation]:
        """Translates sentences by beam search, or by greedy search for `beam_size=1`.

        The result is in the order of `texts` and the same for any `batch_size`. Sentences are sorted by length and
        padded to a bounded set of shapes, so that nothing is compiled twice.

        Args:
            texts: Sentences. A blank one gives a `Translation` with the text "".
            prefixes: A text for each sentence that its translation begins with; "" for none.
            replace_unknown: Whether each `<unk>` of the text is replaced by the source word that it is aligned to; or
                a dictionary from source words to target words, by which these words are translated.
            return_alignments: Whether translations have alignments, the means of all heads. Search is a little quicker
                without. Each head's has `score(texts, [t.token_ids for t in translations], each_head=True)`.
            **options: The fields of `keras_attn.search.SearchOptions`: `beam_size`, `n_best`, `length_penalty`,
                `max_length`, `batch_size`, ...

        Returns:
            A `Translation` for each sentence. With `n_best` above 1 it is the best one, and its `n_best` has all.

        Raises:
            ValueError: if a text is not valid Unicode, an option is unknown, or a value is out of range; or if the
                model's logits are NaN.
        """
        options = SearchOptions.from_keywords(options)
        search = self._search_of(options)
        return self._search(texts, search, options, prefixes, replace_unknown, return_alignments)

    def limits(self, **lengths) -> Limits:
        """The lengths of translations that `generate` allows, given its `max_length`, `min_length_ratio`, ..."""
        return self._limits(SearchOptions.from_keywords(lengths))

    def _limits(self, options: SearchOptions | SampleOptions) -> Limits:
        ratio, constant = options.max_length_ratio, 0.0
        if options.max_length is None and ratio is None:
            ratio, constant = self.max_length_ratio, self.max_length_constant
        return Limits(options.max_length, ratio, constant, options.min_length, options.min_length_ratio)

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
    ) -> list[Translation]:
        texts = check_list("texts", texts)
        if not isinstance(replace_unknown, (bool, Mapping)):
            raise ValueError(
                f"Expected replace_unknown to be True, False or a dictionary. Received: {replace_unknown!r}"
            )
        dictionary = replace_unknown if isinstance(replace_unknown, Mapping) else {} if replace_unknown else None
        arguments = options.arguments_of(search)
        arguments["banned_token_ids"] = token_ids_of(self.target_tokenizer, options.banned_tokens)
        arguments["return_alignments"] = return_alignments or dictionary is not None
        sentences = self._sentences(texts, self._limits(options), prefixes, row_ids)
        results = [Translation("")] * len(sentences)
        source_lengths = [len(sentence.token_ids) for sentence in sentences]
        for rows, shape in batches(source_lengths, options.batch_size, options.tokens_per_batch):
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
        words = [temporary_ids(self.source_tokenizer, text) if self.pointer else {} for text in texts]
        source_ids = [self._source_row(ids) for ids in encoded(self.source_tokenizer, texts, words)]
        prefixes = [""] * len(texts) if prefixes is None else check_list("prefixes", prefixes, len(texts))
        prefix_ids = encoded(self.target_tokenizer, prefixes, words)
        row_ids = range(len(texts)) if row_ids is None else check_list("row_ids", row_ids, len(texts))
        check_whole(row_ids=row_ids)
        return [
            Sentence(text, ids, limits.longest(len(ids)), limits.shortest(len(ids)), *rest)
            for text, ids, *rest in zip(texts, source_ids, prefix_ids, prefixes, row_ids, words, strict=True)
        ]

    def _source_row(self, ids: list[int]) -> list[int]:
        """The ids of a text and the end, cut to what the model reads; nothing for a blank text."""
        special, most = self.source_tokenizer.special_ids, self.source_length
        kept = None if most is None else most - len(special.with_end([]))
        return special.with_end(ids[:kept]) if ids else []

    def _translations(self, sentence: Sentence, result: dict[str, np.ndarray], dictionary=None) -> list[Translation]:
        return translations_of(sentence, result, self.source_tokenizer, self.target_tokenizer, dictionary)
