"""Transformer: Vaswani et al. Attention Is All You Need. NeurIPS 2017, arXiv:1706.03762.

    python -m recipes.train transformer                                            # the embedded corpus
    python -m recipes.train transformer --corpus multi30k-tok --source de --target en

Results, on one or two cores shared with other work (`recipes/README.md`):

    phrases       1.2 M parameters, BLEU 88.12, 6 minutes
    multi30k      5.7 M parameters, BLEU 38.10, 97 minutes

The defaults of `keras_attn.models.TransformerSeq2Seq` are the sizes of the paper's base model. Here it has about as
many parameters as `rnnsearch`, normalises before each sub-layer, and has more dropout; label smoothing and the schedule
are the paper's, with fewer warm-up steps.
"""

import dataclasses

from keras_attn.models import TransformerSeq2Seq
from keras_attn.training import MULTI30K, PHRASES, TrainingConfig, builder, multi30k


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Sizes and dropout of `keras_attn.models.TransformerSeq2Seq`, of the same names."""

    units: int = 256
    num_layers: int = 2
    num_heads: int = 4
    feed_forward_units: int = 512
    normalize_first: bool = True
    tie_embeddings: str | None = "target"
    initializer: str = "glorot_uniform"
    dropout: float = 0.3
    word_dropout: float = 0.0  # of whole words of source and target
    learning_rate: float = 2e-3
    warmup_steps: int = 1000
    schedule: str = "inverse_sqrt"


CONFIGS = {
    "phrases": Config(
        **PHRASES | {"warmup_steps": 400},
        units=128,
        feed_forward_units=448,
        dropout=0.1,
    ),
    **multi30k(Config(**MULTI30K | {"warmup_steps": 1000})),
}
build = builder(TransformerSeq2Seq)
