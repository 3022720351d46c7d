"""Pronunciation of a word list: Wu, Cotterell. Exact Hard Monotonic Attention for Character-Level Transduction.

ACL 2019, arXiv:1905.06319.

    keras-attn train g2p --corpus words.tsv --minutes 10                                  # word, tab, phones
    keras-attn train g2p --corpus words.dict --minutes 30                                 # as CMUdict
    keras-attn train g2p --corpus afr.tsv --tags corpus --from g2p_multilingual --minutes 4

The model of `hard_monotonic`, for words as they are: they are cut into letters by the tokenizer, so that the run is one
for `keras_attn.G2P`. The last line goes on from a model of eight languages, which a language of some thousand words or
fewer gains from: its words have the tag `<2afr>`.
"""

from keras_attn.models import HardMonotonicSeq2Seq
from keras_attn.training import G2P, builder, load_recipe

Config = load_recipe("hard_monotonic").Config
CONFIGS = {"*": Config(**{**G2P, "level": "letter", "extend_vocabulary": True})}
build = builder(HardMonotonicSeq2Seq)
