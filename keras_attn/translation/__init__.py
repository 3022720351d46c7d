"""Translation: text to text by a model, two tokenizers and a compiled search.

Each name is imported on first use: a client of a server needs `Translation` without Keras and tokenizers, and
`keras_attn.runtime` needs `TextSearch` without Keras.
"""

from keras_attn.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__)
