"""GNMT: Wu et al. Google's Neural Machine Translation System: Bridging the Gap between Human and Machine Translation.

2016, arXiv:1609.08144.

    python -m recipes.train gnmt                                                   # the embedded corpus
    python -m recipes.train gnmt --corpus multi30k --source de --target en
    python -m recipes.train gnmt --set attend=after                                # the query has read the last word

Results, on one core shared with other work (`recipes/README.md`):

    phrases       1.3 M parameters, BLEU 93.73, 12 minutes

The model is the paper's: the lowest layer of the encoder reads both ways, the others have skip connections from the
third on, and attention from the decoder's lowest layer is read by all of its layers. The defaults of
`keras_attn.models.GNMTSeq2Seq` are the paper's sizes (8 layers of 1024 each); here there are 3 and 3, the fewest that
have all of its parts, and about as many parameters as in `rnnsearch`. Embeddings are scaled: without that the lowest
layers' outputs are so small at first that attention is slow to begin.
"""

import dataclasses

from keras_attn.models import GNMTSeq2Seq
from keras_attn.training import BIBLE, DROPOUT, MULTI30K, PHRASES, RecurrentConfig, builder, multi30k


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RecurrentConfig):
    """Sizes and dropout of `keras_attn.models.GNMTSeq2Seq`, of the same names."""

    units: int = 212
    embedding_size: int = 212
    encoder_layers: int = 3
    decoder_layers: int = 3
    attend: str = "before"
    attention_units: int | None = None
    scale_embeddings: bool = True
    layer_dropout: float = 0.2
    memory_dropout: float = 0.24
    pointer: bool = False


CONFIGS = {
    "phrases": Config(
        **PHRASES,
        **DROPOUT["phrases"],
        units=112,
        embedding_size=112,
        layer_dropout=0.0,
    ),
    "bible-en-es": Config(
        **BIBLE,
        **DROPOUT["bible"],
        units=146,
        embedding_size=146,
        layer_dropout=0.1,
    ),
    **multi30k(Config(**MULTI30K, memory_dropout=0.3)),
}
build = builder(GNMTSeq2Seq)
