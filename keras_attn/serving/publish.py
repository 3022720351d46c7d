"""Publication: a translator as the next version folder, checked before it appears, whole or not there at all.

TensorFlow Serving watches a folder and loads each new integer that it finds, at once. So a version is written
into `.tmp-...` beside it (a name that servers ignore), checked, brought to disk and then renamed.
"""

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

import keras

from keras_attn.search_models import token_ids_of
from keras_attn.serving.options import Options
from keras_attn.tokenizer import SPECIAL_TOKENS, Tokenizer
from keras_attn.translator import Translator

Example = tuple[str, list[tuple[str, float]]]  # text, and its translations with their scores, best first
REPLAY = Path(__file__).with_name("replay.py")
REFUSED = 2  # exit status of `keras_attn.serving.export`, whose last line is then "NameOfTheError: sentence"
REFUSALS = {error.__name__: error for error in (ValueError, FileExistsError, FileNotFoundError)}
RECORD = "keras_attn.json"  # in assets.extra/, which servers leave alone but for their warm-up records


def export_translator(
    translator: Translator,
    directory: str | os.PathLike,
    *,
    beam_size: int = 5,
    length_penalty: float = 1.0,
    max_length: int | None = None,
    max_source_length: int = 4096,
    banned_tokens: Sequence[str | int] = (),
    version: int | None = None,
    **search_options,
) -> Path:
    """Writes a SavedModel for TensorFlow Serving as a new version below `directory`; overwrites nothing.

    Its signature `serving_default` takes `text (B,)`, strings of any bytes, and gives `translation (B,)` and
    `score (B,)` float32: what `translator.generate` gives for the same arguments. Blank text gives an empty
    translation with score 0. Bytes that are not UTF-8 are read as by `bytes.decode(errors="replace")`.

    The graph is TensorFlow's: on another backend the translator goes, as a preset, through a process of its
    own. Either way the written version translates a few sentences in a fresh process, without XLA, before it
    is published.

    Args:
        translator: A `keras_attn.Translator`, on any backend.
        directory: The model's folder, with a folder for each version: 1, 2, ...
        beam_size, length_penalty, max_length, banned_tokens: As in `Translator.generate`; fixed in the graph.
        max_source_length: Source tokens that are read of a line, end token included; the rest is left out.
        version: A whole number above 0; None: one more than the highest that is there.
        search_options: Further keyword arguments of `keras_attn.search.beam_search`.

    Returns:
        The version's folder.

    Raises:
        ValueError: for an option out of range, or where the gate refuses what was written, with a sentence
            for each reason; nothing is then left behind.
        FileExistsError: if that version exists, or `directory` is a file.
        RuntimeError: if the process on the other backend or the replay fails.
    """
    if banned := token_ids_of(translator.target_tokenizer, banned_tokens):
        search_options["banned_token_ids"] = banned
    options = Options(beam_size, length_penalty, max_length, max_source_length, search=search_options)
    directory = Path(directory).absolute()
    _check_free(directory, version)
    examples = _examples(translator, options)
    if keras.backend.backend() == "tensorflow":
        return write_version(translator, directory, options, version, examples)
    with tempfile.TemporaryDirectory() as folder:
        preset = Path(folder, "preset")
        translator.save_to_preset(preset)
        request = {"options": dataclasses.asdict(options), "version": version, "examples": examples}
        command = ["-m", "keras_attn.serving.export", str(preset), str(directory)]
        return Path(_run_python(command, request))


def write_version(
    translator: Translator,
    directory: str | os.PathLike,
    options: Options,
    version: int | None,
    examples: list[Example],
) -> Path:
    """`export_translator` on the TensorFlow backend; `examples` are what the version must be found to say."""
    from keras_attn.serving import gate, graph

    directory = Path(directory).absolute()
    _check_free(directory, version)
    directory.mkdir(parents=True, exist_ok=True)
    beside = directory / f".tmp-{uuid.uuid4().hex}"
    try:
        module = graph.ServedTranslator(translator, options)
        module.save(str(beside))
        _write_record(beside, translator, options)
        tokenizers = {t.fingerprint: t for t in (translator.source_tokenizer, translator.target_tokenizer)}
        gate.check(beside, weights_size(translator), sum(map(tokenizer_size, tokenizers.values())))
        _check_examples(beside, examples, translator.model.compute_dtype)
        _sync(beside)
        return _publish(beside, directory, version)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def weights_size(translator: Translator) -> int:
    """Bytes that the model's weights take, on the TensorFlow backend."""
    return sum(math.prod(weight.shape) * weight.value.dtype.size for weight in translator.model.weights)


