"""Dynamic batching: requests of one signature are run together, each gets its own rows of the answer.

A request waits until `max_batch_size` rows have come together or `delay` seconds have passed since it came,
or longer while every worker is busy. What may be joined is what has the same model version, signature and
shapes behind axis 0; nothing is padded. All of it happens on one event loop; only the model runs in threads.
"""

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from keras_attn.serving.dev_server.errors import Refusal
from keras_attn.serving.dev_server.tensors import Signature

Arrays = dict[str, np.ndarray]


class Model(Protocol):
    signatures: dict[str, Signature]

    def run(self, signature_name: str, inputs: Arrays) -> Arrays: ...


@dataclasses.dataclass(eq=False)
class _Waiting:
    model: Model
    signature_name: str
    inputs: Arrays
    since: float
    answer: asyncio.Future

    def __post_init__(self):
        self.rows, self.key = 1, None  # a key of None goes with no other
        if self.inputs and self.model.signatures[self.signature_name].is_batched:
            self.rows = len(next(iter(self.inputs.values())))
            shapes = tuple((name, array.shape[1:]) for name, array in sorted(self.inputs.items()))
            self.key = (id(self.model), self.signature_name, shapes)


class Batcher:
    """Runs models for many at once. Make it inside a running event loop.

    Args:
        max_batch_size: Rows of a batch, at most; a request with more is a batch by itself.
        delay: Seconds that a request waits for others.
        max_requests: Requests that may be present, whether read, waiting, run or written; more are refused.
        workers: Batches run at once.
        observe: Called with the rows of each batch.
    """

    def __init__(
        self,
        *,
        max_batch_size: int = 64,
        delay: float = 0.005,
        max_requests: int = 128,
        workers: int = 1,
        observe: Callable[[int], None] = lambda rows: None,
    ):
        self.max_batch_size = max_batch_size
        self.delay = delay
        self.max_requests = max_requests
        self.present = 0
        self.closed = False
        self._observe = observe
        self._queue: deque[_Waiting] = deque()
        self._arrival, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="batch")
        self._workers = [asyncio.create_task(self._work()) for _ in range(workers)]

    @contextlib.contextmanager
    def admit(self) -> Iterator[None]:
        """Around all that is done for a request.

        Raises:
            Refusal: UNAVAILABLE after `drain`, RESOURCE_EXHAUSTED where there are too many.
        """
        if self.closed:
            raise Refusal("UNAVAILABLE", "The server is shutting down. Send the request again, to the next one.")
        if self.present >= self.max_requests:
            sentence = f"The server has {self.present} requests and takes no more. Send this one again a little later."
            raise Refusal("RESOURCE_EXHAUSTED", sentence)
        self.present += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.present -= 1
            if not self.present:
                self._idle.set()

    async def run(self, model: Model, signature_name: str, inputs: Arrays) -> Arrays:
        """What `model.run` gives for these inputs, be they run alone or with others; checked before."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(model, signature_name, inputs, loop.time(), loop.create_future())
        self._queue.append(waiting)
        self._arrival.set()
        try:
            return await waiting.answer
        finally:
            if waiting in self._queue:  # given up by its client
                self._queue.remove(waiting)

    async def drain(self, seconds: float) -> bool:
        """Refuses what comes from now on; true when all that was present has left within the time."""
        self.closed = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Ends the workers; who still waits is refused. A batch that runs is run to its end."""
        self.closed = True
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for waiting in self._queue:
            if not waiting.answer.done():
                waiting.answer.set_exception(Refusal("UNAVAILABLE", "The server has shut down."))
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._gather()
            try:
                _deliver(batch, await loop.run_in_executor(self._pool, _run, batch))
            except asyncio.CancelledError:
                self._queue.extendleft(reversed(batch))
                raise
            self._observe(sum(waiting.rows for waiting in batch))

    async def _gather(self) -> list[_Waiting]:
        """The oldest request and those that go with it."""
        while not self._queue:
            self._arrival.clear()
            await self._arrival.wait()
        batch = [self._queue.popleft()]
        try:
            async with asyncio.timeout_at(batch[0].since + self.delay):
                while not self._fill(batch):
                    self._arrival.clear()
                    await self._arrival.wait()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self._queue.extendleft(reversed(batch))
            raise
        return batch

    def _fill(self, batch: list[_Waiting]) -> bool:
        """Moves what goes with a batch from the queue into it; whether there is nothing more to wait for."""
        room = self.max_batch_size - sum(waiting.rows for waiting in batch)
        if batch[0].key is None:
            return True
        for waiting in [waiting for waiting in self._queue if waiting.key == batch[0].key]:
            if waiting.rows <= room:
                self._queue.remove(waiting)
                batch.append(waiting)
                room -= waiting.rows
        return room <= 0


def _deliver(batch: list[_Waiting], answers: list[Arrays | Exception]) -> None:
    for waiting, answer in zip(batch, answers, strict=True):
        if waiting.answer.done():  # given up by its client
            continue
        if isinstance(answer, Exception):
            waiting.answer.set_exception(answer)
        else:
            waiting.answer.set_result(answer)


def _run(batch: list[_Waiting]) -> list[Arrays | Exception]:
    """An answer for each. Where they cannot be run together, the fault of one is not that of the others."""
    if len(batch) > 1:
        first, rows = batch[0], np.cumsum([waiting.rows for waiting in batch])
        try:
            inputs = {name: np.concatenate([w.inputs[name] for w in batch]) for name in first.inputs}
            outputs = first.model.run(first.signature_name, inputs)
            if all(len(output) == rows[-1] for output in outputs.values()):
                parts = {name: np.split(output, rows[:-1]) for name, output in outputs.items()}
                return [{name: parts[name][n] for name in parts} for n in range(len(batch))]
        except Exception:  # each is run again, and says for itself what is wrong
            pass
    return [_attempt(waiting) for waiting in batch]


def _attempt(waiting: _Waiting) -> Arrays | Exception:
    try:
        return waiting.model.run(waiting.signature_name, waiting.inputs)
    except Exception as error:
        return error
