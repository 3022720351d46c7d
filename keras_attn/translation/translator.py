"""Text to text by a model, two tokenizers and a search, as one object that can be saved, loaded and exported."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attn.backend import Int8Weights, clipping_replicas, compilation_scope, compiles_each_length
from keras_attn.converters import from_marian
from keras_attn.data import ParallelDataset
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from keras_attn.models import CompiledSearches, ScoreModel, SearchModel, Seq2Seq, check_scores
from keras_attn.saving import load_preset, load_presets, save_preset
from keras_attn.search import (
    SampleOptions,
    SearchOptions,
    SearchResult,
    beam_search,
    greedy_search,
    sample,
    score_tokens,
)
from keras_attn.text import Tokenizer, check_joint, without_temporary_ids
from keras_attn.translation.batching import (
    Sentence,
    batches,
    check_list,
    check_whole,
    encoded,
    padded,
    token_ids_of,
)
from keras_attn.translation.quantization import int8_weights
from keras_attn.translation.results import Translation
from keras_attn.translation.shortlist import Shortlist
from keras_attn.translation.text_search import TextSearch

_MARGIN, _UNKNOWN_TRAINED_LENGTH = 2, 50  # the longest output for arrays: so many times that of training, in tokens


class Translator(TextSearch):
    """A `Seq2Seq` model with its tokenizers: text in, text out.

    Args:
        model: A `keras_attn.models.Seq2Seq`.
        source_tokenizer, target_tokenizer: A `keras_attn.Tokenizer` for each side (the same one twice for a shared
            vocabulary). A source tokenizer of None is for a source that is no text, such as images or speech:
            `generate` and `sample` then take its arrays, as `generate` of the model does, instead of texts. A target
            tokenizer of None is for a target that is no text, such as classes: ids are their own tokens, and the text
            is those of an output, "7 12", without pad, start and end.
        max_length_ratio, max_length_constant: A translation has at most `ratio * source tokens + constant`
            tokens. The limit depends on the sentence alone, so that its translation never depends on its
            batch mates. Search continues until no hypothesis up to this length can be better: a generous limit costs
            steps. With the ratio 0 all sentences have the same limit; without an end token, that is the length of every
            translation.
        trained_length: The longest source and target, in tokens, that the model was trained with; None: not known.
            Sources of more than twice as many tokens, of more than 1,000 if it is not known, have the limit of those,
            with a warning. `max_length` and `max_length_ratio` of `generate` and `sample` replace all limits.

    Several threads may use one translator while its model is not trained. It can be copied and pickled, as far as Keras
    can save its model; a copy compiles anew. A process that is forked after a model was loaded cannot compute with
    TensorFlow or JAX, whose threads it lacks: load the translator in the new process, or start that with `spawn`.

    Raises:
        ValueError: if the size of a vocabulary or its special ids differ from the model's, or the model does not mask
            padding and has no `source_length`.

    Example:
        >>> translator = keras_attn.Translator(model, source_tokenizer, target_tokenizer)
        >>> translator.generate(["two dogs"], beam_size=5)[0].text
        'deux chiens'
    """

    _least_alone = 16 if compiles_each_length() else None  # a person waits while one is compiled

    def __init__(
        self,
        model: Seq2Seq,
        source_tokenizer: Tokenizer | None,
        target_tokenizer: Tokenizer | None,
        *,
        max_length_ratio: float = 1.5,
        max_length_constant: float = 10,
        trained_length: int | None = None,
    ):
        if source_tokenizer is None and target_tokenizer is None:
            raise ValueError(
                "Expected a tokenizer of source or target; `model.generate` finds ids from arrays. Received: None twice"
            )
        if target_tokenizer is None:
            target_tokenizer = _tokenizer_of_ids(model)
        _check_parts(model, source_tokenizer, target_tokenizer)
        lengths = max_length_ratio, max_length_constant, trained_length
        reads = {"pointer": model.pointer, "source_length": model.source_length}
        super().__init__(source_tokenizer, target_tokenizer, *lengths, **reads)
        self.model = model
        self.int8_weights: Int8Weights | None = None  # see `quantize`
        self.shortlist: Shortlist | None = None  # see `with_shortlist`
        self._compiled = CompiledSearches()

    def __getstate__(self):
        """For `copy` and `pickle`: without the compiled models, which a copy compiles anew."""
        return vars(self) | {"_compiled": CompiledSearches(), "int8_weights": self.int8_weights is not None}

    def __setstate__(self, state):
        vars(self).update(state, int8_weights=int8_weights(state["model"]) if state["int8_weights"] else None)

    def fit(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        validation_data: tuple[Sequence[str], Sequence[str]] | None = None,
        epochs: int = 1,
        batch_size: int = 64,
        **options,
    ) -> keras.callbacks.History:
        """Trains the model on pairs of texts, in batches of similar lengths; pairs with a blank side are left out.

        A model that is not compiled gets Adam with a rate of 1e-3, label smoothing of 0.1, perplexity and accuracy.

        Args:
            sources, targets: Sentences and their translations.
            validation_data: Two more lists, for loss and metrics after each epoch.
            epochs, batch_size, **options: Of `keras.Model.fit`: `callbacks`, `verbose`, ...

        Returns:
            Keras' `History`.

        Raises:
            ValueError: if lists differ in length, have no pair with text or what is no text, or the translator
                multiplies in int8.

        Example:
            >>> history = translator.fit(["two dogs"] * 8, ["deux chiens"] * 8, epochs=2, verbose=0)
        """
        self._check_text("to train on")
        if self.int8_weights is not None:
            raise ValueError("Expected a translator in floating point to train. Received: one of keras_attn.quantize")
        parts = self.source_tokenizer, self.target_tokenizer
        settings = {"batch_size": batch_size, "pointer": self.model.pointer}
        data = ParallelDataset.from_text(sources, targets, *parts, **settings)
        if validation_data is not None:
            is_two = isinstance(validation_data, (tuple, list)) and len(validation_data) == 2
            if not is_two or (isinstance(validation_data, list) and isinstance(validation_data[0], tuple)):
                raise ValueError(
                    "Expected validation_data=(sources, targets), two lists of texts. "
                    f"Received: {validation_data!r:.80}"
                )
            options["validation_data"] = ParallelDataset.from_text(*validation_data, *parts, **settings)
        if not self.model.compiled:
            compile_model(self.model)
        history = self.model.fit(data, epochs=epochs, **options)
        self.trained_length = max(self.trained_length or 0, *(n for _, *shape in data.shapes for n in shape))
        return history

    def sample(
        self,
        texts: Sequence[str],
        *,
        seed: int = 0,
        row_ids: Sequence[int] | None = None,
        prefixes: Sequence[str] | None = None,
        replace_unknown: bool | Mapping[str, str] = False,
        return_alignments: bool = True,
        **options,
    ) -> list[Translation]:
        """Draws translations from the model's distribution.

        A sample depends on the seed, the sentence's number and the sample's number alone: not on `batch_size`, the
        order of work or the backend (except where rounding decides on the border between two tokens).

        Args:
            texts: Sentences. A blank one gives a `Translation` with the text "".
            seed: The random seed.
            row_ids: A number for each sentence, on which its random numbers depend; None: 0, 1, 2, ... For a
                part of a corpus, give the numbers in the whole.
            prefixes, replace_unknown, return_alignments: See `generate`.
            **options: The fields of `keras_attn.search.SampleOptions`: `num_samples`, `temperature`, `top_k`,
                `top_p`, `max_length`, ... `batch_size` counts samples (all samples of a single sentence are still
                drawn at once).

        Returns:
            A `Translation` for each sentence. With `num_samples` above 1 it is the first one drawn, and its `n_best`
            has all in the order drawn.

        Raises:
            ValueError: see `generate`.
        """
        check_whole(seed=[seed])
        if self.source_tokenizer is None:
            options |= {"seed": seed, "return_alignments": return_alignments, "replace_unknown": replace_unknown}
            return self._from_arrays(texts, prefixes, self.model.sample, **options)
        options = SampleOptions.from_keywords(options)
        options = replace(options, batch_size=max(1, options.batch_size // options.num_samples))
        return self._search(texts, sample, options, prefixes, replace_unknown, return_alignments, seed, row_ids)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str | Sequence[int]],
        *,
        length_penalty: float = 1.0,
        normalization: str = "gnmt",
        coverage_penalty: float = 0.0,
        return_alignments: bool = True,
        each_head: bool = False,
        batch_size: int = 64,
        tokens_per_batch: int = 2048,
    ) -> list[Translation]:
        """Scores given translations as search scores its own, in one teacher-forced pass (forced decoding).

        A blank target is the end token alone. A blank source has one translation, the blank one, with score 0 as in
        `generate`; any other has score -inf.

        Args:
            sources: Sentences.
            targets: Their translations, each a text or ids as in `Translation.token_ids`. (Search may have found a
                text by other ids than those that the tokenizer gives for it.)
            length_penalty, normalization, coverage_penalty: See `keras_attn.search.SearchOptions`.
            return_alignments: Whether the result has alignments.
            each_head: Whether it also has `head_alignments`, those of each attention layer and head.
            batch_size: Pairs scored at once, at most.
            tokens_per_batch: Padded tokens of the longer side scored at once, at most (a single longer pair
                is still scored), which bounds the memory: each has logits for the whole vocabulary.

        Returns:
            A `Translation` for each pair.

        Raises:
            ValueError: if the lists differ in length, a text is not valid Unicode, ids are not a translation or outside
                the vocabulary, or the model's logits are NaN.
        """
        self._check_text("to score")
        checked = SearchOptions(
            length_penalty=length_penalty,
            normalization=normalization,
            coverage_penalty=coverage_penalty,
            batch_size=batch_size,
            tokens_per_batch=tokens_per_batch,
        )
        options = checked.arguments_of(score_tokens) | {"return_alignments": return_alignments, "each_head": each_head}
        sources = check_list("sources", sources)
        targets = check_list("targets", targets, len(sources))
        sentences = self._sentences(sources, self.limits())
        target_ids = self._target_ids(targets, sentences)
        pairs = list(zip(sentences, target_ids, strict=True))
        results = [self._score_of_blank(*pair, target) for pair, target in zip(pairs, targets, strict=True)]
        longer = [max(len(s.token_ids), len(ids)) if s.token_ids and ids else 0 for s, ids in pairs]
        scorer = self._compiled.get(ScoreModel, self.model, **options, int8_weights=self.int8_weights)
        for rows, shape in batches(longer, checked.batch_size, checked.tokens_per_batch):
            ids = self.model.source_special_ids, self.model.target_special_ids
            inputs = {
                "encoder_token_ids": padded([sentences[row].token_ids for row in rows], shape, ids[0]),  # (B, S)
                "target_token_ids": padded([target_ids[row] for row in rows], shape, ids[1]),  # (B, T), T = S
            }
            outputs = scorer.predict_on_batch(inputs)
            check_scores(outputs["scores"][: len(rows)], self.model)
            for i, row in enumerate(rows):
                (scored,) = self._translations(sentences[row], {k: v[i] for k, v in outputs.items()})
                results[row] = replace(scored, text=scored.text if _is_ids(targets[row]) else targets[row])
        return results

    def save_to_preset(
        self, directory: str | Path, *, dtype: str | None = None, report: Mapping[str, Any] | None = None
    ) -> None:
        """Writes model, tokenizers, a manifest with each file's size and SHA-256, and a card into `directory`.

        Everything is first written to a temporary folder beside it and then moved into place, the manifest last: a
        directory with a manifest is complete. The optimizer's state is left out. The files load on every backend.
        Last comes the card, README.md, in the form of Hugging Face's model cards; one that is there is kept.

        Args:
            directory: The new preset. It may exist with other files in it.
            dtype: In what matrices of at least 1,024 weights are stored: "float16" (half the bytes) or "int8" (a
                quarter, with a scale for each row or column); None: as they are. A loaded model computes as before.
            report: A run's `report.json`, for the card: languages, corpus, scores with signatures, command.

        Raises:
            ValueError: if `dtype` is another.
            FileExistsError: if `directory` already contains a preset, or part of one.
        """
        tokenizers = self.source_tokenizer, self.target_tokenizer
        save_preset(directory, self.model, *tokenizers, self.length_arguments, dtype=dtype, report=report)

    @classmethod
    def from_preset(cls, preset: str | Path) -> "Translator":
        """Loads what `save_to_preset` wrote, on any backend, in Keras' safe mode.

        Args:
            preset: A folder; the name of a preset in `keras_attn.presets()`, which is downloaded once, if need be, and
                must have the SHA-256 that this package has; or "hf://USER/NAME" at Hugging Face, with "@REVISION"
                after it for a branch, a tag or a commit.

        Raises:
            FileNotFoundError: if the folder contains no preset, a file of it is missing, or it cannot be downloaded.
            ValueError: if a file is truncated or changed, or the format is unknown.
            ModuleNotFoundError: if "hf://" needs the package huggingface_hub.

        Example:
            >>> translator = keras_attn.Translator.from_preset("phrases_en_fr")
            >>> translator.generate(["The queen forgot the black orange."])[0].text
            "La reine a oublié l'orange noire."
        """
        *parts, limits = load_preset(preset)
        return cls(*parts, **limits)

    @classmethod
    def from_presets(cls, directories: Sequence[str | Path], *, average: str = "probability") -> "Translator":
        """Loads several presets with the same tokenizers as one translator, with the length limits of the first.

        Args:
            directories: Presets, as `from_preset` takes them.
            average: "probability" or "log_probability" for an `Ensemble`; "weights" for one model whose weights
                are the mean of theirs, which suits checkpoints of one run (see `average_weights`).

        Raises:
            FileNotFoundError: see `from_preset`.
            ValueError: see `from_preset`; and if the tokenizers differ, or the models do not fit together.
        """
        *parts, limits = load_presets(directories, average)
        return cls(*parts, **limits)

    @classmethod
    def from_marian(cls, model: str | Path, vocabularies: str | Path | Sequence[str | Path]) -> "Translator":
        """Reads a model that Marian trained: see `keras_attn.converters.from_marian`, with arguments and errors."""
        return cls(*from_marian(model, vocabularies))

    def export(self, directory: str | Path, *, format: str = "saved_model", **options) -> Path:
        """Writes the translator for programs without Keras; returns the folder that was written.

        Args:
            directory: A folder.
            format: "saved_model": a SavedModel for TensorFlow Serving, the next version in `directory`. "onnx": graphs
                for `keras_attn.runtime.OnnxTranslator`, in `directory` itself, which must be new.
            **options: Of "saved_model" (beam_size, length_penalty, ...): those of
                `keras_attn.export.export_translator`. "onnx" has `quantize` alone: search takes the others when it
                translates. Of a source that is no text also `samples`: see `keras_attn.export.export_search`.

        Raises:
            ValueError: if the format is unknown, and as `export_translator` and `export_onnx` of
                `keras_attn.export`, with all other errors.
        """
        from keras_attn.export import export_onnx, export_search, export_translator

        if format not in ("saved_model", "onnx"):
            raise ValueError(f'Expected format to be "saved_model" or "onnx". Received: format={format!r}')
        is_text = self.source_tokenizer is not None
        samples = {} if is_text else {"samples": options.pop("samples", None)}
        if format == "onnx":
            if others := sorted(options.keys() - {"quantize"}):
                raise ValueError(
                    'Expected no options of search with format="onnx", because `generate` takes them. '
                    f"Received: {others}"
                )
            return export_onnx(self if is_text else self.model, directory, **samples, **options)
        if is_text:
            return export_translator(self, directory, **options)
        return export_search(self.model, directory, **samples, tokenizer=self.target_tokenizer, **options)

    def _search_of(self, options: SearchOptions) -> Callable:
        return greedy_search if options.is_greedy else beam_search

    def _searched(
        self, search: Callable, inputs: Mapping[str, np.ndarray], longest: int, count: int, **arguments: Any
    ) -> Mapping[str, np.ndarray]:
        reduced = None
        if self.shortlist is not None and search is not sample:
            ids = self.model.source_special_ids, self.model.target_special_ids
            reduced = self.shortlist.reduced(inputs, count, arguments["banned_token_ids"], ids)
            inputs, arguments = reduced.inputs, arguments | reduced.arguments
        arguments["int8_weights"] = self.int8_weights
        compiled = self._compiled.get(SearchModel, self.model, search, longest, **arguments)
        outputs = compiled.predict_on_batch(inputs)
        check_scores(outputs["scores"][:count], self.model)
        return {**outputs, "token_ids": reduced.shortlist[outputs["token_ids"]]} if reduced else outputs

    def _check_text(self, purpose: str) -> None:
        if self.source_tokenizer is None:
            raise ValueError(f"Expected a source of text {purpose}. Received: source_tokenizer=None")

    def _from_arrays(self, source, prefixes, search=None, *, replace_unknown, **options):
        search = search or self.model.generate
        if replace_unknown:
            raise ValueError("Expected a source of text for `replace_unknown`. Received: source_tokenizer=None")
        if options.get("max_length") is None:
            options["max_length"] = _MARGIN * (self.trained_length or _UNKNOWN_TRAINED_LENGTH)
        options["banned_tokens"] = token_ids_of(self.target_tokenizer, options.get("banned_tokens", ()))
        if prefixes is not None:
            rows = self.target_tokenizer.encode_batch(check_list("prefixes", prefixes))
            shape = len(rows), max([1, *map(len, rows)])
            options["forced_prefix"] = np.full(shape, self.target_tokenizer.special_ids.pad, "int32")  # (B, P)
            for row, ids in zip(options["forced_prefix"], rows, strict=True):
                row[: len(ids)] = ids
        found = search(source, **options)
        results = []
        for row in range(len(found.lengths)):
            several = [self._of_hypothesis(found, row, n) for n in np.flatnonzero(found.lengths[row])]
            several = several or [Translation("")]
            results.append(replace(several[0], n_best=tuple(several)) if found.lengths.shape[1] > 1 else several[0])
        return results

    def _of_hypothesis(self, found: SearchResult, row: int, n: int) -> Translation:
        length = found.lengths[row, n]
        ids = found.token_ids[row, n, :length].tolist()
        several = isinstance(found.alignments, list)  # of several memories
        parts = [] if found.alignments is None else found.alignments if several else [found.alignments]
        parts = [part[row, n, :length].copy() for part in parts]  # (T, S) each
        return Translation(
            text=self.target_tokenizer.decode(ids),
            tokens=tuple(self.target_tokenizer.tokens(ids)),
            token_ids=tuple(ids),
            score=float(found.scores[row, n]),
            token_log_probs=found.token_log_probs[row, n, :length].copy(),
            alignment=np.concatenate(parts, axis=1) / len(parts) if parts else None,
        )

    def _target_ids(self, targets: Sequence[str | Sequence[int]], sentences: list[Sentence]) -> list[list[int]]:
        words = [sentence.oov for sentence in sentences]
        rows = encoded(self.target_tokenizer, ["" if _is_ids(target) else target for target in targets], words)
        target_ids, special = [], self.target_tokenizer.special_ids
        for target, row, temporary in zip(targets, rows, words, strict=True):
            ids = list(target) if _is_ids(target) else special.with_end(row)
            # It refuses ids out of range.
            self.target_tokenizer.tokens([i for i in ids if i not in temporary.values()])
            ids = [int(i) for i in ids]
            inner = ids if special.end is None else ids[:-1]
            if ids[len(inner) :] != special.with_end([]) or special.reserved.intersection(inner):
                end = "" if special.end is None else f"that end in the end token {special.end} and "
                raise ValueError(
                    f"Expected target ids {end}that contain no other special token but "
                    f"{special.unknown}, the unknown one. Received: {ids}"
                )
            target_ids.append(ids)
        return target_ids

    def _score_of_blank(self, sentence: Sentence, ids: list[int], target: str | Sequence[int]) -> Translation:
        """A given translation that no model scores: of a blank sentence, or without a token, not even the end."""
        if ids == self.target_tokenizer.special_ids.with_end([]):
            return Translation("", score=0.0 if ids or not sentence.token_ids else -np.inf)
        known = without_temporary_ids(self.target_tokenizer, ids)
        text = target if isinstance(target, str) else self.target_tokenizer.decode(known)
        log_probs = np.full(len(ids), -np.inf, "float32")
        return Translation(text, tuple(self.target_tokenizer.tokens(known)), tuple(ids), -np.inf, log_probs)


def _tokenizer_of_ids(model: Seq2Seq) -> Tokenizer:
    """A tokenizer of the model's target ids, whose words are the ids."""
    ids = [str(token_id) for token_id in range(getattr(model, "target_vocabulary_size", None) or 0)]
    if not ids:
        raise ValueError(
            "Expected a model with a `target_vocabulary_size` for a target of ids; `model.generate` finds those of a "
            f"model whose outputs depend on the source. Received: {type(model).__name__}, without one"
        )
    return Tokenizer.from_vocabulary(ids, level="symbol", **model.target_special_ids.get_config())


