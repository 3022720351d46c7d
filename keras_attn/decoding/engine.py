"""Sentences through a model: cut into batches, searched or scored by a compiled model, and read as translations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from keras_attn.decoding.batching import Limits, Sentence, batches, check_sizes, padded, search_inputs
from keras_attn.decoding.search_models import ScoreModel, SearchModel, beam_or_greedy, check_options, token_ids_of
from keras_attn.decoding.unk_replacement import words_for_unknown
from keras_attn.models import Seq2Seq
from keras_attn.search import beam_search
from keras_attn.text import BLANKS, END_ID, PAD_ID, SPECIAL_TOKENS, START_ID, UNKNOWN_ID, Tokenizer
from keras_attn.translation import Translation


class Decoding:
    """A model with its tokenizers, and what was compiled of it so far.

    Arguments:
        model, source_tokenizer, target_tokenizer, max_length_ratio, max_length_constant: As in `Translator`.
    """

    def __init__(
        self,
        model: Seq2Seq,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        max_length_ratio: float,
        max_length_constant: float,
    ):
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_length_ratio = max_length_ratio
        self.max_length_constant = max_length_constant
        self._models: dict[tuple, SearchModel | ScoreModel] = {}

    def limits(self, max_length=None, max_length_ratio=None, min_length=None, min_length_ratio=None) -> Limits:
        """What is asked for; where nothing is said of the longest output, the translator's own limit."""
        constant = 0.0
        if max_length is None and max_length_ratio is None:
            max_length_ratio, constant = self.max_length_ratio, self.max_length_constant
        return Limits(max_length, max_length_ratio, constant, min_length, min_length_ratio)

    def search(
        self,
        texts: Sequence[str],
        function: Callable,
        options: dict[str, Any],
        seed: int | None,
        row_ids: Sequence[int] | None,
        /,  # so that a user's option of one of these names is refused as any other
        *,
        batch_size: int = 64,
        tokens_per_batch: int = 8192,
        max_length: int | None = None,
        max_length_ratio: float | None = None,
        min_length: int | None = None,
        min_length_ratio: float | None = None,
        prefixes: Sequence[str] | None = None,
        banned_tokens: Sequence[str | int] = (),
        replace_unknown: bool | Mapping[str, str] = False,
        return_alignments: bool = True,
        **search_options,
    ) -> list[Translation]:
        """What `function` of `keras_attn.search` finds for each text.

        `options` are the caller's for `function`, `search_options` those of its user; `row_ids` and `seed` are for a
        function that draws, and the other arguments those of `Translator.generate`.
        """
        texts = _listed("texts", texts)
        check_sizes(batch_size=batch_size, tokens_per_batch=tokens_per_batch)
        if not isinstance(replace_unknown, (bool, Mapping)):
            raise ValueError(
                f"Expected replace_unknown to be True, False or a dictionary. Received: {replace_unknown!r}"
            )
        dictionary = replace_unknown if isinstance(replace_unknown, Mapping) else {} if replace_unknown else None
        options = check_options(function, search_options, options) | options
        options["banned_token_ids"] = token_ids_of(self.target_tokenizer, banned_tokens)
        options["return_alignments"] = return_alignments or dictionary is not None
        limits = self.limits(max_length, max_length_ratio, min_length, min_length_ratio)
        sentences = self._sentences(texts, limits, prefixes, row_ids)
        if function is beam_search:
            function, options = beam_or_greedy(options)
        results = [Translation("")] * len(sentences)
        for rows, shape in batches([len(s.token_ids) for s in sentences], batch_size, tokens_per_batch):
            inputs, longest = search_inputs([sentences[row] for row in rows], shape, seed)
            found = self._compiled(SearchModel, function, longest, **options).predict_on_batch(inputs)
            for i, row in enumerate(rows):
                several = self._translations(sentences[row], {k: v[i] for k, v in found.items()}, dictionary)
                if not return_alignments:
                    several = [replace(translation, alignment=None) for translation in several]
                many = len(found["lengths"][i]) > 1
                results[row] = replace(several[0], n_best=tuple(several)) if many else several[0]
        return results

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str | Sequence[int]],
        options: dict[str, Any],
        *,
        batch_size: int,
        tokens_per_batch: int,
    ) -> list[Translation]:
        """The targets as translations of the sources.

        `options` are those of `score_tokens`, the other arguments those of `Translator.score`.
        """
        check_sizes(batch_size=batch_size, tokens_per_batch=tokens_per_batch)
        targets = _listed("targets", targets, len(_listed("sources", sources)))
        sentences = self._sentences(sources, self.limits())
        target_ids = self._target_ids(targets)
        results = [self._of_blank(target, ids) for target, ids in zip(targets, target_ids, strict=True)]
        longer = [
            max(len(s.token_ids), len(ids)) if s.token_ids else 0 for s, ids in zip(sentences, target_ids, strict=True)
        ]
        for rows, shape in batches(longer, batch_size, tokens_per_batch):
            inputs = {
                "encoder_token_ids": padded([sentences[row].token_ids for row in rows], shape),  # (B, S)
                "target_token_ids": padded([target_ids[row] for row in rows], shape),  # (B, T), T = S
            }
            found = self._compiled(ScoreModel, **options).predict_on_batch(inputs)
            for i, row in enumerate(rows):
                (scored,) = self._translations(sentences[row], {k: v[i] for k, v in found.items()}, None)
                results[row] = replace(scored, text=results[row].text)
        return results

    def _sentences(
        self,
        texts: Sequence[str],
        limits: Limits,
        prefixes: Sequence[str] | None = None,
        row_ids: Sequence[int] | None = None,
    ) -> list[Sentence]:
        """Texts with the ids, the limits, the prefix and the number of each."""
        source_ids = [[*ids, END_ID] if ids else [] for ids in _encode(self.source_tokenizer, texts)]
        prefixes = [""] * len(texts) if prefixes is None else _listed("prefixes", prefixes, len(texts))
        prefix_ids = _encode(self.target_tokenizer, prefixes)
        row_ids = range(len(texts)) if row_ids is None else _listed("row_ids", row_ids, len(texts))
        return [
            Sentence(text, ids, limits.longest(len(ids)), limits.shortest(len(ids)), forced, prefix, row_id)
            for text, ids, forced, prefix, row_id in zip(texts, source_ids, prefix_ids, prefixes, row_ids, strict=True)
        ]

    def _compiled(self, kind: type, *arguments, **options) -> SearchModel | ScoreModel:
        key = kind, *arguments, *sorted((name, repr(value)) for name, value in options.items())
        if key not in self._models:
            self._models[key] = kind(self.model, *arguments, **options)
        return self._models[key]

    def _target_ids(self, targets: Sequence[str | Sequence[int]]) -> list[list[int]]:
        texts = [target for target in targets if not _is_ids(target)]
        encoded = iter(_encode(self.target_tokenizer, texts))
        target_ids = []
        for target in targets:
            ids = [int(i) for i in target] if _is_ids(target) else [*next(encoded), END_ID]
            *inner, end = ids or [PAD_ID]
            if end != END_ID or {PAD_ID, START_ID, END_ID}.intersection(inner):
                raise ValueError(
                    f"Expected target ids that close with the end token {END_ID} and hold no other special token but "
                    f"{UNKNOWN_ID}, the unknown one. Received: {ids}"
                )
            target_ids.append(ids)
        return target_ids

    def _of_blank(self, target: str | Sequence[int], ids: list[int]) -> Translation:
        """A given translation of a blank sentence: certain if it is blank too, else impossible."""
        if ids == [END_ID]:
            return Translation("")
        text = target if isinstance(target, str) else self.target_tokenizer.decode(ids)
        log_probs = np.full(len(ids), -np.inf, "float32")
        return Translation(text, tuple(self.target_tokenizer.tokens(ids)), tuple(ids), -np.inf, log_probs)

    def _translations(self, sentence: Sentence, found: dict[str, np.ndarray], dictionary) -> list[Translation]:
        """The hypotheses of one sentence; fewer may exist than were asked for, and then one empty one stays."""
        source_tokens = tuple(self.source_tokenizer.tokens(sentence.token_ids))
        translations = []
        for n in np.flatnonzero(found["lengths"]) if found["lengths"].any() else [0]:
            length = found["lengths"][n]
            ids = [int(i) for i in found["token_ids"][n, :length]]
            alignment = found.get("alignments")
            if alignment is not None:
                alignment = alignment[n, :length, : len(source_tokens)].copy()
            translation = Translation(
                text=self._text(sentence, ids, alignment, dictionary),
                tokens=tuple(self.target_tokenizer.tokens(ids)),
                token_ids=tuple(ids),
                score=float(found["scores"][n]),
                token_log_probs=found["token_log_probs"][n, :length].copy(),
                alignment=alignment,
                source_tokens=source_tokens,
                source_token_ids=tuple(sentence.token_ids),
            )
            translations.append(translation)
        return translations

    def _text(self, sentence: Sentence, ids: list[int], alignment, dictionary) -> str:
        positions = [position for position, token_id in enumerate(ids) if token_id == UNKNOWN_ID]
        if not positions or (dictionary is None and positions[0] >= len(sentence.prefix)):
            return self.target_tokenizer.decode(ids)
        words = [SPECIAL_TOKENS[UNKNOWN_ID]] * len(positions)
        if dictionary is not None:
            source, target = (self.source_tokenizer, sentence.token_ids), (self.target_tokenizer, ids)
            words = words_for_unknown(sentence.text, source, target, alignment, dictionary)
        # Known or not, a prefix stays as it was given.
        pieces = dict(enumerate(self.target_tokenizer.pieces(sentence.prefix_text)[: len(sentence.prefix)]))
        words = [pieces.get(position, word) for position, word in zip(positions, words, strict=True)]
        return self.target_tokenizer.decode(ids, words)


def _encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The ids of each text; none of a blank one, whatever the tokenizer makes of blanks."""
    encoded = tokenizer.encode_batch(texts)
    return [ids if text.strip(BLANKS) else [] for text, ids in zip(texts, encoded, strict=True)]


def _is_ids(target) -> bool:
    return isinstance(target, (list, tuple, np.ndarray))


def _listed(name: str, values: Sequence, count: int | None = None) -> Sequence:
    """Refuses one string in the place of a list, and a list that is not as long as its neighbour."""
    if isinstance(values, str):
        raise ValueError(f"Expected `{name}` to be a list of strings. Received one string; put it into a list.")
    if count is not None and len(values) != count:
        raise ValueError(f"Expected `{name}` to have an entry for each of {count} sentences. Received: {len(values)}")
    return values
