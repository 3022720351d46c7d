"""Warm-up records: what a server runs on a version before it answers anyone, since each first call is slow.

`assets.extra/tf_serving_warmup_requests` is a TFRecord file of `PredictionLog` messages. They are written here
field by field, by the numbers of TensorFlow Serving's public .proto files, so that an export needs no package of
TensorFlow Serving.
"""

from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from keras_attn.text import BLANKS, END_ID
from keras_attn.translator import Translator

NAME = "tf_serving_warmup_requests"
BATCH_SIZES = (1, 8, 32)


def write(directory: Path, translator: Translator, sentences: Sequence[str]) -> None:
    """Writes the records of a version: every signature, sentences short and long, alone and several at once.

    Args:
        directory: The version's `assets.extra`.
        sentences: Source text, real if there is any.
    """
    texts = sorted((text for text in sentences if text.strip(BLANKS)), key=len) or ["a"]
    middle, quarters = texts[len(texts) // 2], [texts[len(texts) * i // 4] for i in range(4)]
    batches = [quarters * (size // 4) if size > 1 else [quarters[-1]] for size in BATCH_SIZES]
    calls = [("serving_default", {"text": batch}) for batch in [[quarters[0]], *batches]]
    calls += [(name, {"text": [middle]}) for name in ("translate", "translate_n_best", "translate_with_options")]
    ids = [*translator.source_tokenizer.encode(middle), END_ID]
    calls += [("translate_token_ids", {"token_ids": [ids], "lengths": [len(ids)]})]
    target = translator.target_tokenizer.decode(range(END_ID + 1, translator.target_tokenizer.vocabulary_size)[:11])
    calls += [("score", {"source": [middle], "target": [target]})]
    with tf.io.TFRecordWriter(str(directory / NAME)) as writer:
        for signature, inputs in calls:
            writer.write(_prediction_log(signature, inputs))


def _prediction_log(signature: str, inputs: dict[str, list]) -> bytes:
    """PredictionLog {predict_log = 6 {request = 1 {model_spec = 1 {signature_name = 3}, inputs = 2: a map}}}."""
    request = _field(1, _field(3, signature.encode()))
    for name, values in inputs.items():
        dtype = tf.string if isinstance(values[0], str) else tf.int32
        tensor = tf.make_tensor_proto(values, dtype).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))


def _field(number: int, content: bytes) -> bytes:
    """A field of protocol buffers that holds a string or a message: its tag, its length, its bytes."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    head = b""
    while value > 127:
        head += bytes([value & 127 | 128])
        value >>= 7
    return head + bytes([value])
