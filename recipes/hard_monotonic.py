r"""Hard monotonic attention: Wu, Cotterell. Exact Hard Monotonic Attention for Character-Level Transduction.

ACL 2019, arXiv:1905.06319.

    python -m recipes.train hard_monotonic --corpus g2p/fre                            # letters to phones
    python -m recipes.train hard_monotonic --corpus g2p/fre --set order=1 window=4     # the next alignment's jump
    python -m recipes.train hard_monotonic --corpus g2p/fre --set monotonic=false      # Wu, Shapiro, Cotterell 2018
    python -m recipes.train hard_monotonic --corpus g2p/ice --set max_steps=1000       # 800 words
    python -m recipes.train hard_monotonic --corpus cmudict --minutes 57
    python -m recipes.train hard_monotonic --tags corpus --seed 0 --set max_steps=4000 word_dropout=0.1 \
        recurrent_dropout=0.15 bfloat16_products=true --corpus \
        g2p/ady+g2p/ice+g2p/ita+g2p/khm+g2p/lav+g2p/mlt_latn+g2p/rum+g2p/wel_sw            # 23.62 % of words wrong

The model is the paper's: which letter a phone is read from is a hidden variable, summed over exactly. It is for strings
of symbols; with large vocabularies its training needs too much memory. After 1,000 updates on 800 words of Icelandic
14.00 % of the test's words are wrong, and 33.00 % of those of `rnnsearch` (`recipes/README.md`). The defaults of
`keras_attn.models.HardMonotonicSeq2Seq` are the sizes of the authors' scripts; here they are about half as wide.
"""

import dataclasses

from keras_attn.models import HardMonotonicSeq2Seq
from keras_attn.training import G2P, TrainingConfig, builder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Sizes and dropout of `keras_attn.models.HardMonotonicSeq2Seq`, of the same names."""

    level: str = "symbol"
    source_vocabulary_size: int | None = None
    target_vocabulary_size: int | None = None
    units: int = 192
    num_layers: int = 2
    embedding_size: int = 96
    decoder_units: int | None = 256
    readout_size: int | None = 256
    order: int = 0
    monotonic: bool = True
    window: int = 4
    initializer: str | None = "glorot_uniform"
    scale_embeddings: bool = False
    embedding_dropout: float = 0.2
    layer_dropout: float = 0.3
    memory_dropout: float = 0.2
    output_dropout: float = 0.3
    recurrent_dropout: float = 0.0
    word_dropout: float = 0.0


CONFIGS = {
    "g2p/*": Config(**G2P),
    "cmudict*": Config(**{**G2P, "batch_size": 256, "max_steps": 14000, "validate_every": 466}),
}
CONFIGS["wikipron/*"] = CONFIGS["g2p/*"]
build = builder(HardMonotonicSeq2Seq)
