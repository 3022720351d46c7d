"""Runs signatures of SavedModels in a fresh process with TensorFlow and tensorflow-text alone, without XLA."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np


def run(requests: list) -> list[list[dict[str, np.ndarray]]]:
    """Maps `[(folder, [(signature, {input: values}), ...]), ...]` to the outputs of each call; strings are bytes."""
    coded = [
        [str(folder), [[name, {key: _hex(value) for key, value in inputs.items()}] for name, inputs in calls]]
        for folder, calls in requests
    ]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-P", __file__]
    done = subprocess.run(command, input=json.dumps(coded), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    return [[{key: _array(value) for key, value in answer.items()} for answer in calls] for calls in answers]


def _hex(values):
    is_bytes = isinstance(values, list) and any(isinstance(value, bytes) for value in values)
    return [value.hex() for value in values] if is_bytes else values


def _array(values) -> np.ndarray:
    found = np.array(values)
    if found.dtype.kind != "U":
        return found
    return np.array([bytes.fromhex(value) for value in found.flat], object).reshape(found.shape)


# In the fresh process. Grappler is disabled, because it takes most of the time of a first call.


def _main() -> None:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 its ops

    library = Path(tf.__file__).with_name("libtensorflow_cc.so.2")
    # Private: TensorFlow Serving calls this C++ function, and Python has none for it.
    ctypes.CDLL(str(library))._ZN10tensorflow21DisableXlaCompilationEv()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

    def tensor(values, dtype):
        strings = dtype == tf.string
        return tf.constant([bytes.fromhex(value) for value in values] if strings else values, dtype)

    answers = []
    for folder, calls in json.load(sys.stdin):
        signatures, found = tf.saved_model.load(folder).signatures, []
        for name, inputs in calls:
            specs = signatures[name].structured_input_signature[1]
            outputs = signatures[name](**{key: tensor(value, specs[key].dtype) for key, value in inputs.items()})
            found.append({key: _listed(value.numpy()) for key, value in outputs.items()})
        answers.append(found)
    assert "keras_attn" not in sys.modules
    print(json.dumps(answers))


def _listed(found: np.ndarray) -> list:
    if found.dtype == object:
        found = np.array([value.hex() for value in found.flat], object).reshape(found.shape)
    return found.tolist()


if __name__ == "__main__":
    _main()
