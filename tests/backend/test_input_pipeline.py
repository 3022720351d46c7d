"""The `tf.data` pipeline of a dataset without its autotuner: the same batches, and an epoch that ends with its last."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys, time
import keras
import numpy as np
from keras_attn.backend import disable_pipeline_autotuning

if "off" in sys.argv:
    disable_pipeline_autotuning()


class Slow(keras.layers.Layer):
    def call(self, x):
        for _ in range(60):
            x = keras.ops.tanh(x @ keras.ops.ones((400, 400)) / 400)
        return x


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, i):
        return np.full((400, 400), i, "float32"), np.ones((400, 1), "float32")


class Stamp(keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        self.end = time.perf_counter()


keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((400,)), Slow(), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=False)
model.fit(Batches(), verbose=0, shuffle=False)
waits, losses = [], []
for _ in range(4):
    stamp = Stamp()
    losses += model.fit(Batches(), verbose=0, shuffle=False, callbacks=[stamp]).history["loss"]
    waits.append(time.perf_counter() - stamp.end)
print(json.dumps({"losses": losses, "waits": waits}))
"""


@pytest.mark.slow
def test_without_its_autotuner_the_pipeline_gives_the_same_losses_and_ends_at_once(backend):
    if backend != "tensorflow":
        pytest.skip("the pipeline of tf.data is TensorFlow's")
    results = {}
    for setting in ("off", "on"):
        process = subprocess.run(
            [sys.executable, "-c", PROGRAM, setting],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, process.stderr
        results[setting] = json.loads(process.stdout.splitlines()[-1])
    assert results["off"]["losses"] == results["on"]["losses"]
    assert statistics.median(results["off"]["waits"]) < 0.1
