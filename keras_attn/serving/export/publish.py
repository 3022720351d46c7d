"""Publication: a translator becomes the next version folder, checked before it appears, complete or not at all.

TensorFlow Serving watches a folder and loads each new integer that it finds, at once. So a version is written to a
folder beside it, in `.tmp-...` (a name that servers ignore), checked, synced to disk and then renamed. What an export
leaves there that is killed, the next one removes.
"""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from keras_attn import files
from keras_attn.requirements import require
from keras_attn.saving import rounded_model, save_preset, stored_size
from keras_attn.serving.export import custom_modules
from keras_attn.serving.export.options import ExportOptions
from keras_attn.serving.export.python_process import run_python
from keras_attn.serving.export.self_check import Reference, check_translations, reference_translations, replaying
from keras_attn.text import DEFAULT_IDS, Tokenizer
from keras_attn.translation import token_ids_of

if TYPE_CHECKING:
    from keras_attn.translation import Translator


def export_translator(
    translator: "Translator",
    directory: str | os.PathLike,
    *,
    sentences: Sequence[str] = (),
    report: Mapping[str, Any] | None = None,
    **options,
) -> Path:
    """Writes a SavedModel for TensorFlow Serving as a new version in `directory`; nothing is overwritten.

    | signature | in | out |
    |---|---|---|
    | serving_default, translate | text (B,) | translation (B,), score (B,) |
    | translate_n_best | text (B,) | translations, scores (B, K); source_tokens (B, S), source_lengths (B,); |
    |                  |           | target_tokens (B, K, T), target_lengths (B, K), alignments (B, K, T, S) |
    | translate_with_options | text (B,); length_penalty, max_length, max_length_ratio, min_length, | as translate |
    |                        | min_length_ratio (), each optional, 0 = no limit | |
    | translate_token_ids | token_ids (B, S) int32, lengths (B,) | token_ids (B, T), lengths (B,), score (B,) |
    | score | source (B,), target (B,) | log_prob (B,), lengths (B,) |

    Text is strings of any bytes: bytes that are not UTF-8 are read as by `bytes.decode(errors="replace")`. All outputs
    are those of `translator.generate` (of `translator.score`) for the same arguments, padded with "" and 0; blank text
    gives an empty translation, score 0 and lengths 0. The scalars of `translate_with_options` cannot be batched: a
    server with `--enable_batching` refuses this signature, and no other. Ids may come from any tokenizer with this
    vocabulary; pad, start and end ids among them are ignored, and ids outside the vocabulary are read as unknown.

    Beside the graph are warm-up records, `assets.extra/keras_attn.json` (its origin, the special ids of its
    vocabularies, and its signatures with their shapes) and `batching_params.pbtxt`; in `directory`, `models.config` and
    `README.md`.

    With `jit_compile`, XLA compiles the search of `translate`, `translate_with_options` and `translate_token_ids`, once
    for each of a few shapes to which batches are padded, and there a translator of `keras_attn.quantize` multiplies in
    int8. Not compiled, and in float32, are `translate_n_best`, `score`, and lines of more than 128 tokens, or whose
    translation may be longer than 512 or than the export's own options allow for 128. The stock server then needs its
    flag `--xla_cpu_compilation_enabled`. The warm-up records compile a program for each number of rows and of tokens up
    to 64, about a second each; other sizes of a shortlist are compiled at their first request.

    A translator of `with_shortlist` is exported with its shortlist: translations are those of `generate`, with scores
    among a sentence's tokens; `score` has the whole vocabulary. A sentence with a token that the shortlist does not
    know takes longer than without one.

    The graph is TensorFlow's. On another backend the translator is saved as a preset and exported by a TensorFlow
    process, which imports the modules that define custom layers. On every backend a fresh process, without XLA unless
    `jit_compile` asks for it, runs the warm-up records and translates a few sentences with the new version before it is
    published.

    Args:
        translator: A `keras_attn.Translator`, on any backend.
        directory: The model's folder, with a folder for each version: 1, 2, ...
        sentences: Source text for the warm-up records and for the README's examples; best a few dozen real sentences,
            short and long.
        report: The run's `report.json`, for the record.
        **options: The fields of `keras_attn.serving.export.options.ExportOptions`: `beam_size`, `length_penalty`,
            `max_length`, `n_best`, `banned_tokens`, `max_source_length`, `quantize`, `version`, ...

    Returns:
        The version's folder.

    Raises:
        ValueError: if an option is unknown or out of range, if custom layers are defined in `__main__` (on JAX and
            torch), if `jit_compile` is asked for outputs of more than 512 tokens, if a translator in int8 is exported
            with `jit_compile` and `quantize`, or if the SavedModel does not pass the checks before publication, with a
            sentence for each fault. Nothing is left behind.
        FileExistsError: if the version exists, or `directory` is a file.
        ImportError: if TensorFlow or tensorflow-text is not installed.
        OSError: if the version cannot be written. Nothing is left behind.
        RuntimeError: if the process on the other backend or the check in a fresh process fails.
    """
    require("tensorflow", "tensorflow", "tensorflow_text", purpose="export")
    options = ExportOptions.from_keywords(options)
    for tokenizer in (translator.source_tokenizer, translator.target_tokenizer):
        if tokenizer.level == "hugging_face":
            raise ValueError(
                "Expected tokenizers that a TensorFlow graph can repeat. Received: one that runs in Hugging Face's "
                "package tokenizers"
            )
        if tokenizer.level == "bpe" and tokenizer.special_ids != DEFAULT_IDS:
            raise ValueError(
                "Expected tokenizers that a TensorFlow graph can repeat. Received: a SentencePiece model of another "
                "program, of which tensorflow-text may make other pieces"
            )
    if translator.int8_weights is not None and options.jit_compile and options.quantize:
        raise ValueError(
            "Expected quantize=None with jit_compile for a translator that multiplies in int8. Received: "
            f"quantize={options.quantize!r}"
        )
    banned = tuple(token_ids_of(translator.target_tokenizer, options.banned_tokens))
    options = dataclasses.replace(options, banned_tokens=banned)
    directory = Path(directory).absolute()
    _check_free(directory, options.version)
    with files.staging(directory):  # refuses a folder that cannot be written now, not after the work
        pass
    is_tensorflow = keras.backend.backend() == "tensorflow"
    modules = [] if is_tensorflow else custom_modules.custom_modules(translator.model)
    references = reference_translations(_as_stored(translator, options), options)
    extras = {"references": references, "sentences": list(sentences), "report": dict(report or {})}
    if is_tensorflow:
        return write_version(translator, directory, options, **extras)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "preset")
        tokenizers = translator.source_tokenizer, translator.target_tokenizer
        save_preset(folder, translator.model, *tokenizers, length_limits(translator))
        request = {"options": dataclasses.asdict(options), "modules": modules, "path": custom_modules.search_path()}
        if translator.shortlist is not None:
            request["shortlist"] = str(Path(temporary, "shortlist.npz"))
            translator.shortlist.save(request["shortlist"])
        request["int8"] = options.jit_compile and translator.int8_weights is not None
        command = ["-m", "keras_attn.serving.export", str(folder), str(directory)]
        return Path(run_python(command, request | extras))


