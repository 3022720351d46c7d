"""Presets: folders with a model, its two tokenizers and a manifest; and where they are found.

    preset.py        saves and loads such a folder
    manifest.py      what is recorded of such a folder: the size and SHA-256 of each file, and properties
    model_file.py    the model in it, its weights in fewer bits, and bounds on what a file may ask for
    quantization.py  matrices in int8 and float16
    registry.py      trained presets by name, and presets at Hugging Face
    card.py          the README.md of a preset

The names are imported on first use: the registry needs no Keras.
"""

from keras_attn.lazy import exports

__getattr__, __dir__, __all__ = exports(__name__)
