"""Decoding: sentences in batches through a compiled search, and back as translations."""

from keras_attn.decoding.batching import padded, token_ids_of
from keras_attn.decoding.engine import Engine
from keras_attn.decoding.search_models import ScoreModel, SearchModel
from keras_attn.decoding.voting import vote

__all__ = ["Engine", "ScoreModel", "SearchModel", "padded", "token_ids_of", "vote"]
