"""A preset: a folder with a model, its tokenizers, a manifest and a card. An incomplete one is refused."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_attn import files
from keras_attn.models import Seq2Seq, copy_model
from keras_attn.saving import manifest
from keras_attn.saving.card import CARD, model_card
from keras_attn.saving.model_file import DTYPES, load_model, narrow
from keras_attn.saving.registry import locate
from keras_attn.text import Tokenizer

MANIFEST = "translator.json"
_FORMAT = {"format": "keras_attn.translator", "version": 1}
# In the order in which they are moved into place. A folder is never moved onto another one, so that of two processes
# that save at once, one is refused before it has moved anything.
NAMES = (*manifest.TOKENIZERS, "model.keras", MANIFEST)
_STAGED = "preset"


def save_preset(
    directory: str | os.PathLike,
    model: Seq2Seq,
    source_tokenizer: Tokenizer | None,
    target_tokenizer: Tokenizer,
    options: Mapping[str, float | None],
    *,
    dtype: str | None = None,
    report: Mapping[str, Any] | None = None,
) -> None:
    """Writes a preset to a temporary folder in `directory`, then moves it into place, the manifest last.

    After it comes the card, README.md, unless `directory` has a file of this name: it is for people, who may change it.

    What a process left in `directory` that was killed while it saved a preset is removed first.

    Args:
        directory: The new preset. It may exist with other files in it.
        model: The model; its optimizer's state is left out.
        source_tokenizer, target_tokenizer: Its tokenizers; the first is None where the source is no text.
        options: `max_length_ratio`, `max_length_constant` and, if it is known, `trained_length` of the translator.
        dtype: "float16" or "int8" to store matrices in fewer bits; None: as they are.
        report: The run's report, for the card; see `keras_attn.saving.model_card`.

    Raises:
        ValueError: if `dtype` is another.
        FileExistsError: if `directory` already contains a preset, or part of one.
        OSError: if it cannot be written, or the disk is full.

    Example:
        >>> options = {"max_length_ratio": 2.0, "max_length_constant": 10.0, "trained_length": 60}
        >>> keras_attn.saving.save_preset("preset", model, source_tokenizer, target_tokenizer, options)
        >>> keras_attn.saving.load_preset("preset")[3]
        {'max_length_ratio': 2.0, 'max_length_constant': 10.0, 'trained_length': 60}
    """
    if dtype not in (None, *DTYPES):
        raise ValueError(f'Expected `dtype` to be None, "float16" or "int8". Received: {dtype!r}')
    directory = Path(directory).absolute()
    if directory.is_dir():
        _undo_killed(directory)
    _refuse_taken(directory)
    with files.staging(directory) as folder:
        preset = folder / _STAGED
        preset.mkdir()
        # Of an uncompiled copy: with an optimizer, Keras would save its state, twice the size of the weights.
        copy_model(model, model.name).save(preset / "model.keras")
        if dtype:
            narrow(preset / "model.keras", dtype)
        for name, tokenizer in zip(manifest.TOKENIZERS, (source_tokenizer, target_tokenizer), strict=True):
            if tokenizer is not None:
                tokenizer.save(preset / name)
        manifest.write(preset / MANIFEST, _FORMAT, {"options": options})
        first, *others = [name for name in NAMES if (preset / name).exists()]
        if not files.publish(preset / first, directory / first):
            _refuse_taken(directory)
        for name in others:
            files.move(preset / name, directory / name)
        if not (directory / CARD).exists():
            sizes = {"model": type(model).__name__, "parameters": model.count_params()}
            sizes |= {"dtype": dtype or model.dtype, "reads_text": source_tokenizer is not None}
            text = model_card(directory.name, **sizes, report=report or {})
            (folder / CARD).write_text(text, encoding="utf-8")
            files.move(folder / CARD, directory / CARD)


def _refuse_taken(directory: Path) -> None:
    existing = [name for name in NAMES if (directory / name).exists()]
    if existing or directory.is_file():
        raise FileExistsError(
            f"Expected {str(directory)!r} to contain no preset, which is never overwritten. "
            f"Received: {', '.join(existing) or 'a file of that name'}"
        )


def _undo_killed(directory: Path) -> None:
    """Takes back what a process had already moved into place when it was killed."""
    for folder in files.leftovers(directory):
        preset = folder / _STAGED
        if not (preset / MANIFEST).exists():  # nothing was moved yet, or everything
            continue
        for path in [directory / name for name in NAMES if not (preset / name).exists()]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def load_preset(preset: str | os.PathLike) -> tuple[Seq2Seq, Tokenizer | None, Tokenizer, dict[str, Any]]:
    """Loads a preset in Keras' safe mode.

    Args:
        preset: A folder, the name of a registered preset or "hf://USER/NAME": see `keras_attn.saving.locate`.

    Returns:
        The model, the source tokenizer, the target tokenizer and the options, as given to `save_preset`; a source
        tokenizer that it has not and a `trained_length` that is not known are None.

    Raises:
        FileNotFoundError: if the folder contains no preset, or a file of it is missing; and see `locate`.
        ValueError: if a file is truncated or changed, or the format is unknown; and see `locate`.

    Example:
        >>> translator.save_to_preset("preset")
        >>> model, source_tokenizer, target_tokenizer, options = keras_attn.saving.load_preset("preset")
        >>> type(model).__name__
        'RNNSearch'
    """
    directory = locate(preset)
    source, target = (directory / name for name in manifest.TOKENIZERS)
    optional, *required = (*manifest.TOKENIZER_FILES, "model.keras")
    options = manifest.read(
        directory / MANIFEST,
        "a preset",
        _FORMAT,
        [*required, *([optional] if source.exists() else [])],
        lambda found: manifest.length_arguments(found["options"]),
        optional=[optional],
    )
    source_tokenizer = Tokenizer.load(source) if source.exists() else None
    return load_model(directory / "model.keras"), source_tokenizer, Tokenizer.load(target), options


def load_presets(
    directories: Sequence[str | os.PathLike], average: str
) -> tuple[Seq2Seq, Tokenizer | None, Tokenizer, dict[str, Any]]:
    """Loads several presets as one model.

    Args:
        directories: Presets with the same tokenizers.
        average: "probability" or "log_probability" for an `Ensemble`; "weights" for `average_weights`.

    Returns:
        The model, and the tokenizers and options of the first preset.

    Raises:
        FileNotFoundError: see `load_preset`.
        ValueError: see `load_preset`; and if tokenizers differ, or models do not fit together.

    Example:
        >>> translator.save_to_preset("first"), translator.save_to_preset("second")
        (None, None)
        >>> model, *_ = keras_attn.saving.load_presets(["first", "second"], "probability")
        >>> type(model).__name__
        'Ensemble'
    """
    from keras_attn.models import Ensemble, average_weights  # here, because a single preset needs neither

    if isinstance(directories, (str, os.PathLike)) or not directories:
        raise ValueError(f"Expected a list of presets. Received: {directories!r}")
    presets = [load_preset(directory) for directory in directories]
    _, *tokenizers, options = presets[0]
    for directory, (_, *others, _) in zip(directories, presets, strict=True):
        for side, tokenizer, other in zip(("source", "target"), tokenizers, others, strict=True):
            if getattr(tokenizer, "fingerprint", None) != getattr(other, "fingerprint", None):
                raise ValueError(
                    f"Expected presets with the same tokenizers. Received: {str(directory)!r}, with another "
                    f"{side} tokenizer than {str(directories[0])!r}"
                )
    models = [model for model, *_ in presets]
    model = average_weights(models) if average == "weights" else Ensemble(models, average=average)
    return model, *tokenizers, options
