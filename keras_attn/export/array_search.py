"""Export of the search of any model: from the arrays of its source to ids, or to text by a tokenizer of the target."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attn import files
from keras_attn.export.options import ExportOptions
from keras_attn.export.process import on_tensorflow
from keras_attn.export.saved_model import by_name, check_answers, check_tokenizers, check_version, publish_version
from keras_attn.models import Seq2Seq
from keras_attn.requirements import require
from keras_attn.saving import rounded_model
from keras_attn.search import SearchResult, banned_ids
from keras_attn.text import Tokenizer
from keras_attn.translation import token_ids_of

_SAMPLES, _TOKENIZER = "samples.npz", "target_tokenizer"
_EXPECTED = ("expected token_ids", "expected scores")  # beside the arrays of the source


def export_search(
    model: Seq2Seq, directory: str | os.PathLike, samples: Any, *, tokenizer: Tokenizer | None = None, **options
) -> Path:
    """Writes a SavedModel with a model and its search for TensorFlow Serving, as a new version in `directory`.

    | signature | in | out |
    |---|---|---|
    | serving_default, search | the source | token_ids (B, T), lengths (B,), score (B,) |
    | search_n_best | the source | token_ids (B, K, T), lengths, scores (B, K), alignments (B, K, T, S) |

    The source has the names, shapes and dtypes of the model's inputs; parts of a nested one are joined by "_". With a
    tokenizer there is also text, (B,) or (B, K). The outputs are those of `model.generate` for the same options. Beside
    the graph are warm-up records and `batching_params.pbtxt`. Before a version is published it is loaded, runs its
    warm-up records, and must find for the samples what `generate` finds. On JAX and torch a TensorFlow process exports,
    which imports the modules that define custom layers.

    Args:
        model: A `keras_attn.models.Seq2Seq`, on any backend.
        directory: The model's folder, with a folder for each version: 1, 2, ...
        samples: A few rows of the source as `generate` takes it, for the check and the warm-up records.
        tokenizer: Of the target; None: ids are all there is.
        **options: The fields of `keras_attn.export.ExportOptions`, `max_length` among them, but ratios of lengths and
            `jit_compile`. `banned_tokens` are ids without a tokenizer.

    Returns:
        The version's folder.

    Raises:
        ValueError: if an option is unknown or out of range, if custom layers are defined in `__main__` (on JAX and
            torch), or if the graph finds something else than `generate`. Nothing is left behind.
        FileExistsError, ImportError, OSError, RuntimeError: See `export_translator`.
    """
    require("tensorflow", "tensorflow", "tensorflow_text", "tensorflow_serving", purpose="export")
    options = ExportOptions.from_keywords(options)
    if options.max_length is None or options.max_length_ratio or options.min_length_ratio or options.jit_compile:
        raise ValueError(
            "Expected `max_length`, and no ratios of lengths and no `jit_compile`, for the search of a model. "
            f"Received: max_length={options.max_length}, max_length_ratio={options.max_length_ratio}, "
            f"min_length_ratio={options.min_length_ratio}, jit_compile={options.jit_compile}"
        )
    banned = options.banned_tokens
    if tokenizer is not None:
        check_tokenizers(tokenizer)
        banned = token_ids_of(tokenizer, banned)
    size = None if model.pointer else model.target_vocabulary_size  # which is wider by the source
    banned = banned_ids(banned, size, model.target_special_ids.end)
    options = dataclasses.replace(options, banned_tokens=tuple(banned))
    directory = Path(directory).absolute()
    check_version(directory, options.version)
    arrays = by_name(model.source_arrays(samples))
    found = rounded_model(model, options.quantize).generate(
        samples, **options.generate_arguments(), n_best=options.beam_size, return_alignments=False
    )
    with files.staging(directory) as temporary:
        folder = temporary / "version"
        expected = dict(zip(_EXPECTED, (zero_padded(found), found.scores), strict=True))
        np.savez(temporary / _SAMPLES, **arrays, **expected)
        if tokenizer is not None:
            tokenizer.save(temporary / _TOKENIZER)
        arguments = str(temporary), dataclasses.asdict(options), tokenizer is not None
        if keras.backend.backend() == "tensorflow":
            write_search(model, *arguments)
        else:
            on_tensorflow(write_search, model, *arguments)
        return publish_version(folder, directory, options.version)


def write_search(model: Seq2Seq, directory: str, options: Mapping[str, Any], has_tokenizer: bool) -> None:
    """Writes the version into a folder that has the samples and the tokenizer, on the TensorFlow backend."""
    import tensorflow as tf

    from keras_attn.export import assets
    from keras_attn.export.served_search import ServedSearch

    place, options = Path(directory), ExportOptions(**options)
    tokenizer = Tokenizer.load(place / _TOKENIZER) if has_tokenizer else None
    with np.load(place / _SAMPLES) as saved:
        arrays = {name: saved[name] for name in saved}
    expected = [arrays.pop(name) for name in _EXPECTED]
    tensors = {name: tf.constant(array) for name, array in arrays.items()}
    one = {name: tensor[:1] for name, tensor in tensors.items()}
    requests = [(name, inputs) for name in ("serving_default", "search", "search_n_best") for inputs in (one, tensors)]
    folder = place / "version"
    with assets.saved(ServedSearch(model, options, tokenizer), folder) as functions:
        answers = [functions[name](**inputs) for name, inputs in requests][1]
        check_ids(answers["token_ids"].numpy(), answers["score"].numpy(), *expected, model.compute_dtype)
        assets.write_server_files(folder, requests)


def zero_padded(result: SearchResult) -> np.ndarray:
    """The ids of a result, 0 after their end."""
    return np.where(np.arange(result.token_ids.shape[-1]) < result.lengths[..., None], result.token_ids, 0)


def check_ids(
    found: np.ndarray, found_scores: np.ndarray, token_ids: np.ndarray, scores: np.ndarray, dtype: str
) -> None:
    """Raises ValueError unless a graph found the best hypothesis of each sample, or one of nearly the same score.

    Args:
        found, found_scores: `(B, T)` and `(B,)`, padded with 0.
        token_ids, scores: `(B, K, L)` and `(B, K)`, the hypotheses of `generate`, best first.
        dtype: The precision in which the model computes.
    """
    references = [
        (f"sample {row}", [(ids.tolist(), float(score)) for ids, score in zip(*several, strict=True)])
        for row, several in enumerate(zip(token_ids, scores, strict=True))
    ]
    padded = np.zeros((len(found), token_ids.shape[-1]), token_ids.dtype)
    padded[:, : found.shape[1]] = found
    check_answers(references, list(zip(padded.tolist(), found_scores.tolist(), strict=True)), dtype)
