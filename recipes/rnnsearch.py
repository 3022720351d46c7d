"""RNNsearch: Bahdanau, Cho, Bengio. Neural Machine Translation by Jointly Learning to Align and Translate.

ICLR 2015, arXiv:1409.0473.

    python -m recipes.train rnnsearch                                              # the embedded corpus
    python -m recipes.train rnnsearch --corpus multi30k-tok --source de --target en
    python -m recipes.train rnnsearch --corpus cmudict --minutes 57                # letters to phones
    python -m recipes.train rnnsearch --corpus g2p/fre                             # letters to phones, in 16 languages

Results, on one or two cores shared with other work (`recipes/README.md`):

    phrases       1.3 M parameters, BLEU 96.83, 4 minutes
    multi30k      5.9 M parameters, BLEU 39.77, 33 minutes
    multi30k-tok  5.9 M parameters, BLEU 40.11, 40 minutes
    cmudict       3.1 M parameters, WER 23.87, 57 minutes

The model is the paper's. The defaults of `keras_attn.models.RNNSearch` are the paper's sizes (units 1000, embeddings
620, maxout 500, trained for 252 hours on 12 M pairs). The sizes here suit some ten thousand pairs and a CPU, with the
regularisation that so little data needs: dropout, label smoothing, an output tied to the target embeddings.
"""

import dataclasses

from keras_attn.models import RNNSearch
from keras_attn.training import BIBLE, DROPOUT, G2P, MULTI30K, PHRASES, RecurrentConfig, builder, multi30k


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(RecurrentConfig):
    """Sizes and dropout of `keras_attn.models.RNNSearch`, of the same names."""

    units: int = 256
    embedding_size: int = 256
    readout_size: int = 256
    attention_units: int = 384
    decoder_units: int = 384
    readout_activation: str = "tanh"
    read_previous_state: bool = False
    memory_dropout: float = 0.24
    pointer: bool = False
    coverage_loss: float = 0.0
    context_gate: str | None = None


CONFIGS = {
    "phrases": Config(
        **PHRASES,
        **DROPOUT["phrases"],
        units=128,
        embedding_size=128,
        readout_size=128,
        attention_units=128,
        decoder_units=256,
    ),
    "bible-en-es": Config(
        **BIBLE,
        **DROPOUT["bible"],
        units=160,
        embedding_size=192,
        readout_size=192,
        attention_units=192,
        decoder_units=256,
    ),
    "cmudict*": Config(
        level="symbol",
        source_vocabulary_size=None,
        target_vocabulary_size=None,
        epochs=30,
        batch_size=256,
        learning_rate=2e-3,
        warmup_steps=400,
        hold_fraction=0.4,
        ema_decay=0.998,
        patience=30,
        embedding_size=128,
        attention_units=256,
        decoder_units=512,
        tie_embeddings=None,
        embedding_dropout=0.1,
        memory_dropout=0.2,
        output_dropout=0.2,
        validation_sentences=3000,
        metric="wer",
    ),
    "g2p/*": Config(
        **G2P,
        **DROPOUT["g2p"],
        units=192,
        embedding_size=96,
        readout_size=192,
        attention_units=192,
        decoder_units=384,
        tie_embeddings=None,
    ),
    **multi30k(Config(**MULTI30K, memory_dropout=0.3)),
}
CONFIGS["wikipron/*"] = CONFIGS["g2p/*"]
build = builder(RNNSearch)