def _check_parts(model: Seq2Seq, source_tokenizer: Tokenizer | None, target_tokenizer: Tokenizer) -> None:
    """Raises ValueError for tokenizers of other sizes or special ids than the model's, or translations that vary.

    Without a mask and without `source_length`, a translation would depend on the padding of its batch.
    """
    if not isinstance(model, Seq2Seq):
        raise ValueError(
            f"Expected a `keras_attn.models.Seq2Seq`. Received: {type(model).__name__}, which has no `encode` and "
            "`step`. Keras' `clone_model` gives such a one: `type(model).from_config(model.get_config())` is a copy "
            "that has them, and `copy.set_weights(model.get_weights())` gives it the weights"
        )
    for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
        if tokenizer is None:
            continue
        expected, special_ids = (getattr(model, f"{side}_{name}") for name in ("vocabulary_size", "special_ids"))
        if expected is None:
            raise ValueError(
                f"Expected a model whose {side} is text, with a `{side}_vocabulary_size`, such as a subclass of "
                f"`RecurrentSeq2Seq`, for a {side} tokenizer. Received: {type(model).__name__}, without one"
            )
        if tokenizer.vocabulary_size != expected:
            raise ValueError(
                f"Expected a {side} tokenizer with the model's {expected} ids. "
                f"Received one with {tokenizer.vocabulary_size}."
            )
        if tokenizer.special_ids != special_ids:
            raise ValueError(
                f"Expected a {side} tokenizer with the model's {special_ids}; a model takes those of its tokenizer as "
                f"`{side}_special_ids`. Received one with {tokenizer.special_ids}."
            )
    if model.pointer and source_tokenizer is not None:
        check_joint(source_tokenizer, target_tokenizer)
    if not model.mask_padding and model.source_length is None:
        raise ValueError(
            "Expected a model with `source_length`, because it does not mask padding: a translation would depend on "
            "its batch mates. Received: source_length=None"
        )


def compile_model(
    model: Seq2Seq, learning_rate=1e-3, *, global_clipnorm: float = 1.0, label_smoothing: float = 0.1, **adam
) -> None:
    """Compiles a model with Adam, `SmoothedCrossentropy`, perplexity and token accuracy.

    Args:
        model: A model, also one of several replicas, whose batches and gradients are divided among them.
        learning_rate: A number or a schedule.
        global_clipnorm: Largest norm of all gradients together.
        label_smoothing: Probability that the targets give to all tokens alike.
        **adam: Further arguments of `keras.optimizers.Adam`.
    """
    labels = model.target_vocabulary_size if model.pointer else None
    with compilation_scope(model):  # the optimizer has variables, too
        model.compile(
            keras.optimizers.Adam(learning_rate, global_clipnorm=global_clipnorm / clipping_replicas(model), **adam),
            SmoothedCrossentropy(label_smoothing, vocabulary_size=labels),
            weighted_metrics=[Perplexity(), TokenAccuracy()],
        )


def _is_ids(target) -> bool:
    return isinstance(target, (list, tuple, np.ndarray))
