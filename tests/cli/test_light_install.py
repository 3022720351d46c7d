"""What works where only one backend, JAX or torch, is installed, and what the rest says."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="about the light backends")
def test_all_but_the_transformer_export_and_serving_works_without_tensorflow(tmp_path):
    """The backend is not named: with TensorFlow absent, Keras' default, the commands' choice is what is installed."""
    environment = os.environ | {"KERAS_BACKEND": keras.backend.backend()}
    line = [sys.executable, "-m", "tests.cli.light_install", str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "all but the Transformer, export and serving works" in done.stdout


CHOICE = """
import os, sys
from tests.cli import light_install
light_install.block({absent!r}.split())
from keras_attn.cli import command
try:
    command.choose_backend()
    print(os.environ.get("KERAS_BACKEND"))
except (ImportError, ValueError) as error:
    print(error)
"""


@pytest.mark.once
@pytest.mark.parametrize(
    ("absent", "chosen", "expected"),
    [
        ("tensorflow jax", None, "torch"),
        ("jax torch", None, "None"),  # Keras' own default
        ("tensorflow", "tensorflow", 'Expected tensorflow to be installed: pip install "keras_attn[tensorflow]".'),
        ("", "pytorch", "Expected KERAS_BACKEND to be one of tensorflow, jax, torch. Received: 'pytorch'"),
        ("tensorflow jax torch", None, 'Expected a backend of Keras: pip install "keras_attn[tensorflow]", '),
    ],
)
def test_a_command_chooses_a_backend_that_is_installed(absent, chosen, expected, tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"}
    environment |= {"KERAS_HOME": str(tmp_path)} | ({"KERAS_BACKEND": chosen} if chosen else {})
    line = [sys.executable, "-c", CHOICE.format(absent=absent)]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(expected), done.stdout + done.stderr
    assert not os.listdir(tmp_path)
