r"""Nematus: Sennrich, Firat, Cho, Birch, Haddow, et al. Nematus: a Toolkit for Neural Machine Translation.

EACL 2017, arXiv:1703.04357.

    python -m recipes.train nematus                                                # the embedded corpus
    python -m recipes.train nematus --corpus multi30k --source de --target en
    python -m recipes.train nematus --corpus g2p/fre                               # letters to phones, in 16 languages
    python -m recipes.train nematus --corpus cmudict --set bfloat16_products=true  # 24.35 % of words wrong
    python -m recipes.train nematus --corpus tatoeba-en-fr --set bfloat16_products=true  # the preset tatoeba_en_fr
    python -m recipes.train nematus --tags corpus --seed 0 --set max_steps=4000 word_dropout=0.1 \
        recurrent_dropout=0.15 layer_normalization=true bfloat16_products=true --corpus \
        g2p/ady+g2p/ice+g2p/ita+g2p/khm+g2p/lav+g2p/mlt_latn+g2p/rum+g2p/wel_sw    # 25.00 % of words wrong
    python -m recipes.train nematus --set encoder_transitions=2 decoder_transitions=4 layer_normalization=true

    python -m recipes.train nematus --corpus multi30k --source de --target en --seed 0 --set batch_size=192 \
        learning_rate=2e-3 bpe_dropout=0.1 epochs=28 average_checkpoints=5 bfloat16_products=true

The last one has a BLEU of 43.12 after 64 minutes on two cores shared with other work, and 43.38 after 78 minutes with
`multi30k-tok` (`recipes/README.md`).

The model is the paper's: a conditional GRU, whose query has read the last word. The defaults of
`keras_attn.models.NematusSeq2Seq` are the toolkit's sizes (units 1024, embeddings 512); here it has about as many
parameters as `rnnsearch`, and the same regularisation.
"""

import dataclasses

from keras_attn.models import NematusSeq2Seq
from keras_attn.training import BIBLE, DROPOUT, G2P, MULTI30K, PHRASES, RecurrentConfig, builder, multi30k


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RecurrentConfig):
    """Sizes and dropout of `keras_attn.models.NematusSeq2Seq`, of the same names."""

    units: int = 272
    embedding_size: int = 256
    cell: str = "gru"
    encoder_layers: int = 1
    encoder_transitions: int = 1
    decoder_layers: int = 1
    decoder_transitions: int = 2
    upper_transitions: int = 1
    layer_normalization: bool = False
    attention_units: int = 512
    memory_dropout: float = 0.24
    pointer: bool = False


CONFIGS = {
    "phrases": Config(
        **PHRASES,
        **DROPOUT["phrases"],
        units=160,
        embedding_size=128,
        attention_units=192,
    ),
    "bible-en-es": Config(
        **BIBLE,
        **DROPOUT["bible"],
        units=184,
        embedding_size=192,
        attention_units=256,
    ),
    "tatoeba-en-fr": Config(
        source_vocabulary_size=6000,
        target_vocabulary_size=6000,
        max_steps=9000,
        batch_size=128,
        validate_every=1500,
        learning_rate=1.5e-3,
        warmup_steps=400,
        hold_fraction=0.4,
        ema_decay=0.998,
        units=256,
        attention_units=256,
        layer_normalization=True,
        recurrent_dropout=0.1,
        word_dropout=0.05,
        embedding_dropout=0.1,
        memory_dropout=0.1,
        output_dropout=0.2,
    ),
    "cmudict*": Config(
        **G2P
        | {
            "max_steps": 15000,
            "validate_every": 1000,
            "batch_size": 128,
            "learning_rate": 1.5e-3,
            "warmup_steps": 400,
            "ema_decay": 0.998,
            "validation_sentences": 3000,
        },
        units=256,
        embedding_size=128,
        attention_units=256,
        tie_embeddings=None,
        layer_normalization=True,
        recurrent_dropout=0.2,
        embedding_dropout=0.1,
        memory_dropout=0.2,
        output_dropout=0.3,
    ),
    "g2p/*": Config(
        **G2P,
        **DROPOUT["g2p"],
        units=192,
        embedding_size=128,
        attention_units=192,
        tie_embeddings=None,
    ),
    **multi30k(Config(**MULTI30K, memory_dropout=0.3)),
}
CONFIGS["wikipron/*"] = CONFIGS["g2p/*"]
build = builder(NematusSeq2Seq)
