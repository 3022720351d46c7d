"""Runs signatures of SavedModels in a fresh process, by `run_signatures.py`; outputs are NumPy arrays."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).with_name("run_signatures.py")


def run(requests: list) -> list[list[dict[str, np.ndarray]]]:
    """Maps `[(folder, [(signature, {input: values}), ...]), ...]` to the outputs of each call; strings are bytes."""
    coded = [
        [str(folder), [[name, {key: _hex(value) for key, value in inputs.items()}] for name, inputs in calls]]
        for folder, calls in requests
    ]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-P", SCRIPT], input=json.dumps(coded), capture_output=True, text=True, env=os.environ | quiet
    )
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
