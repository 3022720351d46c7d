"""What both interfaces of a server share: the model, the request queue, the limits and the metrics."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from keras_attn.serving.dev_server.batching import Arrays, Batcher, Model
from keras_attn.serving.dev_server.errors import RequestError, large_answer, too_slow
from keras_attn.serving.dev_server.memory import SMALL, Memory, Share
from keras_attn.serving.dev_server.metrics import Metrics
from keras_attn.serving.dev_server.settings import Settings
from keras_attn.serving.dev_server.tensors import least_bytes
from keras_attn.serving.dev_server.versions import Versions

# An estimate before work takes each byte of a text for a token. Most texts have three to five bytes a token, and an
# alignment has two axes of tokens.
_ESTIMATE = 8


class Service:
    """The parts of a server that an interface needs to answer a request.

    Args:
        versions, batcher, metrics: The model, the queue and the counters.
        settings: The limits.
    """

    def __init__(self, versions: Versions, batcher: Batcher, metrics: Metrics, settings: Settings):
        self.versions = versions
        self.batcher = batcher
        self.metrics = metrics
        self.settings = settings
        self._memory = Memory(16 * settings.max_request_bytes + 4 * settings.max_answer_bytes)
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="format")

    @contextlib.contextmanager
    def request(self, api: str) -> Iterator[Share]:
        """A context for a Predict request from its first byte on, which is counted, with its share of the memory."""
        with self.metrics.request(api), self._memory.share() as share:
            yield share

    @contextlib.asynccontextmanager
    async def transfer(self):
        """A context in which a client sends a request, or takes its answer.

        Raises:
            RequestError: DEADLINE_EXCEEDED, if it takes too long.
        """
        seconds = self.settings.transfer_seconds
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise too_slow(f"Expected a client that sends and receives within {seconds:g} s. It took longer.") from None

    async def aside(self, size: int, function: Callable, *arguments) -> Any:
        """Calls a function, in a thread if it handles many bytes, so that other requests go on meanwhile."""
        if size <= SMALL:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def run(self, model: Model, signature_name: str, inputs: Arrays) -> Arrays:
        """Runs a model on inputs that were checked.

        Raises:
            RequestError: RESOURCE_EXHAUSTED, if the answer is too large, before the model runs where that is certain
                or likely; DEADLINE_EXCEEDED, if it takes too long.
        """
        most, seconds = self.settings.max_answer_bytes, self.settings.request_seconds
        if model.signatures[signature_name].estimated_bytes(inputs) > _ESTIMATE * most:
            raise large_answer(most, "may be")
        try:
            async with asyncio.timeout(seconds):
                outputs = await self.batcher.run(model, signature_name, inputs)
        except TimeoutError:
            sentence = f"Expected a request that is answered within {seconds:g} s. It took longer and was stopped."
            raise RequestError("DEADLINE_EXCEEDED", f"{sentence} Send fewer or shorter texts at once.") from None
        if least_bytes(outputs) > most:
            raise large_answer(most, "is")
        return outputs
