"""SIGTERM, the signal before a machine is taken away, and Ctrl+C."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class Terminated(BaseException):
    """The process was asked to end by SIGTERM, and has put in order what it could."""


class Termination:
    """SIGTERM and SIGINT (Ctrl+C): an error at once or, while `deferred`, at the end of a batch.

    Use it as a context manager: inside, the signals are handled, if nobody else handles them. While `deferred`, the
    second Ctrl+C is an error at once.

    Attributes:
        requested: Whether a signal has come.
    """

    def __init__(self):
        self.requested = False
        self._is_deferred = False
        self._kind: type[BaseException] = Terminated

    def __enter__(self) -> "Termination":
        is_main = threading.current_thread() is threading.main_thread()
        defaults = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
        self._handled = {number: own for number, own in defaults.items() if is_main and signal.getsignal(number) is own}
        for number in self._handled:
            signal.signal(number, self._note)
        return self

    def __exit__(self, *_):
        for number, own in self._handled.items():
            signal.signal(number, own)

    def error(self, advice: str) -> BaseException:
        """Returns the error of the signal that has come: `Terminated` or `KeyboardInterrupt`.

        Args:
            advice: How the run goes on.
        """
        return self._kind(f"{'received SIGTERM' if self._kind is Terminated else 'interrupted'}. {advice}")

    def _note(self, number, frame):
        is_first, self.requested = not self.requested, True
        self._kind = KeyboardInterrupt if number == signal.SIGINT else Terminated
        if not self._is_deferred or (number == signal.SIGINT and not is_first):
            raise self.error("Continue with --resume if there is a run.json in the folder.")

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, the first signal is noted in `requested` and raises nothing before the end."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        if self.requested:
            raise self.error("Continue with --resume.")
