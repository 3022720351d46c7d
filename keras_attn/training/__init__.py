"""Training: corpora, settings, runs and their reports."""
