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

from keras_attn.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "onnx_publish": ("export_onnx",),
        "options": ("ExportOptions",),
        "publish": ("export_translator",),
    },
)
