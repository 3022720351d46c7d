"""Pronunciation of words and sentences: a lexicon first, a model for the rest."""

from keras_attn.pronunciation.alphabets import ALPHABETS, converted
from keras_attn.pronunciation.g2p import G2P, Pronunciation, read_lexicon
