"""`import keras_attn`: quick, without Keras until it is used, and with every class registered once Keras is there."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("processes_on_jax")]

ROOT = Path(__file__).parents[2]
REGISTERED = """
import keras
names = {name for name in keras.saving.get_custom_objects() if name.startswith("keras_attn>")}
assert {"keras_attn>RNNSearch", "keras_attn>BahdanauAttention", "keras_attn>SmoothedCrossentropy"} <= names, names
import sys
assert "Registration" not in repr(sys.meta_path)
"""


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "first",
    [
        "import keras_attn, sys; assert 'keras' not in sys.modules",  # then Keras
        pytest.param("import keras, keras_attn", marks=pytest.mark.slow),
        # Keras is imported from a half-imported package.
        pytest.param("import keras_attn.layers.decoder", marks=pytest.mark.slow),
        pytest.param("from keras_attn import *; RNNEncoder, Translator, models.RNNSearch", marks=pytest.mark.slow),
    ],
)
def test_every_class_is_registered_in_any_order_of_imports(first):
    done = python(first + REGISTERED)
    assert done.returncode == 0, done.stderr


def test_names_are_found_on_first_use_and_unknown_ones_refused():
    done = python(
        """
import sys, keras_attn
assert "sacrebleu" not in sys.modules and "keras" not in sys.modules
keras_attn.evaluation.bleu
assert "matplotlib" not in sys.modules
assert {"Translator", "RNNEncoder", "models"} <= set(dir(keras_attn))
try:
    keras_attn.BahdanauAttentoin
except AttributeError as error:
    print(error)
"""
    )
    assert done.stdout == "module 'keras_attn' has no attribute 'BahdanauAttentoin'\n", done.stderr


def test_where_keras_is_not_installed_what_needs_it_says_so():
    done = python(
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
    print(error.name)
"""
    )
    assert done.stdout == "keras\n", done.stderr
