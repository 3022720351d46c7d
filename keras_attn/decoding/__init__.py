"""Decoding: sentences in batches through a compiled search, and back as translations."""

from keras_attn.decoding.batching import padded, token_ids_of
from keras_attn.decoding.engine import Engine, search_function
from keras_attn.decoding.search_models import ScoreModel, SearchModel, beam_or_greedy
from keras_attn.search import Limits, check_sizes
from keras_attn.translation import Translation

__all__ = [
    "Engine",
    "Limits",
    "ScoreModel",
    "SearchModel",
    "Translation",
    "beam_or_greedy",
    "check_sizes",
    "padded",
    "search_function",
    "token_ids_of",
]
