"""TensorFlow Serving: a translator as a SavedModel that a stock model server loads, text in, text out.

    text.py     tokenizers as TensorFlow graphs
    graph.py    repair, tokenize, search and join, as one function of a batch of strings
    gate.py     what a stock server would refuse, or its user regret, refused before publication
    publish.py  the next version folder, whole or not at all
    export.py   the command that a process on another backend runs: `python -m keras_attn.serving.export`
    replay.py   the command that runs a version as a client would, in a process with TensorFlow alone

Importing this package imports no TensorFlow; exporting does, in a process of its own on other backends.
"""

from keras_attn.serving.publish import export_translator

__all__ = ["export_translator"]
