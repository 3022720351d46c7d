"""Models that other programs trained: tensorflow_addons and Keras 2, Marian."""

from keras_attn.converters.marian import from_marian
from keras_attn.converters.marian_file import marian_tokenizer
from keras_attn.converters.tfa import from_tfa
