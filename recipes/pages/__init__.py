"""Pages: what writes `recipes/README.md` from committed reports."""
