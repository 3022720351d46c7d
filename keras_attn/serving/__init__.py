"""TensorFlow Serving: export of a translator, a client, and a server for development."""

from keras_attn.serving.export import export_translator

__all__ = ["export_translator"]
