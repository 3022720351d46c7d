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

from keras_attn.models import RNNEncoderDecoder
from keras_attn.training import BIBLE, DROPOUT, MULTI30K, PHRASES, RecurrentConfig, builder, multi30k


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RecurrentConfig):
    """Sizes and dropout of `keras_attn.models.RNNEncoderDecoder`, of the same names."""

    units: int = 400
    embedding_size: int = 256
    readout_size: int = 256
    project_context: bool = True
    readout_activation: str = "tanh"
    memory_dropout: float = 0.24


CONFIGS = {
    "phrases": Config(
        **PHRASES,
        **DROPOUT["phrases"],
        scale_embeddings=True,
        units=232,
        embedding_size=128,
        readout_size=128,
    ),
    "bible-en-es": Config(
        **BIBLE,
        **DROPOUT["bible"],
        units=272,
        embedding_size=192,
        readout_size=192,
    ),
    **multi30k(Config(**MULTI30K)),
}
build = builder(RNNEncoderDecoder)
