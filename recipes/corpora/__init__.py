"""Corpora by name or by folder."""

from recipes.corpora.loading import NAMES, Corpus, download, find, load, pairs_up_to, public_name

__all__ = ["NAMES", "Corpus", "download", "find", "load", "pairs_up_to", "public_name"]
