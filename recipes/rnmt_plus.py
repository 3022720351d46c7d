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

import keras

from keras_attn.models import RNMTPlusSeq2Seq
from keras_attn.training import BIBLE, MULTI30K, PHRASES, RecurrentConfig, model_arguments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RecurrentConfig):
    """Sizes and dropout of `keras_attn.models.RNMTPlusSeq2Seq`, of the same names."""

    units: int = 144
    embedding_size: int = 288
    encoder_layers: int = 3
    decoder_layers: int = 3
    num_heads: int = 4
    tie_embeddings: str | None = "target"
    initializer: str | None = "glorot_uniform"
    scale_embeddings: bool = False
    embedding_dropout: float = 0.4
    layer_dropout: float = 0.2
    memory_dropout: float = 0.24
    output_dropout: float = 0.4
    pointer: bool = False


_MULTI30K = Config(**MULTI30K, memory_dropout=0.3)
CONFIGS = {
    "phrases": Config(
        **PHRASES,
        units=80,
        embedding_size=160,
        embedding_dropout=0.1,
        layer_dropout=0.0,
        memory_dropout=0.0,
        output_dropout=0.1,
    ),
    "bible-en-es": Config(
        **BIBLE,
        units=100,
        embedding_size=200,
        embedding_dropout=0.2,
        layer_dropout=0.1,
        memory_dropout=0.1,
        output_dropout=0.2,
    ),
    "multi30k": _MULTI30K,
    "multi30k-tok": dataclasses.replace(_MULTI30K, curriculum_epochs=0, tokenize="none"),
}


def build(config: Config, source_vocabulary_size: int, target_vocabulary_size: int) -> keras.Model:
    """The model of this recipe."""
    return RNMTPlusSeq2Seq(source_vocabulary_size, target_vocabulary_size, **model_arguments(config))
