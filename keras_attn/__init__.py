"""keras_attn: recurrent attention encoder-decoders for Keras 3, on TensorFlow, JAX and torch.

Glossary of shapes:
    B batch, S source length, T target length, E embedding, H units, M memory width, A attention width,
    V vocabulary, K beams, N heads, L longest output.
Ids: 0 pad, 1 unknown, 2 start, 3 end. Masks are boolean, True = real token.
"""

from importlib import import_module

from keras_attn import losses, models, search
from keras_attn.data import ParallelDataset
from keras_attn.layers import (
    AttentionalLayer,
    AttentionDecoder,
    BahdanauAttention,
    BiGRUEncoder,
    ConcatAttention,
    CosineAttention,
    DeepOutput,
    DotAttention,
    FixedContextDecoder,
    GeneralAttention,
    LocalMonotonicAttention,
    LocalPredictiveAttention,
    LocationAttention,
    LuongAttention,
    MultiHeadAttention,
    RNNEncoder,
    ScaledDotAttention,
    SelfAttention,
)
from keras_attn.text import Tokenizer
from keras_attn.translator import Translation, Translator

__version__ = "0.1.0"

__all__ = [
    "AttentionDecoder",
    "AttentionalLayer",
    "BahdanauAttention",
    "BiGRUEncoder",
    "ConcatAttention",
    "CosineAttention",
    "DeepOutput",
    "DotAttention",
    "FixedContextDecoder",
    "GeneralAttention",
    "LocalMonotonicAttention",
    "LocalPredictiveAttention",
    "LocationAttention",
    "LuongAttention",
    "MultiHeadAttention",
    "ParallelDataset",
    "RNNEncoder",
    "ScaledDotAttention",
    "SelfAttention",
    "Tokenizer",
    "Translation",
    "Translator",
    "evaluation",
    "losses",
    "models",
    "plots",
    "search",
]


def __getattr__(name):
    """`keras_attn.evaluation` and `keras_attn.plots` on first use: sacrebleu and matplotlib are slow to import."""
    if name in ("evaluation", "plots"):
        return import_module(f"keras_attn.{name}")
    raise AttributeError(f"module 'keras_attn' has no attribute {name!r}")
