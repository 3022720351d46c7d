"""The memory for requests and answers that are large: bounded, and never taken from those that are small."""

import contextlib
from collections.abc import Iterator

from keras_attn.serving.dev_server.errors import RequestError

SMALL = 2**16  # bytes; a smaller request or answer is not counted, so it is never refused for want of memory


class Memory:
    """Counts the bytes of large requests and answers while they are in the server, from their first byte to their last.

    Args:
        limit: Bytes at once, at most.

    Attributes:
        used: Bytes now.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self.used = 0

    @contextlib.contextmanager
    def share(self) -> Iterator["Share"]:
        """A context for the time that a request is in the server, which yields its share of the memory."""
        share = Share(self)
        try:
            yield share
        finally:
            self.used -= share.counted


class Share:
    def __init__(self, memory: Memory):
        self._memory = memory
        self.counted = 0

    def hold(self, size: int) -> None:
        """Counts a request or an answer that has this size now.

        Raises:
            RequestError: RESOURCE_EXHAUSTED, if that would be more than the limit.
        """
        more = max(0, size - SMALL - self.counted)
        if self._memory.used + more > self._memory.limit:
            sentence = f"The server has {self._memory.used:,} bytes of requests and answers and takes no more now."
            raise RequestError("RESOURCE_EXHAUSTED", f"{sentence} Send this one again a little later.")
        self._memory.used += more
        self.counted += more
