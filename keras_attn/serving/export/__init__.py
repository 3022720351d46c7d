"""Export: a translator as a SavedModel for TensorFlow Serving, text in, text out; or as two graphs in ONNX.

    options.py             the options that are fixed at export
    publish.py             writes a version, checks it and publishes it; the public function is here
    __main__.py            the same in a TensorFlow process of its own, for the JAX and torch backends
    python_process.py      runs such processes and reports their errors
    custom_modules.py      the user's modules that such a process must import before it loads the model

    graph.py               the signatures: repair the text, tokenize, search, join the tokens
    graph_tokenizer.py     tokenizers as TensorFlow graphs
    length_limits.py       minimum and maximum output length, as tensors
    chunking.py            splits a request of any size into chunks of bounded size
    search_function.py     search as a graph function
    quantized_weights.py   the quantized matrices inside a graph
    graph_optimization.py  merges equal constants of a written graph

    validation.py          checks a SavedModel before publication
    self_check.py          reference translations that an export must reproduce before publication
    replay.py              runs a version as a server does, in a process with TensorFlow alone
    warmup.py              the requests that a server runs before it accepts traffic
    prediction_log.py      the protocol buffers of these requests
    metadata.py            the record and the batching parameters beside the graph
    guides.py              models.config and README.md of the model's folder

    onnx_publish.py        export to ONNX; the public function is here
    onnx_graphs.py         encoding and one step as graphs in ONNX

Importing this package imports neither Keras nor TensorFlow; the functions are imported on first use. Export needs
TensorFlow: on the other backends it runs in a process of its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from keras_attn.serving.export.options import ExportOptions

if TYPE_CHECKING:
    from keras_attn.serving.export.onnx_publish import export_onnx
    from keras_attn.serving.export.publish import export_translator

__all__ = ["ExportOptions", "export_onnx", "export_translator"]

_MODULES = {"export_onnx": "onnx_publish", "export_translator": "publish"}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
