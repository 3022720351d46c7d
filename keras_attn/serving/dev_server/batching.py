"""Dynamic batching: requests of one signature run together, and each gets its own rows of the outputs.

A request waits until its batch has `max_batch_size` rows or `delay` seconds have passed since it arrived, or longer
while every worker is busy. Requests can be joined if they have the same model version, signature and shapes after
axis 0; nothing is padded. A request of long texts or of many rows runs alone, by workers of its own kind, so that short
ones do not wait for it. A run is stopped when nobody waits for its answer any more. All of this happens on one event
loop; only the model runs in threads.
"""

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from keras_attn.serving.dev_server.errors import RequestError
from keras_attn.serving.dev_server.stop import Stop
from keras_attn.serving.dev_server.tensors import Signature, longest

Arrays = dict[str, np.ndarray]
# A request runs alone if a text has more bytes (a row of numbers more elements), or all would have if each was as long.
LONG, LARGE = 512, 2**13


class Model(Protocol):
    signatures: dict[str, Signature]

    def run(self, signature_name: str, inputs: Arrays, stop: Stop) -> Arrays: ...


@dataclasses.dataclass(eq=False)
class _Waiting:
    model: Model
    signature_name: str
    inputs: Arrays
    since: float
    answer: asyncio.Future

    def __post_init__(self):
        self.rows = max((len(array) for array in self.inputs.values() if array.ndim), default=1)
        length = longest(self.inputs)
        self.is_long = length > LONG or length * self.rows > LARGE
        self.key = None  # a request with a key of None is never joined
        if self.inputs and not self.is_long and self.model.signatures[self.signature_name].is_batched:
            shapes = tuple((name, array.shape[1:]) for name, array in sorted(self.inputs.items()))
            self.key = (id(self.model), self.signature_name, shapes)


class _Lane:
    """The requests that wait for workers of one kind, and the batches that these run."""

    def __init__(self):
        self.queue: deque[_Waiting] = deque()
        self.running: dict[Stop, list[_Waiting]] = {}
        self.arrival = asyncio.Event()


class Batcher:
    """Runs a model for several requests at once. To be created inside a running event loop.

    Args:
        max_batch_size: Rows of a batch, at most; a larger request is a batch of its own.
        delay: Seconds that a request waits for others.
        max_requests: Requests at once that wait, run or are answered; further ones are refused.
        workers: Batches of each kind, short and long, that run at once.
        observe: Called with the number of rows of each batch.
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
        self._idle = asyncio.Event()
        self._idle.set()
        self._short, self._long = self._lanes = _Lane(), _Lane()
        self._pool = ThreadPoolExecutor(2 * workers, thread_name_prefix="batch")
        self._workers = [asyncio.create_task(self._work(lane)) for lane in self._lanes for _ in range(workers)]

    @contextlib.contextmanager
    def admit(self) -> Iterator[None]:
        """A context for the time from a request's last byte to its answer.

        Raises:
            RequestError: UNAVAILABLE after `drain`, RESOURCE_EXHAUSTED if there are too many requests.
        """
        if self.closed:
            raise RequestError("UNAVAILABLE", "The server is shutting down. Send the request again, to the next one.")
        if self.present >= self.max_requests:
            sentence = f"The server has {self.present} requests and takes no more. Send this one again a little later."
            raise RequestError("RESOURCE_EXHAUSTED", sentence)
        self.present += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.present -= 1
            if not self.present:
                self._idle.set()

    async def run(self, model: Model, signature_name: str, inputs: Arrays) -> Arrays:
        """Runs a model on inputs that were checked, alone or in a batch; returns its outputs for these inputs.

        A caller that is cancelled leaves its batch, which is stopped if all of its callers have left.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(model, signature_name, inputs, loop.time(), loop.create_future())
        lane = self._long if waiting.is_long or waiting.rows > self.max_batch_size else self._short
        lane.queue.append(waiting)
        lane.arrival.set()
        try:
            return await waiting.answer
        finally:
            if waiting in lane.queue:
                lane.queue.remove(waiting)
            for stop, batch in lane.running.items():
                if waiting in batch and all(other.answer.done() for other in batch):
                    stop.set()

    async def drain(self, seconds: float) -> bool:
        """Refuses new requests; returns whether all requests in the server were answered within the time."""
        self.closed = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Stops the workers and the batches that run, and refuses the requests that wait."""
        self.closed = True
        for worker in self._workers:
            worker.cancel()
        for lane in self._lanes:
            for stop in lane.running:
                stop.set()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for waiting in [*self._short.queue, *self._long.queue]:
            if not waiting.answer.done():
                waiting.answer.set_exception(RequestError("UNAVAILABLE", "The server has shut down."))
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _work(self, lane: _Lane) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = [waiting for waiting in await self._gather(lane) if not waiting.answer.done()]
            if not batch:  # their clients have disconnected
                continue
            stop = Stop()
            lane.running[stop] = batch
            try:
                _deliver(batch, await loop.run_in_executor(self._pool, _run, batch, stop))
            except asyncio.CancelledError:
                lane.queue.extendleft(reversed(batch))
                raise
            finally:
                del lane.running[stop]
            self._observe(sum(waiting.rows for waiting in batch))

    async def _gather(self, lane: _Lane) -> list[_Waiting]:
        """Returns the oldest request and those that can be joined with it."""
        while not lane.queue:
            lane.arrival.clear()
            await lane.arrival.wait()
        batch = [lane.queue.popleft()]
        try:
            async with asyncio.timeout_at(batch[0].since + self.delay):
                while not self._fill(batch, lane):
                    lane.arrival.clear()
                    await lane.arrival.wait()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            lane.queue.extendleft(reversed(batch))
            raise
        return batch

    def _fill(self, batch: list[_Waiting], lane: _Lane) -> bool:
        """Moves requests that fit into a batch from the queue to it; returns whether the batch is full."""
        room = self.max_batch_size - sum(waiting.rows for waiting in batch)
        if batch[0].key is None:
            return True
        for waiting in [waiting for waiting in lane.queue if waiting.key == batch[0].key]:
            if waiting.rows <= room:
                lane.queue.remove(waiting)
                batch.append(waiting)
                room -= waiting.rows
        return room <= 0


def _deliver(batch: list[_Waiting], answers: list[Arrays | Exception]) -> None:
    for waiting, answer in zip(batch, answers, strict=True):
        if waiting.answer.done():  # its client has disconnected
            continue
        if isinstance(answer, Exception):
            waiting.answer.set_exception(answer)
        else:
            waiting.answer.set_result(answer)


def _run(batch: list[_Waiting], stop: Stop) -> list[Arrays | Exception]:
    """Returns an answer or an error for each request. If the batch fails, each request is run alone."""
    if len(batch) > 1:
        first, rows = batch[0], np.cumsum([waiting.rows for waiting in batch])
        try:
            inputs = {name: np.concatenate([w.inputs[name] for w in batch]) for name in first.inputs}
            outputs = first.model.run(first.signature_name, inputs, stop)
            if all(len(output) == rows[-1] for output in outputs.values()):
                parts = {name: np.split(output, rows[:-1]) for name, output in outputs.items()}
                return [{name: parts[name][n] for name in parts} for n in range(len(batch))]
        except Exception:  # each request is run again below and gets an error of its own
            pass
    return [_attempt(waiting, stop) for waiting in batch]


def _attempt(waiting: _Waiting, stop: Stop) -> Arrays | Exception:
    if waiting.answer.done():  # its client has disconnected
        return {}
    try:
        return waiting.model.run(waiting.signature_name, waiting.inputs, stop)
    except Exception as error:
        return error
