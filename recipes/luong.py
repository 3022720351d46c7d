"""Luong's attention: Luong, Pham, Manning. Effective Approaches to Attention-based Neural Machine Translation.

EMNLP 2015, arXiv:1508.04025.

    python -m recipes.train luong                                                  # the embedded corpus
    python -m recipes.train luong --corpus multi30k-tok --source de --target en
    python -m recipes.train luong --set attention=dot local=p window=5             # another score, local-p
    python -m recipes.train luong --set bidirectional=true                         # both directions

Measured, on one core or two, shared with other work (`recipes/README.md`):

    phrases       1.2 M parameters, BLEU 91.01, 6 minutes
    multi30k      5.9 M parameters, BLEU 38.54, 78 minutes (40.50 in 48 with bidirectional=true units=290)

The model is the paper's: stacked LSTMs, the general score after the top layer, input feeding. Its sizes are the paper's
in `keras_attn.models.LuongSeq2Seq` (4 layers of 1000); here it has about as many parameters as `rnnsearch`.

On Multi30k it stays 1.2 BLEU below `rnnsearch`, because its encoder reads one way, so that h_j knows one side of its
word: reading both ways, with as many parameters, it is 0.7 above. Which side decides much, too: with the source not
reversed (`luong-multi30k-de-en-forwards`), the general score loses 6.2 BLEU of those in `attention_study`.
"""

import dataclasses

import keras

from keras_attn import LocalMonotonicAttention, LocalPredictiveAttention
from keras_attn.models import LuongSeq2Seq
from recipes.config import MULTI30K, PHRASES, TrainingConfig, model_arguments


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Sizes and dropout of `keras_attn.models.LuongSeq2Seq`, of the same names, and where it attends."""

    units: int = 272
    num_layers: int = 2
    embedding_size: int = 256
    readout_size: int = 256
    attention: str = "general"
    local: str | None = None  # "m" or "p": only inside a window
    window: int = 10  # words on either side
    input_feeding: bool = True
    reverse_source: bool = True
    bidirectional: bool = False
    tie_embeddings: str | None = "target"
    initializer: str | None = "glorot_uniform"
    scale_embeddings: bool = False
    embedding_dropout: float = 0.4
    layer_dropout: float = 0.2
    memory_dropout: float = 0.24
    output_dropout: float = 0.4

    def __post_init__(self):
        super().__post_init__()
        if self.local not in (None, "m", "p"):
            raise ValueError(f'Expected `local` to be none, "m" or "p". Received: {self.local!r}')


_MULTI30K = Config(**(MULTI30K | {"learning_rate": 2e-3, "scale_embeddings": True}))
PRESETS = {
    "phrases": Config(
        **PHRASES,
        scale_embeddings=True,
        units=152,
        embedding_size=128,
        readout_size=128,
        embedding_dropout=0.1,
        layer_dropout=0.0,
        memory_dropout=0.0,
        output_dropout=0.1,
    ),
    "multi30k": _MULTI30K,
    "multi30k-tok": dataclasses.replace(_MULTI30K, curriculum_epochs=0, tokenize="none"),
}


def build(config: Config, source_vocabulary_size: int, target_vocabulary_size: int) -> keras.Model:
    """The model of this recipe."""
    arguments = model_arguments(config)
    local, window = arguments.pop("local"), arguments.pop("window")
    if local:
        kind = LocalMonotonicAttention if local == "m" else LocalPredictiveAttention
        arguments["attention"] = kind(config.attention, window=window, name="attention")
    return LuongSeq2Seq(source_vocabulary_size, target_vocabulary_size, **arguments)
