"""Publication: a translator as the next version folder, checked before it appears, whole or not there at all.

TensorFlow Serving watches a folder and loads each new integer that it finds, at once. So a version is written
into `.tmp-...` beside it (a name that servers ignore), checked, brought to disk and then renamed.
"""

import dataclasses
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_attn.decoding import token_ids_of
from keras_attn.serving.export import self_check as exemplary
from keras_attn.serving.export.options import Options
from keras_attn.serving.export.quantization import rounded, stored_size
from keras_attn.serving.export.self_check import Example
from keras_attn.text import Tokenizer
from keras_attn.translator import Translator


def export_translator(
    translator: Translator,
    directory: str | os.PathLike,
    *,
    banned_tokens: Sequence[str | int] = (),
    version: int | None = None,
    sentences: Sequence[str] = (),
    report: Mapping[str, Any] | None = None,
    **options,
) -> Path:
    """Writes a SavedModel for TensorFlow Serving as a new version below `directory`; overwrites nothing.

    | signature | in | out |
    |---|---|---|
    | serving_default, translate | text (B,) | translation (B,), score (B,) |
    | translate_n_best | text (B,) | translations, scores (B, K); source_tokens (B, S), source_lengths (B,); |
    |                  |           | target_tokens (B, K, T), target_lengths (B, K), alignments (B, K, T, S) |
    | translate_with_options | text (B,); length_penalty, max_length, max_length_ratio, min_length, | as translate |
    |                        | min_length_ratio (), each optional, 0 = not given | |
    | translate_token_ids | token_ids (B, S) int32, lengths (B,) | token_ids (B, T), lengths (B,), score (B,) |
    | score | source (B,), target (B,) | log_prob (B,), lengths (B,) |

    Text is strings of any bytes: what is not UTF-8 is read as by `bytes.decode(errors="replace")`. All answers
    are what `translator.generate` (`translator.score`) gives for the same arguments, padded with "" and 0; blank
    text gives an empty translation, score 0 and lengths 0. The scalars of `translate_with_options` cannot be
    batched: a server with `--enable_batching` refuses that one signature. Ids come from any tokenizer with this
    vocabulary; pad, start and end ids among them are passed over, and unknown ones are read as unknown.

    Beside the graph stand warm-up records, `assets.extra/keras_attn.json` (what it was made from, and its
    signatures with their shapes) and `batching_params.pbtxt`; in `directory`, `models.config` and `README.md`.

    The graph is TensorFlow's: on another backend the translator goes, as a preset, through a process of its
    own. Either way the written version runs its warm-up records and translates a few sentences in a fresh
    process, without XLA, before it is published.

    Args:
        translator: A `keras_attn.Translator`, on any backend.
        directory: The model's folder, with a folder for each version: 1, 2, ...
        banned_tokens: As in `Translator.generate`.
        version: A whole number above 0; None: one more than the highest that is there.
        sentences: Source text for the warm-up records; best a few dozen real sentences, short and long.
        report: The run's `report.json`, for the record.
        options: Those of `keras_attn.serving.export.options.Options` (beam_size, length_penalty, max_length,
            max_length_ratio, min_length, min_length_ratio, n_best, max_source_length, quantize, ...), fixed in the
            graph; and further keyword arguments of `keras_attn.search.beam_search`.

    Returns:
        The version's folder.

    Raises:
        ValueError: for an option out of range, or where the gate refuses what was written, with a sentence
            for each reason; nothing is then left behind.
        FileExistsError: if that version exists, or `directory` is a file.
        RuntimeError: if the process on the other backend or the replay fails.
    """
    own = {field.name: options.pop(field.name) for field in dataclasses.fields(Options) if field.name in options}
    if banned := token_ids_of(translator.target_tokenizer, banned_tokens):
        options["banned_token_ids"] = banned
    options = Options(**own | {"search": {**own.get("search", {}), **options}})
    directory = Path(directory).absolute()
    _check_free(directory, version)
    examples = exemplary.examples_of(_as_stored(translator, options), options)
    extras = {"sentences": list(sentences), "report": dict(report or {})}
    if keras.backend.backend() == "tensorflow":
        return write_version(translator, directory, options, version, examples, **extras)
    with tempfile.TemporaryDirectory() as folder:
        preset = Path(folder, "preset")
        translator.save_to_preset(preset)
        request = {"options": dataclasses.asdict(options), "version": version, "examples": examples, **extras}
        command = ["-m", "keras_attn.serving.export", str(preset), str(directory)]
        return Path(exemplary.run_python(command, request))


