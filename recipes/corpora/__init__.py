"""Corpora by name or by folder."""

from recipes.corpora.joining import NAMES, TAGS, Corpus, public_name
from recipes.corpora.loading import download, find, load, pairs_up_to
from recipes.corpora.origins import Origin, origins

__all__ = ["NAMES", "TAGS", "Corpus", "Origin", "download", "find", "load", "origins", "pairs_up_to", "public_name"]