def write_version(
    engine: "Translator",
    directory: str | os.PathLike,
    options: ExportOptions,
    *,
    references: list[Reference],
    sentences: Sequence[str] = (),
    report: Mapping[str, Any] | None = None,
) -> Path:
    """`export_translator` on the TensorFlow backend; the version must reproduce the `references`."""
    from keras_attn.serving.export import graph, guides, metadata, validation, warmup

    directory = Path(directory).absolute()
    _check_free(directory, options.version)
    staging, sentences_of_errors = files.staging(directory), _as_sentences(directory)
    with staging as temporary, sentences_of_errors, replaying(temporary / "version", options) as replay:
        beside = temporary / "version"
        graph.ServedTranslator(engine, options).save(str(beside))
        tokenizers = {t.fingerprint: t for t in (engine.source_tokenizer, engine.target_tokenizer)}
        weights_size = stored_size(engine.model, options.quantize)
        if engine.shortlist is not None:
            weights_size += engine.shortlist.candidates.nbytes + engine.shortlist.always.nbytes
        in_int8 = engine.int8_weights if options.jit_compile else None
        if in_int8 is not None:
            weights_size += sum(matrix.values.shape.num_elements() for matrix in in_int8.matrices.values())
        sizes = weights_size, sum(map(tokenizer_size, tokenizers.values()))
        validation.validate(beside, *sizes, jit_compile=options.jit_compile)
        (beside / "assets.extra").mkdir(exist_ok=True)
        metadata.write_record(beside, engine, options, report or {})
        metadata.write_batching(beside)
        warmup.write_warmup(beside / "assets.extra", engine, options, sentences or [text for text, _ in references])
        check_translations(replay, references, "int8" if in_int8 else engine.model.compute_dtype)
        _sync(beside)
        for path in guides.write_guides(directory, sentences, engine.source_tokenizer, options.jit_compile):
            _sync_path(path)
        return _publish(beside, directory, options.version)


def tokenizer_size(tokenizer: Tokenizer) -> int:
    """Bytes that a tokenizer takes in a graph: its tokens, an id for each, and its model and character table."""
    size = sum(len(token.encode()) + 8 for token in tokenizer.vocabulary)
    return size + len(tokenizer.sentencepiece_model or b"") + 8 * len(tokenizer.character_table)


@contextlib.contextmanager
def _as_sentences(directory: Path) -> Iterator[None]:
    """TensorFlow's own errors, such as that of a full disk, become errors of the system."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(f"Expected a version to be written to {str(directory)!r}. Received: {error.message}") from error


def _as_stored(engine: "Translator", options: ExportOptions) -> "Translator":
    """The engine with the weights that the model has after quantization."""
    model = rounded_model(engine.model, options.quantize)
    if model is engine.model:
        return engine
    stored = type(engine)(model, engine.source_tokenizer, engine.target_tokenizer, **length_limits(engine))
    stored.shortlist = engine.shortlist
    return stored


def length_limits(engine: "Translator") -> dict[str, float]:
    """The translator's own limits, as a preset records them."""
    return {"max_length_ratio": engine.max_length_ratio, "max_length_constant": engine.max_length_constant}


def _check_free(directory: Path, version: int | None) -> None:
    if directory.exists() and not directory.is_dir():
        raise FileExistsError(f"Expected a folder for the versions. Received a file: {str(directory)!r}")
    if version is not None and (directory / str(version)).exists():
        raise _taken(directory / str(version))


def _taken(folder: Path) -> FileExistsError:
    return FileExistsError(f"Expected a new version. Received one that exists and is kept: {str(folder)!r}")


def _publish(beside: Path, directory: Path, version: int | None) -> Path:
    while True:
        folder = directory / str(version or _next_version(directory))
        if files.publish(beside, folder):
            _sync_path(directory)
            return folder
        if version is not None:  # another export has published it meanwhile
            raise _taken(folder)


def _next_version(directory: Path) -> int:
    numbers = [int(path.name) for path in directory.iterdir() if path.name.isascii() and path.name.isdigit()]
    return max(numbers, default=0) + 1


def _sync(directory: Path) -> None:
    """Syncs a folder to disk, so that no version is incomplete after a power failure."""
    for path in [*directory.rglob("*"), directory]:
        _sync_path(path)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
