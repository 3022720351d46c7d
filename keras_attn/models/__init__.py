"""Models: every one a `Seq2Seq`."""

from keras_attn.models.rnnsearch import RNNSearch
from keras_attn.models.seq2seq import RecurrentSeq2Seq, Seq2Seq

__all__ = ["RNNSearch", "RecurrentSeq2Seq", "Seq2Seq"]
