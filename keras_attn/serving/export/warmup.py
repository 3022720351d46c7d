"""Warm-up records: the requests that a server runs before it accepts traffic, because each first call is slow.

`assets.extra/tf_serving_warmup_requests` is a TFRecord file of `PredictionLog` messages.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_attn.serving.export import compiled_shapes
from keras_attn.serving.export.options import ExportOptions
from keras_attn.serving.export.prediction_log import encode
from keras_attn.text import BLANKS

if TYPE_CHECKING:
    from keras_attn.translation import Translator

NAME = "tf_serving_warmup_requests"
BATCH_SIZES = (1, 8, 32)
LONGEST_COMPILED = 64  # source tokens: for longer ones a program is compiled at the first request for it


def write_warmup(directory: Path, engine: "Translator", options: ExportOptions, sentences: Sequence[str]) -> None:
    """Writes the records of a version: every signature, short and long sentences, alone and in batches.

    Args:
        directory: The version's `assets.extra`.
        engine: The exported model and its tokenizers.
        options: Those of the export.
        sentences: Source text, real if there is any.
    """
    texts = sorted((text for text in sentences if text.strip(BLANKS)), key=len) or ["a"]
    middle, quarters = texts[len(texts) // 2], [texts[len(texts) * i // 4] for i in range(4)]
    batches = [quarters * (size // 4) if size > 1 else [quarters[-1]] for size in BATCH_SIZES]
    calls = [("serving_default", {"text": batch}) for batch in [[quarters[0]], *batches]]
    calls += [(name, {"text": [middle]}) for name in ("translate", "translate_n_best", "translate_with_options")]
    source, target = engine.source_tokenizer, engine.target_tokenizer
    ids = source.special_ids.with_end(source.encode(middle))
    calls += [("translate_token_ids", {"token_ids": [ids], "lengths": [len(ids)]})]
    if options.jit_compile:
        real = [i for text in texts for i in source.encode(text)] or ids[:1]
        for size in compiled_shapes.lengths(engine, options):
            line = source.special_ids.with_end((real * size)[: size - 1])[:size]
            room = options.tokens_per_batch if size <= LONGEST_COMPILED else 0
            for rows in [number for number in compiled_shapes.rows(options) if number * size <= room]:
                calls += [("translate_token_ids", {"token_ids": [line] * rows, "lengths": [len(line)] * rows})]
    words = target.decode(target.special_ids.ordinary(target.vocabulary_size)[:11])
    calls += [("score", {"source": [middle], "target": [words]})]
    with tf.io.TFRecordWriter(str(directory / NAME)) as writer:
        for signature, inputs in calls:
            writer.write(encode(signature, {name: _tensor(values) for name, values in inputs.items()}))


def _tensor(values: list) -> bytes:
    """A serialized `TensorProto` of strings or int32."""
    dtype = tf.string if isinstance(values[0], str) else tf.int32
    return tf.make_tensor_proto(values, dtype).SerializeToString()
