"""Decoding: sentences in batches through a compiled search."""

from keras_attn.decoding.batching import Limits, check_sizes, padded
from keras_attn.decoding.engine import Decoding
from keras_attn.decoding.search_models import ScoreModel, SearchModel, beam_or_greedy, token_ids_of
from keras_attn.translation import Translation

__all__ = [
    "Decoding",
    "Limits",
    "ScoreModel",
    "SearchModel",
    "Translation",
    "beam_or_greedy",
    "check_sizes",
    "padded",
    "token_ids_of",
]
