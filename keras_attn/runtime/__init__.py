"""Translation without Keras: graphs in ONNX, run by onnxruntime, and a beam search in NumPy.

    onnx_graphs.py      encoding and one step
    onnx_search.py      a search from arrays to ids, for any model
    onnx_translator.py  the translator: `generate` as `keras_attn.Translator` has it
    beam.py             beam search
    candidates.py       its candidates at each step

It imports NumPy, onnxruntime and the parts of keras_attn that need no Keras, and SentencePiece for a tokenizer of level
"bpe". `keras-attn export RUN DIRECTORY --format onnx` writes what it reads.
"""

from keras_attn.runtime.onnx_search import OnnxSearch
from keras_attn.runtime.onnx_translator import OnnxTranslator
