"""Runs a version as a server does, in a process with TensorFlow and tensorflow-text alone.

    python -P replay.py DIRECTORY [--xla-cpu-compilation-enabled] < request.json

The option has the name of the server's; without it XLA is disabled.

The request is `[[text, ...], ...]`, one list for each batch, each text as hexadecimal bytes. The answer, on the last
line of stdout, is `{"load_seconds": s, "batches": [{"seconds": s, "translation": [text, ...], "score": [s, ...]}, ...],
"warm_up": [[signature, seconds], ...]}`. The warm-up records run first, as in a server; an answer with a NaN is an
error. This file does not import keras_attn, because a server does not have it either.
"""

import ctypes
import json
import runpy
import sys
import time
from pathlib import Path

import tensorflow as tf
import tensorflow_text  # noqa: F401 registers its ops
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2


def main(directory: str, *option: str) -> None:
    if not option:
        # What the stock server's main does. The symbol is C++'s, of the library that is already in this process.
        library = Path(tf.__file__).with_name(
            "libtensorflow_cc.2.dylib" if sys.platform == "darwin" else "libtensorflow_cc.so.2"
        )
        ctypes.CDLL(str(library))._ZN10tensorflow21DisableXlaCompilationEv()
    batches = [[bytes.fromhex(text) for text in batch] for batch in json.load(sys.stdin)]
    begin = time.perf_counter()
    loaded = tf.saved_model.load(directory)
    answer = {"load_seconds": time.perf_counter() - begin, "batches": []}
    answer["warm_up"] = warm_up(loaded, directory)
    for batch in batches:
        begin = time.perf_counter()
        outputs = loaded.signatures["serving_default"](text=tf.constant(batch, tf.string, (len(batch),)))
        result = {
            "translation": [text.hex() for text in outputs["translation"].numpy()],
            "score": outputs["score"].numpy().tolist(),
            "seconds": time.perf_counter() - begin,
        }
        answer["batches"].append(result)
    print(json.dumps(answer))


def warm_up(loaded, directory: str) -> list[tuple[str, float]]:
    """Runs every record; returns its signature and its seconds."""
    # By its path: this process does not import the package.
    decode = runpy.run_path(str(Path(__file__).with_name("prediction_log.py")))["decode"]
    saved_model = saved_model_pb2.SavedModel.FromString(Path(directory, "saved_model.pb").read_bytes())
    signatures = saved_model.meta_graphs[0].signature_def
    path, times = Path(directory, "assets.extra", "tf_serving_warmup_requests"), []
    for record in tf.data.TFRecordDataset(str(path)) if path.exists() else ():
        name, inputs = decode(record.numpy())
        tensors = dict(signatures[name].defaults)
        tensors |= {key: tensor_pb2.TensorProto.FromString(value) for key, value in inputs.items()}
        begin = time.perf_counter()
        outputs = loaded.signatures[name](**{key: tf.constant(tf.make_ndarray(t)) for key, t in tensors.items()})
        for key, value in outputs.items():
            if value.dtype.is_floating and bool(tf.reduce_any(tf.math.is_nan(value))):
                raise ValueError(f"Expected numbers in {key} of the signature {name}. A warm-up record gives NaN.")
        times.append((name, time.perf_counter() - begin))
    return times


if __name__ == "__main__":
    main(*sys.argv[1:])
