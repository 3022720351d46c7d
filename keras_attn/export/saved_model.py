"""Export to TensorFlow Serving: a translator becomes the next version folder, complete and checked, or not at all.

TensorFlow Serving watches a folder and loads each new integer that it finds, at once. So a version is written to a
folder beside it, in `.tmp-...` (a name that servers ignore), checked and then moved into place. The next export removes
the leftovers of a killed one.
"""

import contextlib
import dataclasses
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import keras
from keras import tree

from keras_attn import files
from keras_attn.export.options import ExportOptions
from keras_attn.export.process import on_tensorflow
from keras_attn.requirements import require
from keras_attn.saving import rounded_model
from keras_attn.text import DEFAULT_IDS, Tokenizer
from keras_attn.translation import Translator, token_ids_of

Reference = tuple[str, list[tuple[Any, float]]]  # a text, and its translations with their scores, best first


def export_translator(
    translator: Translator,
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

    Beside the graph are warm-up records, `assets.extra/keras_attn.json` (its origin, its options and the special ids of
    its vocabularies) and `batching_params.pbtxt`.

    With `jit_compile`, XLA compiles the search of `translate`, `translate_with_options` and `translate_token_ids` for a
    few shapes of batches, and there a translator of `keras_attn.quantize` multiplies in int8. Not compiled, and in
    float32, are `translate_n_best`, `score`, and lines of more than 128 tokens, or whose translation may be longer than
    512 or than the export's own options allow for 128. The server then needs its flag
    `--xla_cpu_compilation_enabled`.

    A translator of `with_shortlist` is exported with its shortlist: translations are those of `generate`, with scores
    among a sentence's tokens; `score` has the whole vocabulary.

    The graph is TensorFlow's. On another backend the translator is saved as a preset and exported by a TensorFlow
    process, which imports the modules that define custom layers. A custom layer must compute with operations that the
    stock server has: no calls to Python, no XLA. Before a version is published it is loaded, runs its warm-up records
    and translates a few sentences.

    Args:
        translator: A `keras_attn.Translator`, on any backend.
        directory: The model's folder, with a folder for each version: 1, 2, ...
        sentences: Source text for the warm-up records; best a few dozen real sentences, short and long.
        report: The run's `report.json`, for the record.
        **options: The fields of `keras_attn.export.ExportOptions`: `beam_size`, `length_penalty`, `max_length`,
            `n_best`, `banned_tokens`, `max_source_length`, `quantize`, `version`, ...

    Returns:
        The version's folder.

    Raises:
        ValueError: if an option is unknown or out of range, if custom layers are defined in `__main__` (on JAX and
            torch), if `jit_compile` is asked for outputs of more than 512 tokens, if a translator in int8 is exported
            with `jit_compile` and `quantize`, or if the graph translates otherwise than `generate`. Nothing is left
            behind.
        FileExistsError: if the version exists, or `directory` is a file.
        ImportError: if TensorFlow, tensorflow-text or tensorflow-serving-api is not installed.
        OSError: if the version cannot be written. Nothing is left behind.
        RuntimeError: if the process on the other backend fails.
    """
    require("tensorflow", "tensorflow", "tensorflow_text", "tensorflow_serving", purpose="export")
    options = ExportOptions.from_keywords(options)
    check_tokenizers(translator.source_tokenizer, translator.target_tokenizer)
    int8 = options.jit_compile and translator.int8_weights is not None
    if int8 and options.quantize:
        raise ValueError(
            "Expected quantize=None with jit_compile for a translator that multiplies in int8. Received: "
            f"quantize={options.quantize!r}"
        )
    banned = tuple(token_ids_of(translator.target_tokenizer, options.banned_tokens))
    options = dataclasses.replace(options, banned_tokens=banned)
    directory = Path(directory).absolute()
    check_version(directory, options.version)
    with files.staging(directory) as temporary:
        folder = temporary / "version"
        references = reference_translations(translator, options)
        arguments = str(folder), dataclasses.asdict(options), references, list(sentences), dict(report or {})
        if keras.backend.backend() == "tensorflow":
            write_version(translator, *arguments)
        else:
            on_tensorflow(write_version, translator, *arguments, int8=int8)
        return publish_version(folder, directory, options.version)


def write_version(
    translator: Translator,
    directory: str,
    options: Mapping[str, Any],
    references: list[Reference],
    sentences: Sequence[str],
    report: Mapping[str, Any],
) -> None:
    """Writes a version into a new folder, on the TensorFlow backend; it must reproduce the `references`.

    All arguments but the translator are values that JSON has; `options` are the fields of `ExportOptions`.
    """
    from keras_attn.export import assets, signatures

    folder, options = Path(directory), ExportOptions(**options)
    requests = assets.warm_up_requests(translator, options, sentences or [text for text, _ in references])
    in_int8 = options.jit_compile and translator.int8_weights is not None
    dtype = "int8" if in_int8 else translator.model.compute_dtype
    with assets.saved(signatures.ServedTranslator(translator, options), folder) as functions:
        check_signatures(functions, references, requests, dtype)
        assets.write_assets(folder, translator, options, requests, report)


def by_name(structure: Any) -> dict[str, Any]:
    """The leaves of a nested structure by their paths, in the order of `tree.flatten`."""
    return {"_".join(map(str, path)): x for path, x in tree.flatten_with_path(structure)}


def check_tokenizers(*tokenizers: Tokenizer) -> None:
    for tokenizer in tokenizers:
        if tokenizer.level == "hugging_face":
            received = "one that runs in Hugging Face's package tokenizers"
        elif tokenizer.level == "bpe" and tokenizer.special_ids != DEFAULT_IDS:
            received = "a SentencePiece model of another program, of which tensorflow-text may make other pieces"
        else:
            continue
        raise ValueError(f"Expected tokenizers that a TensorFlow graph can repeat. Received: {received}")


def check_version(directory: Path, version: int | None) -> None:
    """Raises FileExistsError if the version exists, or the folder is a run or a preset."""
    if (directory / "translator.json").exists():
        raise FileExistsError(f"Expected a folder for versions. Received one of a run or a preset: {str(directory)!r}")
    if version is not None and (directory / str(version)).exists():
        raise _taken(directory / str(version))


def publish_version(new: Path, directory: Path, version: int | None) -> Path:
    """Makes a folder the version with this number; None: with the next one."""
    while True:
        numbers = [int(path.name) for path in directory.iterdir() if path.name.isascii() and path.name.isdigit()]
        folder = directory / str(version or max(numbers, default=0) + 1)
        if files.publish(new, folder):
            return folder
        if version is not None:  # another export has published it meanwhile
            raise _taken(folder)


def _taken(folder: Path) -> FileExistsError:
    return FileExistsError(f"Expected a new version. Received one that exists and is kept: {str(folder)!r}")


def reference_translations(translator: Translator, options: ExportOptions) -> list[Reference]:
    """Texts of the source vocabulary, empty to sentence-long, with all hypotheses of `generate` for each.

    They are computed with the weights that the export stores, and each is short enough to be read whole.
    """
    translator = copy(translator)
    translator.model = rounded_model(translator.model, options.quantize)
    if not options.jit_compile:  # such a graph multiplies in float32
        translator.int8_weights = None
    tokenizer = translator.source_tokenizer
    ids = tokenizer.special_ids.ordinary(tokenizer.vocabulary_size)
    texts = [tokenizer.decode([ids[(29 * length + 7 * i) % len(ids)] for i in range(length)]) for length in (1, 3, 11)]
    texts += ["", " \t\u3000"]
    if tokenizer.special_ids.unknown is not None:
        texts += ["\u00e9\ufffd\U0001f600"]
    texts = [text for text in texts if len(tokenizer.encode(text)) < options.max_source_length]
    arguments = {**options.generate_arguments(), "n_best": options.beam_size, "return_alignments": False}
    with without_warnings_of_letters():
        hypotheses = [t.n_best or (t,) for t in translator.generate(texts, **arguments)]
    return [(text, [(t.text, t.score) for t in several]) for text, several in zip(texts, hypotheses, strict=True)]


@contextlib.contextmanager
def without_warnings_of_letters() -> Iterator[None]:
    """Keeps warnings of letters that the model has not seen from the user, whose texts a check's are not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Expected letters that the model has seen")
        yield


def check_signatures(
    functions: Mapping[str, Callable], references: list[Reference], requests: Iterable, dtype: str
) -> None:
    """Runs the warm-up requests, and translates the references together and the first alone.

    Args:
        functions: The signatures of a version, as `tf.saved_model.load` gives them.
        references, dtype: See `check_answers`.
        requests: From `warm_up_requests`.

    Raises:
        ValueError: if a translation or its score differs from the reference.
    """
    import tensorflow as tf

    for name, inputs in requests:
        functions[name](**inputs)
    for some in (references, references[:1]):
        found = functions["serving_default"](text=tf.constant([text for text, _ in some]))
        texts = [text.decode(errors="replace") for text in found["translation"].numpy()]
        check_answers(some, list(zip(texts, found["score"].numpy().tolist(), strict=True)), dtype)


def check_answers(references: list[Reference], answers: list[tuple[Any, float]], dtype: str) -> None:
    """Compares references with answers, each a translation, or ids, and its score.

    Args:
        references: From `reference_translations`.
        answers: As many.
        dtype: The precision in which the model computes; "int8" for that of its products.

    Raises:
        ValueError: if a translation or its score differs from the reference.
    """
    # Another compiler adds in another order, so hypotheses of nearly the same score may change places.
    tolerance = 1e-4 if dtype == "float32" else 3e-2
    for (text, expected), (received, score) in zip(references, answers, strict=True):
        first, best = expected[0]
        near = tolerance * (1 + abs(best))
        is_tie = any(other == received and abs(its - best) <= near for other, its in expected)
        if not (is_tie and abs(score - best) <= near):
            raise ValueError(
                f"Expected the exported graph to turn {text!r} into {first!r} with score {best:.6f}. "
                f"Received: {received!r} with score {score:.6f}"
            )
