"""Text to text: a model, two tokenizers and search, as one object that can be saved, loaded and exported."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from keras_attn.decoding import Decoding, Limits, Translation, check_sizes
from keras_attn.models import Seq2Seq
from keras_attn.saving import preset
from keras_attn.search import beam_search, sample
from keras_attn.text import Tokenizer

__all__ = ["Translation", "Translator"]


class Translator:
    """A `Seq2Seq` model with its tokenizers: text in, text out.

    Arguments:
        model: A `keras_attn.models.Seq2Seq`.
        source_tokenizer, target_tokenizer: `keras_attn.Tokenizer`, one for each side (twice the same for a
            joint one).
        max_length_ratio, max_length_constant: A translation has at most `ratio * source tokens + constant`
            tokens. The limit belongs to the sentence alone, so that its translation never depends on its
            batch mates. Search proves its result against the longest output allowed: a generous limit costs steps.

    Raises:
        ValueError: if a vocabulary is not as large as the model's.

    Example:
        >>> translator = keras_attn.Translator(model, source_tokenizer, target_tokenizer)
        >>> translator.generate(["two dogs"], beam_size=5)[0].text
        'deux chiens'
    """

    def __init__(
        self,
        model: Seq2Seq,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        *,
        max_length_ratio: float = 1.5,
        max_length_constant: int = 10,
    ):
        for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
            expected = getattr(model, f"{side}_vocabulary_size")
            if tokenizer.vocabulary_size != expected:
                raise ValueError(
                    f"Expected a {side} tokenizer with the model's {expected} ids. "
                    f"Received one with {tokenizer.vocabulary_size}."
                )
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.max_length_ratio = max_length_ratio
        self.max_length_constant = max_length_constant
        self._decoding = Decoding(model, source_tokenizer, target_tokenizer, max_length_ratio, max_length_constant)

    def generate(
        self,
        texts: Sequence[str],
        *,
        beam_size: int = 5,
        batch_size: int = 64,
        n_best: int = 1,
        length_penalty: float = 1.0,
        max_length: int | None = None,
        max_length_ratio: float | None = None,
        min_length: int | None = None,
        min_length_ratio: float | None = None,
        prefixes: Sequence[str] | None = None,
        banned_tokens: Sequence[str | int] = (),
        replace_unknown: bool | Mapping[str, str] = False,
        return_alignments: bool = True,
        tokens_per_batch: int = 8192,
        **search_options,
    ) -> list[Translation]:
        """Translates sentences; the result is in the order of `texts` and the same for any `batch_size`.

        Sentences are sorted by length and padded to a bounded set of shapes, so that nothing is compiled
        twice.

        Arguments:
            texts: Sentences. A blank one gives a `Translation` with the text "".
            beam_size: Hypotheses kept at each step; 1 is greedy search.
            batch_size: Sentences searched at once, at most.
            n_best: Hypotheses returned for each sentence, in `Translation.n_best`; at most `beam_size`.
            length_penalty: The exponent of the length normalisation.
            max_length: Longest output in tokens; as in all lengths, the end token counts.
            max_length_ratio: Longest output, in lengths of the sentence's own source. With both the smaller
                holds, with neither the translator's own limit.
            min_length, min_length_ratio: Shortest output, likewise; the larger holds, but for the longest
                output, which prevails.
            prefixes: For each sentence a text that its translation begins with, "" for none.
            banned_tokens: What search never adds: tokens of the target vocabulary, such as "<unk>", or ids.
            replace_unknown: Whether each `<unk>` of the text becomes the source word that it is aligned to; or
                a dictionary, from source words to target words, that such words go through first.
            return_alignments: Whether alignments are followed; without them search is a little quicker.
            tokens_per_batch: Padded source tokens searched at once, at most (a single longer sentence still
                is), which bounds the memory.
            search_options: Further keyword arguments of `keras_attn.search.beam_search`.

        Raises:
            ValueError: for a text that is not valid Unicode, an unknown option, or a size out of range.
        """
        check_sizes(beam_size=beam_size, n_best=n_best)
        if n_best > beam_size:
            raise ValueError(f"Expected n_best to be at most beam_size={beam_size}. Received: n_best={n_best}")
        return self._decoding.search(
            texts,
            beam_search,
            {"beam_size": beam_size, "n_best": n_best, "length_penalty": length_penalty},
            None,
            None,
            batch_size=batch_size,
            max_length=max_length,
            max_length_ratio=max_length_ratio,
            min_length=min_length,
            min_length_ratio=min_length_ratio,
            prefixes=prefixes,
            banned_tokens=banned_tokens,
            replace_unknown=replace_unknown,
            return_alignments=return_alignments,
            tokens_per_batch=tokens_per_batch,
            **search_options,
        )

    def sample(
        self,
        texts: Sequence[str],
        *,
        num_samples: int = 1,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        row_ids: Sequence[int] | None = None,
        batch_size: int = 64,
        **options,
    ) -> list[Translation]:
        """Draws translations from the model: several of a sentence in `Translation.n_best`, in the order drawn.

        A draw depends on the seed, the sentence's number and the sample's, and on nothing else: not on
        `batch_size`, the order of work or the backend (but for rounding, where it falls on the border between
        two tokens).

        Arguments:
            texts: Sentences. A blank one gives a `Translation` with the text "".
            num_samples: Translations drawn for each sentence; two may be alike.
            temperature, top_k, top_p: See `keras_attn.search.sample`.
            seed: Fixes the draws.
            row_ids: A number for each sentence, which tells its draws from another's; None: 0, 1, 2, ... For a
                part of a corpus, give the numbers in the whole.
            batch_size: Samples drawn at once, at most (all samples of a single sentence still are).
            options: As in `generate`: lengths, `prefixes`, `banned_tokens`, `replace_unknown`,
                `return_alignments`, `tokens_per_batch`; and further keyword arguments of
                `keras_attn.search.sample`.

        Raises:
            ValueError: as `generate`.
        """
        check_sizes(num_samples=num_samples, batch_size=batch_size)
        own = {"num_samples": num_samples, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        sentences = max(1, batch_size // num_samples)
        return self._decoding.search(texts, sample, own, seed, row_ids, batch_size=sentences, **options)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str | Sequence[int]],
        *,
        length_penalty: float = 1.0,
        normalization: str = "gnmt",
        coverage_penalty: float = 0.0,
        return_alignments: bool = True,
        batch_size: int = 64,
        tokens_per_batch: int = 2048,
    ) -> list[Translation]:
        """Scores given translations as search does its own, in one teacher-forced pass: forced decoding.

        A target is a text, or ids as in `Translation.token_ids`: the text that search found may have other ids
        than those that it was found by. A blank target is the end token alone. A blank source has one
        translation, the blank one, with score 0 as in `generate`; any other has score -inf.

        Arguments:
            sources, targets: Sentences and their translations.
            length_penalty, normalization, coverage_penalty: As in `generate`, for the same scores.
            return_alignments: Whether the result has alignments.
            batch_size: Pairs scored at once, at most.
            tokens_per_batch: Padded tokens of the longer side scored at once, at most (a single longer pair
                still is), each with the logits of the whole vocabulary, which bounds the memory.

        Raises:
            ValueError: for lists of different lengths, a text that is not valid Unicode, or ids that are no
                translation.
        """
        options = {"length_penalty": length_penalty, "normalization": normalization}
        options |= {"coverage_penalty": coverage_penalty, "return_alignments": return_alignments}
        sizes = {"batch_size": batch_size, "tokens_per_batch": tokens_per_batch}
        return self._decoding.score(sources, targets, options, **sizes)

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes model, tokenizers and a manifest with each file's size and SHA-256 into `directory`.

        Everything is written beside it and then moved into place, the manifest last: a directory with one is
        whole. The optimizer's state is left out. The files load on every backend.

        Raises:
            FileExistsError: if `directory` already holds a preset, or part of one.
        """
        options = {name: getattr(self, name) for name in preset.OPTIONS}
        preset.save(directory, self.model, self.source_tokenizer, self.target_tokenizer, options)

    @classmethod
    def from_preset(cls, directory: str | Path) -> "Translator":
        """Loads what `save_to_preset` wrote, on any backend, in Keras' safe mode.

        Raises:
            FileNotFoundError: if `directory` holds no preset, or a file of it is missing.
            ValueError: if a file is truncated or changed, or the format is not known.
        """
        *parts, options = preset.load(directory)
        return cls(*parts, **options)

    @classmethod
    def from_presets(cls, directories: Sequence[str | Path], *, average: str = "probability") -> "Translator":
        """Loads several presets with the same tokenizers as one translator, with the length limits of the first.

        Arguments:
            directories: Presets.
            average: "probability" or "log_probability" for an `Ensemble`; "weights" for one model whose weights
                are the mean of theirs, which suits checkpoints of one run (see `average_weights`).

        Raises:
            FileNotFoundError, ValueError: as `from_preset`; and where tokenizers differ or models do not fit.
        """
        *parts, options = preset.load_together(directories, average)
        return cls(*parts, **options)

    def export(self, directory: str | Path, **options) -> Path:
        """Writes a SavedModel for TensorFlow Serving, the next version in `directory`; returns its folder.

        The options (beam_size, length_penalty, ...) are those of `keras_attn.serving.export_translator`.
        """
        # Here, not above: serving imports this module.
        from keras_attn.serving.export import export_translator

        return export_translator(self, directory, **options)

    def limits(self, **limits) -> Limits:
        """The lengths that `generate` keeps to, given its `max_length`, `min_length_ratio`, ..."""
        return self._decoding.limits(**limits)
