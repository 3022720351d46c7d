"""RNMT+: Chen et al. The Best of Both Worlds: Combining Recent Advances in Neural Machine Translation.

ACL 2018, arXiv:1804.09849.

    python -m recipes.train rnmt_plus                                              # the embedded corpus
    python -m recipes.train rnmt_plus --corpus multi30k --source de --target en

Results, on one core shared with other work (`recipes/README.md`):

    phrases       1.2 M parameters, BLEU 94.37, 17 minutes

The model is the paper's: normalised LSTMs, in both directions in the encoder, with skip connections from the third
layer on, and four attention heads. The defaults of `keras_attn.models.RNMTPlusSeq2Seq` are the paper's sizes (6 and 8
layers of 1024); here there are 3 and 3, the fewest that have all of its parts, and about as many parameters as in
`rnnsearch`. The softmax reads state and context side by side, so that embeddings, which it shares, are twice as wide as
the layers.
"""

import dataclasses

from keras_attn.models import RNMTPlusSeq2Seq
from keras_attn.training import BIBLE, DROPOUT, MULTI30K, PHRASES, RecurrentConfig, builder, multi30k


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RecurrentConfig):
    """Sizes and dropout of `keras_attn.models.RNMTPlusSeq2Seq`, of the same names."""

    units: int = 144
    embedding_size: int = 288
    encoder_layers: int = 3
    decoder_layers: int = 3
    num_heads: int = 4
    layer_dropout: float = 0.2
    memory_dropout: float = 0.24
    pointer: bool = False


CONFIGS = {
    "phrases": Config(
        **PHRASES,
        **DROPOUT["phrases"],
        units=80,
        embedding_size=160,
        layer_dropout=0.0,
    ),
    "bible-en-es": Config(
        **BIBLE,
        **DROPOUT["bible"],
        units=100,
        embedding_size=200,
        layer_dropout=0.1,
    ),
    **multi30k(Config(**MULTI30K, memory_dropout=0.3)),
}
build = builder(RNMTPlusSeq2Seq)
