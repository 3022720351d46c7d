"""A preset: a folder with a model, its two tokenizers and a manifest. An incomplete one is refused."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import keras

from keras_attn.models import Seq2Seq
from keras_attn.saving import manifest
from keras_attn.text import Tokenizer

NAMES = ("model.keras", "source_tokenizer", "target_tokenizer", manifest.NAME)
OPTIONS = ("max_length_ratio", "max_length_constant")


def save_preset(
    directory: str | os.PathLike,
    model: Seq2Seq,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    options: dict[str, float],
) -> None:
    """Writes a preset to a temporary folder beside `directory`, then moves it into place, the manifest last.

    Args:
        directory: The new preset. It may exist with other files in it.
        model: The model; its optimizer's state is left out.
        source_tokenizer, target_tokenizer: Its tokenizers.
        options: `max_length_ratio` and `max_length_constant` of the translator.

    Raises:
        FileExistsError: if `directory` already contains a preset, or part of one.
    """
    directory = Path(directory).absolute()
    existing = [name for name in NAMES if (directory / name).exists()]
    if existing or directory.is_file():
        raise FileExistsError(
            f"Expected {str(directory)!r} to contain no preset, which is never overwritten. "
            f"Received: {', '.join(existing) or 'a file of that name'}"
        )
    beside = directory.parent / f".tmp-{directory.name}-{os.getpid()}"
    beside.mkdir(parents=True)
    try:
        _without_optimizer(model).save(beside / "model.keras")
        source_tokenizer.save(beside / "source_tokenizer")
        target_tokenizer.save(beside / "target_tokenizer")
        manifest.write(beside, options)
        if directory.exists():
            for name in NAMES:
                os.replace(beside / name, directory / name)
        else:
            os.replace(beside, directory)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def load_preset(directory: str | os.PathLike) -> tuple[Seq2Seq, Tokenizer, Tokenizer, dict[str, float]]:
    """Loads a preset in Keras' safe mode.

    Returns:
        The model, the source tokenizer, the target tokenizer and the options, as given to `save_preset`.

    Raises:
        FileNotFoundError: if `directory` contains no preset, or a file of it is missing.
        ValueError: if a file is truncated or changed, or the format is unknown.
    """
    directory = Path(directory)
    options = manifest.read(directory, OPTIONS)
    model = keras.saving.load_model(directory / "model.keras", compile=False)
    tokenizers = (Tokenizer.load(directory / f"{side}_tokenizer") for side in ("source", "target"))
    return model, *tokenizers, options


def load_presets(
    directories: Sequence[str | os.PathLike], average: str
) -> tuple[Seq2Seq, Tokenizer, Tokenizer, dict[str, float]]:
    """Loads several presets as one model.

    Args:
        directories: Presets with the same tokenizers.
        average: "probability" or "log_probability" for an `Ensemble`; "weights" for `average_weights`.

    Returns:
        The model, and the tokenizers and options of the first preset.

    Raises:
        FileNotFoundError: see `load_preset`.
        ValueError: see `load_preset`; and if tokenizers differ, or models do not fit together.
    """
    from keras_attn.models import Ensemble, average_weights  # here, because a single preset needs neither

    if isinstance(directories, (str, os.PathLike)) or not directories:
        raise ValueError(f"Expected a list of presets. Received: {directories!r}")
    presets = [load_preset(directory) for directory in directories]
    _, *tokenizers, options = presets[0]
    for directory, (_, *others, _) in zip(directories, presets, strict=True):
        for side, tokenizer, other in zip(("source", "target"), tokenizers, others, strict=True):
            if tokenizer.fingerprint != other.fingerprint:
                raise ValueError(
                    f"Expected presets with the same tokenizers. Received: {str(directory)!r}, with another "
                    f"{side} tokenizer than {str(directories[0])!r}"
                )
    models = [model for model, *_ in presets]
    model = average_weights(models) if average == "weights" else Ensemble(models, average=average)
    return model, *tokenizers, options


def _without_optimizer(model: Seq2Seq) -> Seq2Seq:
    """An uncompiled copy of the model: with an optimizer, Keras would save its state, twice the size of the weights."""
    bare = type(model).from_config(model.get_config())
    bare.set_weights(model.get_weights())
    return bare
