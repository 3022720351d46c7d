"""Runs a version as a server would, in a process with TensorFlow and tensorflow-text alone and without XLA.

    python -P replay.py DIRECTORY < request.json

The request is `[[hexadecimal bytes, ...], ...]`, one list a batch. The answer, on the last line of stdout, is
`{"load_seconds": s, "batches": [{"seconds": s, "translation": [hexadecimal bytes, ...], "score": [s, ...]},
...], "warm_up": [[signature, seconds], ...]}`. The warm-up records are run first, as a server runs them; a NaN in
an answer to one is an error.
This file imports nothing of keras_attn, for a server has nothing of it either.
"""

import ctypes
import json
import sys
import time
from pathlib import Path

import tensorflow as tf
import tensorflow_text  # noqa: F401 its ops
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2


def main(directory: str) -> None:
    # What the stock server's main does. The symbol is C++'s, of the library that is already in this process.
    library = Path(tf.__file__).with_name("libtensorflow_cc.so.2")
    ctypes.CDLL(str(library))._ZN10tensorflow21DisableXlaCompilationEv()
    batches = [[bytes.fromhex(text) for text in batch] for batch in json.load(sys.stdin)]
    begin = time.perf_counter()
    loaded = tf.saved_model.load(directory)
    answer = {"load_seconds": time.perf_counter() - begin, "batches": []}
    answer["warm_up"] = warm_up(loaded, directory)
    for batch in batches:
        begin = time.perf_counter()
        found = loaded.signatures["serving_default"](text=tf.constant(batch, tf.string, (len(batch),)))
        result = {
            "translation": [text.hex() for text in found["translation"].numpy()],
            "score": found["score"].numpy().tolist(),
            "seconds": time.perf_counter() - begin,
        }
        answer["batches"].append(result)
    print(json.dumps(answer))


def warm_up(loaded, directory: str) -> list[tuple[str, float]]:
    """Runs every record; returns each one's signature and seconds."""
    saved_model = saved_model_pb2.SavedModel.FromString(Path(directory, "saved_model.pb").read_bytes())
    signatures = saved_model.meta_graphs[0].signature_def
    path, times = Path(directory, "assets.extra", "tf_serving_warmup_requests"), []
    for record in tf.data.TFRecordDataset(str(path)) if path.exists() else ():
        name, inputs = call(record.numpy())
        defaults = {key: tf.make_ndarray(value) for key, value in signatures[name].defaults.items()}
        begin = time.perf_counter()
        found = loaded.signatures[name](**{key: tf.constant(value) for key, value in (defaults | inputs).items()})
        for key, value in found.items():
            if value.dtype.is_floating and bool(tf.reduce_any(tf.math.is_nan(value))):
                raise ValueError(f"Expected numbers in {key} of the signature {name}. A warm-up record gives NaN.")
        times.append((name, time.perf_counter() - begin))
    return times


def call(record: bytes) -> tuple[str, dict]:
    """The signature and the inputs of a PredictionLog."""
    (request,) = (value for number, value in fields(dict(fields(record))[6]) if number == 1)
    parts, name, inputs = fields(request), "serving_default", {}
    for number, value in parts:
        if number == 1:
            name = dict(fields(value))[3].decode()
        if number == 2:
            entry = dict(fields(value))
            inputs[entry[1].decode()] = tf.make_ndarray(tensor_pb2.TensorProto.FromString(entry[2]))
    return name, inputs


def fields(message: bytes) -> list[tuple[int, bytes]]:
    """The fields of a protocol buffer that holds strings and messages alone: number and content of each."""
    found, at = [], 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(message):
        number, length = varint() >> 3, varint()
        found.append((number, message[at : at + length]))
        at += length
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
