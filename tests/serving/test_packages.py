"""What a user reads where an optional package is not installed."""

import sys

import keras
import pytest

from keras_attn.serving.packages import require
from tests.serving.absent import run_without


def test_what_is_missing_and_how_to_install_it(monkeypatch):
    require("json", "keras", extra="serving", purpose="a test")
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match=r"^Expected TensorFlow to be installed: export needs it\. Run: pip install"):
        require("keras", "tensorflow", extra="tensorflow", purpose="export")
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ImportError, match=r'TensorFlow and grpcio to be .* needs them\. .* "keras_attn\[serving\]"$'):
        require("tensorflow", "grpc", extra="serving", purpose="gRPC")


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="Keras itself needs it there")
def test_export_without_tensorflow():
    code = """
from tests.serving.conftest import build
try:
    build("word").export("never")
except ImportError as error:
    print(error)
"""
    sentence = "Expected TensorFlow and tensorflow-text to be installed: export needs them. Run: pip install"
    printed = run_without(("tensorflow", "tensorflow_text"), code)
    assert printed == sentence + ' "keras_attn[tensorflow]"'


def test_grpc_without_its_packages():
    code = """
from keras_attn.serving.client import Client
try:
    Client("grpc://localhost:8500", "m")
except ImportError as error:
    print(error)
"""
    printed = run_without(("grpc", "tensorflow", "tensorflow_serving"), code)
    assert printed.startswith("Expected grpcio and TensorFlow and tensorflow-serving-api to be installed: a grpc://")
    assert printed.endswith('pip install "keras_attn[serving]"')


def test_the_package_imports_neither_keras_nor_tensorflow():
    code = """
import sys, keras_attn.serving.client, keras_attn.serving.export
keras_attn.serving.export.ExportOptions(beam_size=2)
print({"keras", "tensorflow", "keras_nlp"} & sys.modules.keys() or "none")
"""
    assert run_without((), code) == "none"
