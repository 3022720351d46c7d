"""The processes that train one model together, on JAX and torch: what they tell each other, and how they end."""

import contextlib
import json
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_attn.backend import job_stores

_SECONDS_TO_MEET = 300  # as JAX has it: a cluster may start processes minutes apart
_SECONDS_TO_LEAVE = 10


class Job:
    """The processes that train one model together. Each has a rank; a process alone is rank 0 of 1.

    They exchange short messages through a key-value store: no accelerator takes part. All processes call `gather`,
    `share`, `on_rank_0` and `agree` in the same order; each call returns when all have made it.

    Args:
        store: What the processes share, see `keras_attn.backend.job_stores`. None: this process is alone.

    Attributes:
        rank: int, the number of this process.
        count: int, the number of processes.
    """

    def __init__(self, store: job_stores.Store | None = None):
        self.rank, self.count = (store.rank, store.count) if store else (0, 1)
        self._store = store
        self._has_met = False
        self._exchanges = 0
        self._wished = False
        self._decision: list[int] = []  # step, wish

    @classmethod
    def from_environment(cls) -> "Job":
        """The job that the environment describes.

        On JAX that are Keras' variables KERAS_DISTRIBUTION_JOB_ADDRESSES, _NUM_PROCESSES and _PROCESS_ID, on torch
        those that `torchrun` sets.

        Raises:
            ValueError: If a variable is missing or out of range, or the backend has no job of several processes.
        """
        return cls(job_stores.from_environment())

    def meet(self) -> None:
        """Waits for the other processes of the job. Call it before the backend computes anything.

        Raises:
            RuntimeError: If not all processes have come after 300 seconds.
            ValueError: If the processes have different numbers of devices.
        """
        if self.count == 1:
            return
        self._has_met = True
        try:
            self._store.meet(_SECONDS_TO_MEET)
        except Exception as error:
            reason = f" Received: {_shortened(error)}" if str(error) else ""
            raise RuntimeError(
                f"Expected the {self.count} processes of the job to meet at {self._store.address}. Process {self.rank} "
                f"waited {_SECONDS_TO_MEET} seconds: another one has not started, or the address is wrong.{reason}"
            ) from error
        counts = self.gather(_local_devices())
        if len(set(counts)) > 1:
            raise ValueError(f"Expected as many devices in each process. Received: {', '.join(map(str, counts))}")

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank.

        Args:
            value: What JSON can represent.

        Raises:
            RuntimeError: If another process has ended with an error.
        """
        if self.count == 1:
            return [value]
        self._exchanges += 1
        folder = f"exchange/{self._exchanges}/"
        self._say(f"{folder}{self.rank}", value)
        find_loss = self._store.watch()
        pause = 0.002
        while True:
            loss, values = find_loss(), self._heard(folder)  # in this order: one may say its value and end
            if len(values) == self.count:
                return [values[rank] for rank in range(self.count)]
            if failures := self._failures():
                raise RuntimeError(failures)
            if loss:
                raise loss
            time.sleep(pause)
            pause = min(2 * pause, 0.2)

    def share(self, value: Any) -> Any:
        """The value of rank 0. Other ranks may give anything."""
        return self.gather(value if self.rank == 0 else None)[0]

    def on_rank_0(self, action: Callable[[], None]) -> None:
        """Rank 0 does something, such as writing a file, while the others wait. If that fails, all raise.

        Meanwhile no distribution is set there: on JAX, a model or variable that is made under one of several processes
        waits for the others to make it, too.
        """
        if self.rank == 0:
            with _no_distribution() if self.count > 1 else contextlib.nullcontext():
                action()
        self.share(None)

    def agree(self, values: dict[str, Any]) -> None:
        """Checks that all processes have the same.

        Args:
            values: By name.

        Raises:
            ValueError: In all processes. The sentence has the names and values that differ.
        """
        first, *others = self.gather(json.loads(json.dumps(values)))
        for rank, other in enumerate(others, 1):
            different = [name for name in first if other.get(name) != first[name]]
            if different:
                name = different[0]
                raise ValueError(
                    f"Expected the same {', '.join(different)} in all processes. Received: {name}="
                    f"{_shortened(first[name])} in process 0 and {_shortened(other.get(name))} in process {rank}"
                )

    def vote(self, step: int, wish: int) -> int:
        """Lets all processes end a loop after the same step, without waiting for each other.

        The wish of any process is decided on by rank 0 at the end of a step, for the end of the next. Another process
        hears of that in time if it cannot finish a step without rank 0, as in training, where it has read the loss.

        Args:
            step: The number of the step that ends.
            wish: 0 to go on, or a reason to stop, the most urgent one the greatest.

        Returns:
            The reason to stop after this step, or 0. In a process alone it is `wish`.
        """
        if self.count == 1:
            return wish
        if wish and not self._wished:
            self._say(f"wish/{self.rank}", wish)
            self._wished = True
        if not self._decision and self.rank == 0:
            if wishes := self._heard("wish/"):
                self._decision = [step + 1, max(wishes.values())]
                self._say("decision/0", self._decision)
        elif not self._decision:
            self._decision = self._heard("decision/").get(0, [])
        return self._decision[1] if self._decision[:1] == [step] else 0

    @contextlib.contextmanager
    def ending_together(self) -> Iterator[None]:
        """Tells the other processes of an error in the block, and turns the end of another one into a sentence.

        After an error this process is expected to end; it ignores SIGTERM.

        Raises:
            RuntimeError: If another process has ended.
        """
        try:
            yield
        except BaseException as error:
            if not self._has_met:
                raise
            _ignore_sigterm()
            sentence = str(error) or type(error).__name__
            is_lost = self._store.is_lost(error)
            if is_lost:
                sentence = self._failures_soon() or (
                    f"Expected {self.count} processes to go on. Another one has ended, or the connection to it: "
                    f"{_shortened(error)}"
                )
            self._report(sentence)
            if is_lost:
                raise RuntimeError(sentence) from error
            raise

    def leave(self, status: int) -> int:
        """Ends this process at once if it has failed in a job, where JAX would wait for the others for minutes.

        Args:
            status: The exit status.

        Returns:
            The status, if it is 0 or the process is alone.
        """
        if status and self._has_met:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(status)
        return status

    def _say(self, name: str, value: Any) -> None:
        self._store.set(name, json.dumps(value))

    def _heard(self, folder: str) -> dict[int, Any]:
        return {rank: json.loads(text) for rank, text in self._store.texts(folder).items()}

    def _failures(self) -> str:
        failures = self._heard("failed/")
        return "; ".join(f"Process {rank} has ended: {failures[rank]}" for rank in sorted(failures)[:1])

    def _failures_soon(self) -> str:
        """What ended another process, which may be about to say so."""
        with contextlib.suppress(RuntimeError):  # rank 0 is gone, and the store with it
            for _ in range(10):
                if failures := self._failures():
                    return failures
                time.sleep(0.1)
        return ""

    def _report(self, sentence: str) -> None:
        with contextlib.suppress(RuntimeError):
            self._say(f"failed/{self.rank}", sentence)
            end = time.monotonic() + _SECONDS_TO_LEAVE
            is_awaited = self._store.ends_with_rank_0 and self.rank == 0
            while is_awaited and len(self._heard("failed/")) < self.count and time.monotonic() < end:
                time.sleep(0.1)


def _local_devices() -> int:
    if keras.backend.backend() != "jax":  # on torch a process has one
        return 1
    import jax

    return jax.local_device_count()


def _shortened(value: Any) -> str:
    return textwrap.shorten(str(value), 200)


def _ignore_sigterm() -> None:
    """A launcher that saw a process end sends SIGTERM to the others, which are about to say why they end."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextlib.contextmanager
def _no_distribution() -> Iterator[None]:
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)
