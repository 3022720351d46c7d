"""Export: a translator as a SavedModel for TensorFlow Serving, text in, text out; or as two graphs in ONNX.

    options.py      the options that are fixed at export
    saved_model.py  writes a version, checks it and publishes it; `export_translator`
    signatures.py   the graph: repair the text, tokenize, search in chunks, join the tokens
    tokenizers.py   tokenizers and copied words as TensorFlow graphs
    search.py       search as a graph function: limits, shortlist, quantized weights, the shapes that XLA compiles
    assets.py       the files beside the graph: warm-up records, origin, batching parameters
    onnx.py         encoding and one step as graphs in ONNX; `export_onnx`
    process.py      runs an export in a TensorFlow process, for the JAX and torch backends and for ONNX

Importing this package imports neither Keras nor TensorFlow; the functions are imported on first use.
"""

from keras_attn.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__)
