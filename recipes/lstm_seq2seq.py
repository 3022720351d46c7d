"""LSTM sequence to sequence: Sutskever, Vinyals, Le. Sequence to Sequence Learning with Neural Networks.

NeurIPS 2014, arXiv:1409.3215.

    python -m recipes.train lstm_seq2seq                                           # the embedded corpus
    python -m recipes.train lstm_seq2seq --corpus multi30k-tok --source de --target en
    python -m recipes.train lstm_seq2seq --set reverse_source=false                # table 1 of the paper

Results, on one or two cores shared with other work (`recipes/README.md`):

    phrases       1.3 M parameters, BLEU 11.51, 8 minutes
    multi30k      5.9 M parameters, BLEU 16.77, 50 minutes (15.11 with reverse_source=false)

The model is the paper's: no attention, the source reversed, the final states of each encoder layer passed to the
decoder layer. The defaults of `keras_attn.models.LSTMSeq2Seq` are the paper's sizes (4 layers of 1000); here it has
about as many parameters as `rnnsearch`.
"""

import dataclasses

from keras_attn.models import LSTMSeq2Seq
from keras_attn.training import MULTI30K, PHRASES, RecurrentConfig, builder, multi30k


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RecurrentConfig):
    """Sizes and dropout of `keras_attn.models.LSTMSeq2Seq`, of the same names."""

    units: int = 280
    num_layers: int = 2
    embedding_size: int = 280
    reverse_source: bool = True
    layer_dropout: float = 0.2


CONFIGS = {
    "phrases": Config(
        **PHRASES,
        scale_embeddings=True,
        units=160,
        embedding_size=160,
        embedding_dropout=0.1,
        layer_dropout=0.0,
        output_dropout=0.1,
    ),
    **multi30k(Config(**MULTI30K)),
}
build = builder(LSTMSeq2Seq)
