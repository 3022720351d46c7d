"""Corpora by name or by folder."""

from recipes.corpora.loading import NAMES, Corpus, download, find, load, of_at_most, public_name

__all__ = ["NAMES", "Corpus", "download", "find", "load", "of_at_most", "public_name"]
