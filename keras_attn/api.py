"""The public names of `keras_attn`, which import Keras.

`keras_attn.evaluation` and `keras_attn.plots` are public, too. They are imported on their own first use, for sacreBLEU and
matplotlib are slow to import.
"""

from keras_attn import losses, metrics, models, search
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
    register_attention,
)
from keras_attn.text import Tokenizer
from keras_attn.translator import Translation, Translator

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
    "losses",
    "metrics",
    "models",
    "register_attention",
    "search",
]
