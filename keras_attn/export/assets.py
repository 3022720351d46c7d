"""The files of a version beside its graph: warm-up records, a record of its origin, and batching parameters.

A server runs the warm-up records before it accepts traffic, because each first call is slow.
"""

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_attn.export import search
from keras_attn.export.options import ExportOptions
from keras_attn.export.signatures import Served
from keras_attn.export.tokenizers import without_sentencepiece_log
from keras_attn.text import BLANKS
from keras_attn.translation import Translator

WARM_UP = "tf_serving_warmup_requests"  # a TFRecord file of `PredictionLog` messages
BATCH_SIZES = (1, 8, 32)
LONGEST_COMPILED = 64  # source tokens: for longer ones a program is compiled at the first request for it
RECORD = "keras_attn.json"  # in assets.extra/, of which servers read the warm-up records only
# The entries of a run's report that are copied: where the weights come from, and how good they are.
REPORTED = ("recipe", "corpus", "command", "seed", "updates", "backend", "beam_size", "test_sentences")
SCORES = ("bleu", "greedy_bleu", "chrf", "ter", "wer", "greedy_wer", "per")
MAX_BATCH_SIZE = 64  # sentences that a server joins; the graph splits them into chunks of similar lengths

Request = tuple[str, dict[str, tf.Tensor]]  # a signature and its inputs


@contextlib.contextmanager
def saved(served: Served, folder: Path) -> Iterator[Mapping[str, Callable]]:
    """Writes the graph of a version, loads it where a server runs it, on the CPU, and gives its signatures.

    Raises:
        OSError: for an error of TensorFlow, there or in the block: of a full disk, for example.
    """
    try:
        served.save(str(folder))
        with tf.device("CPU"), without_graph_optimizer():
            with without_sentencepiece_log():
                loaded = tf.saved_model.load(str(folder))
            yield loaded.signatures
    except tf.errors.OpError as error:
        raise OSError(f"Expected a version that can be written and run. Received: {error.message}") from error


@contextlib.contextmanager
def without_graph_optimizer() -> Iterator[None]:
    """Disables Grappler, TensorFlow's graph optimizer, which takes longer than the few calls of a check."""
    before = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before})


def write_assets(
    folder: Path,
    engine: Translator,
    options: ExportOptions,
    requests: list[Request],
    report: Mapping[str, Any],
) -> None:
    """Writes the files into a version's folder."""
    write_server_files(folder, requests)
    text = json.dumps(_record(engine, options, report), indent=2, ensure_ascii=False) + "\n"
    (folder / "assets.extra" / RECORD).write_text(text, encoding="utf-8")


def write_server_files(folder: Path, requests: list[Request]) -> None:
    """Writes the files that a server reads: warm-up records and batching parameters."""
    extra = folder / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / WARM_UP)) as writer:
        for signature, inputs in requests:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.model_spec.signature_name = signature
            for name, tensor in inputs.items():
                log.predict_log.request.inputs[name].CopyFrom(tf.make_tensor_proto(tensor.numpy()))
            writer.write(log.SerializeToString(deterministic=True))
    threads = os.cpu_count() or 1
    (folder / "batching_params.pbtxt").write_text(  # for --enable_per_model_batching_parameters
        f"max_batch_size {{ value: {MAX_BATCH_SIZE} }}\n"
        "batch_timeout_micros { value: 2000 }\n"
        f"num_batch_threads {{ value: {threads} }}\n"
        f"max_enqueued_batches {{ value: {64 * threads} }}\n"
        "pad_variable_length_inputs: true\n"
    )


def warm_up_requests(engine: Translator, options: ExportOptions, sentences: Sequence[str]) -> list[Request]:
    """Requests for every signature, with short and long ones of the `sentences`, alone and in batches."""
    texts = sorted((text for text in sentences if text.strip(BLANKS)), key=len) or ["a"]
    middle, quarters = texts[len(texts) // 2], [texts[len(texts) * i // 4] for i in range(4)]
    batches = [quarters * (size // 4) if size > 1 else [quarters[-1]] for size in BATCH_SIZES]
    requests = [("serving_default", {"text": batch}) for batch in [[quarters[0]], *batches]]
    requests += [(name, {"text": [middle]}) for name in ("translate", "translate_n_best")]
    numbers = search.RequestOptions.default(options)._asdict()
    requests += [("translate_with_options", {"text": [middle]} | numbers)]
    source, target = engine.source_tokenizer, engine.target_tokenizer
    ids = source.special_ids.with_end(source.encode(middle))
    requests += [("translate_token_ids", {"token_ids": [ids], "lengths": [len(ids)]})]
    if options.jit_compile:
        real = [i for text in texts for i in source.encode(text)] or ids[:1]
        for size in search.compiled_lengths(engine, options):
            line = source.special_ids.with_end((real * size)[: size - 1])[:size]
            room = options.tokens_per_batch if size <= LONGEST_COMPILED else 0
            for rows in [number for number in search.compiled_rows(options) if number * size <= room]:
                inputs = {"token_ids": [line] * rows, "lengths": [len(line)] * rows}
                requests += [("translate_token_ids", inputs)]
    words = target.decode(target.special_ids.ordinary(target.vocabulary_size)[:11])
    requests += [("score", {"source": [middle], "target": [words]})]
    return [(name, {key: tf.constant(value) for key, value in inputs.items()}) for name, inputs in requests]


def _record(engine: Translator, options: ExportOptions, report: Mapping[str, Any]) -> dict[str, Any]:
    """The origin of a version, its options and its tokenizers."""
    tokenizers = {"source": engine.source_tokenizer, "target": engine.target_tokenizer}
    return {
        "format": "keras_attn.serving",
        "version": 3,
        "model": type(engine.model).__name__,
        "parameters": engine.model.count_params(),
        "languages": {side: report.get(side) for side in tokenizers},
        "run": {name: report[name] for name in REPORTED if name in report},
        "scores": {name: report[name] for name in SCORES if name in report},
        "options": {name: value for name, value in dataclasses.asdict(options).items() if name != "version"},
        "int8_products": options.jit_compile and engine.int8_weights is not None,
        "shortlist": engine.shortlist and engine.shortlist.fingerprint,
        **engine.length_arguments,
        "tokenizers": {
            side: {
                "level": tokenizer.level,
                "lowercase": tokenizer.lowercase,
                "size": tokenizer.vocabulary_size,
                "special_ids": tokenizer.special_ids.get_config(),
                "sha256": tokenizer.fingerprint,
            }
            for side, tokenizer in tokenizers.items()
        },
        "versions": {m.__name__: m.__version__ for m in (sys.modules["keras_attn"], keras, tf)},
    }
