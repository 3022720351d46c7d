"""Stops a run of a model from another thread."""

import contextlib
import threading
from collections.abc import Callable, Iterator


class Stop:
    """Stops the run that it is given to, from any thread.

    Attributes:
        is_set: Whether `set` was called.
    """

    def __init__(self):
        self.is_set = False
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None

    def set(self) -> None:
        with self._lock:
            if not self.is_set and self._end:
                self._end()
            self.is_set = True

    @contextlib.contextmanager
    def calls(self, end: Callable[[], None]) -> Iterator[None]:
        """A context in which `set` calls `end`; it is called at once if `set` was called before."""
        with self._lock:
            self._end = end
            if self.is_set:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._end = None
