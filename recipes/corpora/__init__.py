"""Corpora by name or by folder."""

from recipes.corpora.loading import NAMES, Corpus, download, find, load, pairs_up_to, public_name
from recipes.corpora.origins import Origin, origins

__all__ = ["NAMES", "Corpus", "Origin", "download", "find", "load", "origins", "pairs_up_to", "public_name"]
