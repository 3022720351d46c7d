"""Layers: attention, the bidirectional encoder, the attention decoder and its read-outs."""

from keras_attn.layers.attention import Attention, BahdanauAttention
from keras_attn.layers.decoder import AttentionalLayer, AttentionDecoder, DeepOutput
from keras_attn.layers.encoder import BiGRUEncoder

__all__ = [
    "Attention",
    "AttentionDecoder",
    "AttentionalLayer",
    "BahdanauAttention",
    "BiGRUEncoder",
    "DeepOutput",
]
