"""Export: a translator as a SavedModel for TensorFlow Serving, text in, text out."""

from keras_attn.serving.export.publish import export_translator

__all__ = ["export_translator"]
