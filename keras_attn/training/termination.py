"""SIGTERM, the signal before a machine is taken away."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class Terminated(BaseException):
    """The process was asked to end by SIGTERM, and has put in order what it could."""


class Termination:
    """SIGTERM, the signal before a machine is taken away: an error at once or, while `deferred`, at the end of a batch.

    Use it as a context manager: inside, SIGTERM is handled, if nobody else handles it.

    Attributes:
        requested: Whether the signal has come.
    """

    def __init__(self):
        self.requested = False
        self._is_deferred = False

    def __enter__(self) -> "Termination":
        is_main = threading.current_thread() is threading.main_thread()
        self._is_handled = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._is_handled:
            signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *_):
        if self._is_handled:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _note(self, *_):
        self.requested = True
        if not self._is_deferred:
            raise Terminated("received SIGTERM. Continue with --resume if there is a run.json in the folder.")

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, the signal is noted in `requested` and raises nothing before the end."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        if self.requested:
            raise Terminated("received SIGTERM after training. Continue with --resume.")
