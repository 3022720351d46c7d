"""Luong's attention: Luong, Pham, Manning. Effective Approaches to Attention-based Neural Machine Translation.

EMNLP 2015, arXiv:1508.04025.

    python -m recipes.train luong                                                  # the embedded corpus
    python -m recipes.train luong --corpus multi30k-tok --source de --target en
    python -m recipes.train luong --set attention=local_p score=dot window=5       # local attention, another score
    python -m recipes.train luong --set bidirectional=true                         # a bidirectional encoder
    python -m recipes.train luong --corpus g2p/fre                                 # letters to phones, in 16 languages

Results, on one or two cores shared with other work (`recipes/README.md`):

    phrases       1.2 M parameters, BLEU 91.01, 6 minutes
    multi30k      5.9 M parameters, BLEU 38.54, 78 minutes (40.50 in 48 with bidirectional=true units=290)

The model is the paper's: stacked LSTMs, the general score after the top layer, input feeding. The defaults of
`keras_attn.models.LuongSeq2Seq` are the paper's sizes (4 layers of 1000); here it has about as many parameters as
`rnnsearch`.

On Multi30k it is 1.2 BLEU below `rnnsearch`, because its encoder is unidirectional, so that h_j represents only one
side of its word: with a bidirectional encoder and as many parameters it is 0.7 above. The direction matters too: in the
setting of `recipes.studies.attention`, the general score has 31.61 BLEU with the source reversed, and 25.43 with
`reverse_source=false`.
"""

import dataclasses

import keras

from keras_attn.layers import LocalMonotonicAttention, LocalPredictiveAttention
from keras_attn.models import LuongSeq2Seq
from keras_attn.training import DROPOUT, G2P, MULTI30K, PHRASES, RecurrentConfig, check_range, model_arguments, multi30k

_LOCAL = {"local_m": LocalMonotonicAttention, "local_p": LocalPredictiveAttention}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RecurrentConfig):
    """Sizes and dropout of `keras_attn.models.LuongSeq2Seq`, of the same names; score and window of local attention."""

    units: int = 272
    num_layers: int = 2
    embedding_size: int = 256
    readout_size: int = 256
    attention: str = "general"  # a score function, for global attention, or "local_m" or "local_p"
    score: str | None = None  # of local attention (none: the layer's default, general)
    window: int | None = None  # of local attention, words on either side (none: the layer's default, 10)
    input_feeding: bool = True
    reverse_source: bool = True
    bidirectional: bool = False
    layer_dropout: float = 0.2
    memory_dropout: float = 0.24
    pointer: bool = False
    coverage_loss: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        check_range(self, "window", low=1)
        if self.attention not in _LOCAL and (self.score, self.window) != (None, None):
            raise ValueError(
                f"Expected `score` and `window` only with `attention` among: {', '.join(_LOCAL)}. Received: "
                f"{self.attention!r}"
            )


CONFIGS = {
    "phrases": Config(
        **PHRASES,
        **DROPOUT["phrases"],
        scale_embeddings=True,
        units=152,
        embedding_size=128,
        readout_size=128,
        layer_dropout=0.0,
    ),
    "g2p/*": Config(
        **G2P,
        **DROPOUT["g2p"],
        units=192,
        embedding_size=96,
        readout_size=192,
        reverse_source=False,
        bidirectional=True,
        tie_embeddings=None,
    ),
    **multi30k(Config(**(MULTI30K | {"learning_rate": 2e-3, "scale_embeddings": True}))),
}
CONFIGS["wikipron/*"] = CONFIGS["g2p/*"]


def build(config: Config, source_vocabulary_size: int, target_vocabulary_size: int) -> keras.Model:
    """The model of this recipe."""
    arguments = model_arguments(config)
    local = {name: value for name in ("score", "window") if (value := arguments.pop(name)) is not None}
    if config.attention in _LOCAL:
        arguments["attention"] = _LOCAL[config.attention](**local, name="attention")
    return LuongSeq2Seq(source_vocabulary_size, target_vocabulary_size, **arguments)