def tokenizer_size(tokenizer: Tokenizer) -> int:
    """Bytes that a tokenizer should take in a graph: its model, or its tokens and an id for each."""
    if tokenizer.sentencepiece_model is not None:
        return len(tokenizer.sentencepiece_model)
    return sum(len(token.encode()) + 8 for token in tokenizer.vocabulary) + 8 * len(tokenizer.character_table)


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


def _examples(translator: Translator, options: Options) -> list[Example]:
    """Text of the source's own tokens, from nothing to a sentence, with all that `generate` makes of it."""
    tokenizer = translator.source_tokenizer
    first, size = len(SPECIAL_TOKENS), tokenizer.vocabulary_size
    lengths = [length for length in (1, 3, 11) if length < options.max_source_length]
    texts = [
        tokenizer.decode([first + (29 * length + 7 * i) % (size - first) for i in range(length)]) for length in lengths
    ]
    texts += ["", " \t\u3000", "\u00e9\ufffd\U0001f600"]
    arguments = {"n_best": options.beam_size, "return_alignments": False, **options.generate_arguments()}
    best = [t.n_best or (t,) for t in translator.generate(texts, **arguments)]
    return [(text, [(t.text, t.score) for t in several]) for text, several in zip(texts, best, strict=True)]


def _check_examples(directory: Path, examples, dtype: str) -> None:
    """Refuses a version that says something else than `generate`, in one batch or sentence by sentence."""
    texts = [text.encode().hex() for text, _ in examples]
    answer = json.loads(_run_python(["-P", str(REPLAY), str(directory)], [texts, texts[:1]]))
    # Another compiler adds in another order: hypotheses of nearly the same score may change places.
    tolerance = 1e-4 if dtype == "float32" else 3e-2
    for batch in answer["batches"]:
        for (text, expected), found, score in zip(examples, batch["translation"], batch["score"], strict=False):
            found, (first, best) = bytes.fromhex(found).decode(errors="replace"), expected[0]
            near = tolerance * (1 + abs(best))
            same = [other for other, its in expected if other == found and abs(its - best) <= near]
            if not (same and abs(score - best) <= near):
                raise ValueError(
                    f"Expected the exported graph to translate {text!r} to {first!r} with score {best:.6f}. "
                    f"It gives {found!r} with score {score:.6f}."
                )


def _write_record(directory: Path, translator: Translator, options: Options) -> None:
    import tensorflow

    import keras_attn

    record = {
        "format": "keras_attn.serving",
        "version": 1,
        "signatures": {"serving_default": {"inputs": ["text"], "outputs": ["translation", "score"]}},
        "model": type(translator.model).__name__,
        "parameters": translator.model.count_params(),
        "options": dataclasses.asdict(options),
        "max_length_ratio": translator.max_length_ratio,
        "max_length_constant": translator.max_length_constant,
        "versions": {m.__name__: m.__version__ for m in (keras_attn, keras, tensorflow)},
    }
    (directory / "assets.extra").mkdir()
    text = json.dumps(record, indent=2) + "\n"
    (directory / "assets.extra" / RECORD).write_text(text, encoding="utf-8")


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


def _run_python(arguments: list[str], request) -> str:
    """The last line printed by a Python process, on TensorFlow without accelerators, given JSON on stdin."""
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    own = {
        "KERAS_BACKEND": "tensorflow",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": path,
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        env=os.environ | own,
    )
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    last = lines[-1] if lines else "no output"
    name, _, sentence = last.partition(": ")
    if done.returncode == REFUSED and name in REFUSALS:
        raise REFUSALS[name](sentence)
    if done.returncode:
        raise RuntimeError(f"Expected {' '.join(arguments[:2])} to succeed. It ended with {done.returncode}: {last}")
    return last