def write_version(
    translator: Translator,
    directory: str | os.PathLike,
    options: Options,
    version: int | None,
    examples: list[Example],
    sentences: Sequence[str] = (),
    report: Mapping[str, Any] | None = None,
) -> Path:
    """`export_translator` on the TensorFlow backend; `examples` are what the version must be found to say."""
    from keras_attn.serving.export import graph, warmup
    from keras_attn.serving.export import metadata as about
    from keras_attn.serving.export import validation as gate

    directory = Path(directory).absolute()
    _check_free(directory, version)
    directory.mkdir(parents=True, exist_ok=True)
    beside = directory / f".tmp-{uuid.uuid4().hex}"
    try:
        graph.ServedTranslator(translator, options).save(str(beside))
        tokenizers = {t.fingerprint: t for t in (translator.source_tokenizer, translator.target_tokenizer)}
        weights_size = stored_size(translator.model, options.quantize)
        gate.check(beside, weights_size, sum(map(tokenizer_size, tokenizers.values())))
        (beside / "assets.extra").mkdir(exist_ok=True)
        about.write_record(beside, translator, options, report or {})
        about.write_batching(beside)
        warmup.write(beside / "assets.extra", translator, sentences or [text for text, _ in examples])
        exemplary.check(beside, examples, translator.model.compute_dtype)
        _sync(beside)
        for path in about.write_guides(directory):
            _sync_path(path)
        return _publish(beside, directory, version)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def tokenizer_size(tokenizer: Tokenizer) -> int:
    """Bytes that a tokenizer should take in a graph: its tokens, and its model or an id for each."""
    size = sum(len(token.encode()) + 8 for token in tokenizer.vocabulary)
    return size + len(tokenizer.sentencepiece_model or b"") + 8 * len(tokenizer.character_table)


def _as_stored(translator: Translator, options: Options) -> Translator:
    """The translator with what storage leaves of its weights."""
    model = rounded(translator.model, options.quantize)
    if model is translator.model:
        return translator
    limits = {"max_length_ratio": translator.max_length_ratio, "max_length_constant": translator.max_length_constant}
    return Translator(model, translator.source_tokenizer, translator.target_tokenizer, **limits)


def _check_free(directory: Path, version: int | None) -> None:
    if directory.exists() and not directory.is_dir():
        raise FileExistsError(f"Expected a folder for the versions. Received a file: {str(directory)!r}")
    if version is None:
        return
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"Expected version to be a whole number of at least 1. Received: {version!r}")
    if (directory / str(version)).exists():
        raise _taken(directory / str(version))


def _taken(folder: Path) -> FileExistsError:
    return FileExistsError(f"Expected a new version. {str(folder)!r} exists, and is kept.")


def _publish(beside: Path, directory: Path, version: int | None) -> Path:
    while True:
        folder = directory / str(version or _next_version(directory))
        try:
            os.rename(beside, folder)  # fails where another export has put a version meanwhile
        except OSError:
            if not folder.exists():
                raise
            if version is not None:
                raise _taken(folder) from None
        else:
            _sync_path(directory)
            return folder


def _next_version(directory: Path) -> int:
    numbers = [int(path.name) for path in directory.iterdir() if path.name.isascii() and path.name.isdigit()]
    return max(numbers, default=0) + 1


def _sync(directory: Path) -> None:
    """Brings a folder to disk, so that a name never stands for half a version after a power cut."""
    for path in [*directory.rglob("*"), directory]:
        _sync_path(path)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
