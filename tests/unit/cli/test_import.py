"""`import keras_attn`: without Keras until it is used, every class registered then, and no global state changed."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BACKENDS = [name for name in ("jax", "torch", "tensorflow") if find_spec(name)]  # the quickest to import first
REGISTERED = """
import keras
names = {name for name in keras.saving.get_custom_objects() if name.startswith("keras_attn>")}
assert {"keras_attn>RNNSearch", "keras_attn>BahdanauAttention", "keras_attn>SmoothedCrossentropy"} <= names, names
import sys
assert "Registration" not in repr(sys.meta_path)
"""
WITHOUT_KERAS = """
import sys, keras_attn, keras_attn.export, keras_attn.serving.client
keras_attn.presets()
keras_attn.export.ExportOptions(beam_size=2)
assert not {"keras", "tensorflow", "keras_hub", "huggingface_hub", "sacrebleu"} & sys.modules.keys()
keras_attn.evaluation.bleu
assert "matplotlib" not in sys.modules
assert dir(keras_attn) == keras_attn.__all__ and {"Translator", "RNNEncoder", "models"} <= set(dir(keras_attn))
try:
    keras_attn.BahdanauAttentoin
except AttributeError as error:
    assert str(error) == "module 'keras_attn' has no attribute 'BahdanauAttentoin'"
else:
    raise AssertionError
"""
STATE = """
import os, random, sys
import keras, numpy as np
def state():
    found = [dict(os.environ), random.getstate(), np.random.get_state()[1].tolist()]
    found += [keras.config.dtype_policy().name, keras.config.floatx()]
    if "torch" in sys.modules:
        import torch
        found += [torch.get_float32_matmul_precision(), torch.get_rng_state().tolist()]
    return found
before = state()
from keras_attn import *
import keras_attn
RNNEncoder, Translator, models.RNNSearch, keras_attn.search, keras_attn.serving
assert state() == before
"""
# Keras is imported from a half-imported package.
WITHOUT_TENSORFLOW = """
import os, sys
chosen = os.environ.pop("KERAS_BACKEND")
if chosen != "tensorflow":
    sys.modules["tensorflow"] = None  # as if it were not installed; it is Keras' default
import keras_attn
assert "KERAS_BACKEND" not in os.environ
import keras_attn.layers.decoder
import keras
assert keras.backend.backend() == chosen
"""


@pytest.mark.parametrize(
    "code",
    [
        WITHOUT_KERAS + REGISTERED,
        STATE + REGISTERED,
        WITHOUT_TENSORFLOW + REGISTERED,
        """
import sys
sys.modules |= dict.fromkeys(("keras", "tensorflow", "torch", "jax"))  # as if they were not installed
import keras_attn
from keras_attn.text import Tokenizer
from keras_attn.cli import command, line_streaming
try:
    keras_attn.RNNEncoder
except ModuleNotFoundError as error:
    assert error.name == "keras"
else:
    raise AssertionError
""",
    ],
    ids=["first", "after Keras", "without TensorFlow", "without Keras"],
)
def test_imports(code, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    if not code.startswith(STATE):
        monkeypatch.setenv("KERAS_BACKEND", BACKENDS[0])
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
