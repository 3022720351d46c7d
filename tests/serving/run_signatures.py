"""Runs signatures of SavedModels in a process with TensorFlow and tensorflow-text alone, without XLA.

    python -P run_signatures.py < request.json

The request is `[[folder, [[signature, {input: values}], ...]], ...]`; the answer, on the last line of stdout, is
`[[{output: values}, ...], ...]`. In both, strings are hexadecimal bytes. Grappler is disabled, because it takes most of
the time of a first call.
"""

import ctypes
import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 its ops


def main() -> None:
    library = Path(tf.__file__).with_name("libtensorflow_cc.so.2")
    # Private: TensorFlow Serving calls this C++ function, and Python has none for it.
    ctypes.CDLL(str(library))._ZN10tensorflow21DisableXlaCompilationEv()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    answers = []
    for folder, calls in json.load(sys.stdin):
        signatures = tf.saved_model.load(folder).signatures
        answers.append([run(signatures[name], inputs) for name, inputs in calls])
    assert "keras_attn" not in sys.modules
    print(json.dumps(answers))


def run(signature, inputs: dict) -> dict:
    specs = signature.structured_input_signature[1]
    tensors = {name: tensor(values, specs[name]) for name, values in inputs.items()}
    return {name: listed(found.numpy()) for name, found in signature(**tensors).items()}


def tensor(values, spec: tf.TensorSpec) -> tf.Tensor:
    if spec.dtype == tf.string:
        return tf.constant([bytes.fromhex(value) for value in values], tf.string, (len(values),))
    return tf.constant(values, spec.dtype)


def listed(found: np.ndarray) -> list:
    if found.dtype == object:
        return np.array([value.hex() for value in found.flat], object).reshape(found.shape).tolist()
    return found.tolist()


if __name__ == "__main__":
    main()
