"""Pages: writing `recipes/README.md` from committed reports."""
