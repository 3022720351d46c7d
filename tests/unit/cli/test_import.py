"""`import keras_attn`: quick, without Keras until it is used, and with every class registered once Keras is there."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("processes_on_jax")

ROOT = Path(__file__).parents[3]
REGISTERED = """
import keras
names = {name for name in keras.saving.get_custom_objects() if name.startswith("keras_attn>")}
assert {"keras_attn>RNNSearch", "keras_attn>BahdanauAttention", "keras_attn>SmoothedCrossentropy"} <= names, names
import sys
assert "Registration" not in repr(sys.meta_path)
"""
WITHOUT_KERAS = """
import sys, keras_attn
keras_attn.presets()
assert not {"keras", "huggingface_hub", "sacrebleu"} & sys.modules.keys()
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


@pytest.mark.parametrize(
    "code",
    [
        WITHOUT_KERAS + REGISTERED,
        "import keras\nfrom keras_attn import *\nRNNEncoder, Translator, models.RNNSearch" + REGISTERED,
        "import keras_attn.layers.decoder" + REGISTERED,  # Keras is imported from a half-imported package
        """
import sys
sys.modules |= dict.fromkeys(("keras", "tensorflow", "torch", "jax"))  # as if they were not installed
import keras_attn
from keras_attn.text import Tokenizer
from keras_attn.cli import command, line_streaming
from keras_attn.serving.client import Client
Client("http://127.0.0.1:1", "model")
try:
    keras_attn.RNNEncoder
except ModuleNotFoundError as error:
    assert error.name == "keras"
else:
    raise AssertionError
""",
    ],
    ids=["first", "after Keras", "a module of it", "without Keras"],
)
def test_imports(code):
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
