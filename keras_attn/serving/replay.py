"""Runs a version as a client would, in a process with TensorFlow and tensorflow-text alone and without XLA.

    python -P replay.py DIRECTORY < request.json

The request is `[[hexadecimal bytes, ...], ...]`, one list a batch. The answer, on the last line of stdout, is
`{"load_seconds": s, "batches": [{"seconds": s, "translation": [hexadecimal bytes, ...], "score": [s, ...]},
...]}`.
This file imports nothing of keras_attn, for a server has nothing of it either.
"""

import ctypes
import json
import sys
import time
from pathlib import Path

import tensorflow as tf
import tensorflow_text  # noqa: F401 its ops


def main(directory: str) -> None:
    # What the stock server's main does. The symbol is C++'s, of the library that is already in this process.
    library = Path(tf.__file__).with_name("libtensorflow_cc.so.2")
    ctypes.CDLL(str(library))._ZN10tensorflow21DisableXlaCompilationEv()
    batches = [[bytes.fromhex(text) for text in batch] for batch in json.load(sys.stdin)]
    begin = time.perf_counter()
    translate = tf.saved_model.load(directory).signatures["serving_default"]
    answer = {"load_seconds": time.perf_counter() - begin, "batches": []}
    for batch in batches:
        begin = time.perf_counter()
        found = translate(text=tf.constant(batch, tf.string, (len(batch),)))
        result = {
            "translation": [text.hex() for text in found["translation"].numpy()],
            "score": found["score"].numpy().tolist(),
            "seconds": time.perf_counter() - begin,
        }
        answer["batches"].append(result)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
