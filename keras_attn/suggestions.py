"""Suggestions for names that do not exist."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Returns " (did you mean ...?)" with the name most similar to `name`, or "" if none is.

    Args:
        name: The name that does not exist.
        names: Those that do.
    """
    similar = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {similar[0]!r}?)" if similar else ""
