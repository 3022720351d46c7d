"""RNNencdec: Cho et al. Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation.

EMNLP 2014, arXiv:1406.1078; called RNNencdec and compared with RNNsearch by Bahdanau, Cho, Bengio, ICLR 2015.

    python -m recipes.train rnnencdec                                              # the embedded corpus
    python -m recipes.train rnnencdec --corpus multi30k-tok --source de --target en

Results, on one or two cores shared with other work (`recipes/README.md`):

    phrases       1.2 M parameters, BLEU 19.16, 3 minutes
    multi30k      5.7 M parameters, BLEU 27.31, 61 minutes

The model is the paper's: one vector represents the whole source. The defaults of `keras_attn.models.RNNEncoderDecoder`
are the paper's sizes; here it has about as many parameters as `rnnsearch`, and the same regularisation.
"""

import dataclasses

import keras

from keras_attn.models import RNNEncoderDecoder
from keras_attn.training import BIBLE, MULTI30K, PHRASES, RecurrentConfig, model_arguments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RecurrentConfig):
    """Sizes and dropout of `keras_attn.models.RNNEncoderDecoder`, of the same names."""

    units: int = 400
    embedding_size: int = 256
    readout_size: int = 256
    project_context: bool = True
    readout_activation: str = "tanh"
    tie_embeddings: str | None = "target"
    initializer: str | None = "glorot_uniform"
    scale_embeddings: bool = False
    embedding_dropout: float = 0.4
    memory_dropout: float = 0.24
    output_dropout: float = 0.4


_MULTI30K = Config(**MULTI30K)
CONFIGS = {
    "phrases": Config(
        **PHRASES,
        scale_embeddings=True,
        units=232,
        embedding_size=128,
        readout_size=128,
        embedding_dropout=0.1,
        memory_dropout=0.0,
        output_dropout=0.1,
    ),
    "bible-en-es": Config(
        **BIBLE,
        units=272,
        embedding_size=192,
        readout_size=192,
        embedding_dropout=0.2,
        memory_dropout=0.1,
        output_dropout=0.2,
    ),
    "multi30k": _MULTI30K,
    "multi30k-tok": dataclasses.replace(_MULTI30K, curriculum_epochs=0, tokenize="none"),
}


def build(config: Config, source_vocabulary_size: int, target_vocabulary_size: int) -> keras.Model:
    """The model of this recipe."""
    return RNNEncoderDecoder(source_vocabulary_size, target_vocabulary_size, **model_arguments(config))
