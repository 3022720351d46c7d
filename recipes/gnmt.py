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

import keras

from keras_attn.models import GNMTSeq2Seq
from keras_attn.training import BIBLE, MULTI30K, PHRASES, RecurrentConfig, model_arguments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RecurrentConfig):
    """Sizes and dropout of `keras_attn.models.GNMTSeq2Seq`, of the same names."""

    units: int = 212
    embedding_size: int = 212
    encoder_layers: int = 3
    decoder_layers: int = 3
    attend: str = "before"
    attention_units: int | None = None
    tie_embeddings: str | None = "target"
    initializer: str | None = "glorot_uniform"
    scale_embeddings: bool = True
    embedding_dropout: float = 0.4
    layer_dropout: float = 0.2
    memory_dropout: float = 0.24
    output_dropout: float = 0.4
    pointer: bool = False


_MULTI30K = Config(**MULTI30K, memory_dropout=0.3)
CONFIGS = {
    "phrases": Config(
        **PHRASES,
        units=112,
        embedding_size=112,
        embedding_dropout=0.1,
        layer_dropout=0.0,
        memory_dropout=0.0,
        output_dropout=0.1,
    ),
    "bible-en-es": Config(
        **BIBLE,
        units=146,
        embedding_size=146,
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
    return GNMTSeq2Seq(source_vocabulary_size, target_vocabulary_size, **model_arguments(config))
