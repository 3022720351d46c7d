"""The files in a version's folder beside its graph: a record of its origin, and the batching parameters."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_attn.serving.export.options import ExportOptions

if TYPE_CHECKING:
    from keras_attn.text import Tokenizer
    from keras_attn.translation import Translator

RECORD = "keras_attn.json"  # in assets.extra/, of which servers read the warm-up records only
# The entries of a run's report that are copied: where the weights come from, and how good they are.
REPORTED = ("recipe", "corpus", "command", "seed", "updates", "backend", "beam_size", "test_sentences")
MAX_BATCH_SIZE = 64  # sentences that a server joins; the graph splits them into chunks of similar lengths
SCORES = ("bleu", "greedy_bleu", "chrf", "ter", "wer", "greedy_wer", "per")


def write_record(directory: Path, engine: "Translator", options: ExportOptions, report: Mapping[str, Any]) -> None:
    """Writes `assets.extra/keras_attn.json` of a version."""
    tokenizers = {"source": engine.source_tokenizer, "target": engine.target_tokenizer}
    record = {
        "format": "keras_attn.serving",
        "version": 3,
        "model": type(engine.model).__name__,
        "parameters": engine.model.count_params(),
        "languages": {side: report.get(side) for side in tokenizers},
        "run": {name: report[name] for name in REPORTED if name in report},
        "scores": {name: report[name] for name in SCORES if name in report},
        "options": options.recorded(),
        "int8_products": options.jit_compile and engine.int8_weights is not None,
        "shortlist": engine.shortlist and engine.shortlist.fingerprint,
        "max_length_ratio": engine.max_length_ratio,
        "max_length_constant": engine.max_length_constant,
        "tokenizers": {side: _described(tokenizer) for side, tokenizer in tokenizers.items()},
        "signatures": signatures(directory),
        "versions": {m.__name__: m.__version__ for m in (sys.modules["keras_attn"], keras, tf)},
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    (directory / "assets.extra" / RECORD).write_text(text, encoding="utf-8")


def _described(tokenizer: "Tokenizer") -> dict[str, Any]:
    return {
        "level": tokenizer.level,
        "lowercase": tokenizer.lowercase,
        "size": tokenizer.vocabulary_size,
        "special_ids": tokenizer.special_ids.get_config(),
        "sha256": tokenizer.fingerprint,
    }


def signatures(directory: Path) -> dict[str, dict]:
    """The inputs, outputs and defaults of each signature of a SavedModel. An axis of any size is None."""
    saved_model = saved_model_pb2.SavedModel.FromString((directory / "saved_model.pb").read_bytes())

    def side(tensors) -> dict:
        return {
            name: {
                "dtype": tf.as_dtype(tensors[name].dtype).name,
                "shape": [None if dim.size < 0 else dim.size for dim in tensors[name].tensor_shape.dim],
            }
            for name in sorted(tensors)
        }

    described = {}
    for name, signature in sorted(saved_model.meta_graphs[0].signature_def.items()):
        if name.startswith("__"):  # the loader's own, for initialization
            continue
        described[name] = {"inputs": side(signature.inputs), "outputs": side(signature.outputs)}
        if signature.defaults:
            defaults = sorted(signature.defaults.items())
            described[name]["defaults"] = {key: tf.make_ndarray(value).item() for key, value in defaults}
    return described


def write_batching(directory: Path) -> None:
    """Writes `batching_params.pbtxt` of a version, for `--enable_per_model_batching_parameters`."""
    threads = os.cpu_count() or 1
    text = (
        f"max_batch_size {{ value: {MAX_BATCH_SIZE} }}\n"
        "batch_timeout_micros { value: 2000 }\n"
        f"num_batch_threads {{ value: {threads} }}\n"
        f"max_enqueued_batches {{ value: {64 * threads} }}\n"
        "pad_variable_length_inputs: true\n"
    )
    (directory / "batching_params.pbtxt").write_text(text)
