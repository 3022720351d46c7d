"""Translation without Keras: graphs in ONNX, run by onnxruntime, and a beam search in NumPy.

    onnx.py  encoding and one step; with them a search of any model, and a translator
    beam.py  beam search

It imports NumPy, onnxruntime and the parts of keras_attn that need no Keras, and SentencePiece for a tokenizer of level
"bpe". `keras-attn export RUN DIRECTORY --format onnx` writes what it reads.
"""

from keras_attn.runtime.onnx import OnnxSearch, OnnxTranslator
