"""Text to text: a model, two tokenizers and search, as one object that can be saved, loaded and exported."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attn.decoding import Engine
from keras_attn.saving import from_marian, load_preset, load_presets, save_preset
from keras_attn.translation import Translation

__all__ = ["Translation", "Translator"]


class Translator(Engine):
    """A `Seq2Seq` model with its tokenizers: text in, text out.

    Args:
        model: A `keras_attn.models.Seq2Seq`.
        source_tokenizer, target_tokenizer: A `keras_attn.Tokenizer` for each side (the same one twice for a shared
            vocabulary).
        max_length_ratio, max_length_constant: A translation has at most `ratio * source tokens + constant`
            tokens. The limit depends on the sentence alone, so that its translation never depends on its
            batch mates. Search continues until no hypothesis up to this length can be better: a generous limit costs
            steps. With the ratio 0 all sentences have the same limit; without an end token, that is the length of every
            translation.

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
        limits = {"max_length_ratio": self.max_length_ratio, "max_length_constant": self.max_length_constant}
        tokenizers = self.source_tokenizer, self.target_tokenizer
        save_preset(directory, self.model, *tokenizers, limits, dtype=dtype, report=report)

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
        """Reads a model that Marian trained: see `keras_attn.saving.from_marian`, with arguments and errors."""
        return cls(*from_marian(model, vocabularies))

    def export(self, directory: str | Path, *, format: str = "saved_model", **options) -> Path:
        """Writes the translator for programs without Keras; returns the folder that was written.

        Args:
            directory: A folder.
            format: "saved_model": a SavedModel for TensorFlow Serving, the next version in `directory`. "onnx": graphs
                for `keras_attn.runtime.OnnxTranslator`, in `directory` itself, which must be new.
            **options: Of "saved_model" (beam_size, length_penalty, ...): those of
                `keras_attn.export.export_translator`. "onnx" has none: search takes them when it translates.

        Raises:
            ValueError: if the format is unknown, and as `export_translator` and `export_onnx` of
                `keras_attn.export`, with all other errors.
        """
        from keras_attn.export import export_onnx, export_translator

        if format not in ("saved_model", "onnx"):
            raise ValueError(f'Expected format to be "saved_model" or "onnx". Received: format={format!r}')
        if format == "saved_model":
            return export_translator(self, directory, **options)
        if options:
            raise ValueError(
                f'Expected no options with format="onnx", because `generate` takes them. Received: {sorted(options)}'
            )
        return export_onnx(self, directory)
