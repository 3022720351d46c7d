"""What a user reads where an optional package is not installed."""

from tests.unit.absent import run_without


def test_export_without_tensorflow(processes_on_jax):  # not on TensorFlow: Keras itself needs it there
    code = """
from tests.export.small import build
try:
    build("word").export("never")
except ImportError as error:
    print(error)
"""
    printed = run_without(("tensorflow", "tensorflow_text"), code)
    sentence = (
        'Expected tensorflow and tensorflow_text to be installed for export: pip install "keras_attn[tensorflow]".'
    )
    assert printed == sentence


def test_the_package_imports_neither_keras_nor_tensorflow():
    code = """
import sys, keras_attn.serving.client, keras_attn.export
keras_attn.export.ExportOptions(beam_size=2)
print({"keras", "tensorflow", "keras_hub"} & sys.modules.keys() or "none")
"""
    assert run_without((), code) == "none"
