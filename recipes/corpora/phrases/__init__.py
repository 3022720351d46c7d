"""`phrases`, the embedded corpus: generated English and French sentences."""
