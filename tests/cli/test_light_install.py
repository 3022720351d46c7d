"""Everything but the Transformer, export and serving works without TensorFlow."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="needs a backend other than TensorFlow")
def test_all_but_the_transformer_export_and_serving_works_without_tensorflow(tmp_path):
    environment = os.environ | {"KERAS_BACKEND": keras.backend.backend()}
    line = [sys.executable, "-m", "tests.cli.light_install", str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "all but the Transformer, export and serving works" in done.stdout
