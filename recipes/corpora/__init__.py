"""Corpora by name or by folder."""

from recipes.corpora.loading import NAMES, Corpus, cache_folder, download, find, load, pairs_up_to, public_name

__all__ = ["NAMES", "Corpus", "cache_folder", "download", "find", "load", "pairs_up_to", "public_name"]
