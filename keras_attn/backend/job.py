"""The processes that train one model together, on JAX: how they meet, what they tell each other, and how they end."""

import contextlib
import json
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras

ADDRESSES, COUNT, RANK = (f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"))
_SECONDS_TO_MEET = 300  # as JAX has it: a cluster may start processes minutes apart
_SECONDS_TO_LEAVE = 10
_HEARTBEAT_SECONDS = 60  # without a sign of life a process is taken for dead; JAX then ends the others


class Job:
    """The processes that train one model together. Each has a rank; a process alone is rank 0 of 1.

    They exchange short messages through the key-value store of `jax.distributed`, which rank 0 keeps: no accelerator
    takes part. All processes call `gather`, `share`, `on_rank_0` and `agree` in the same order; each call returns
    when all have made it.

    Args:
        rank: int, the number of this process.
        count: int, the number of processes.

    Attributes:
        rank, count: As given.
    """

    def __init__(self, rank: int = 0, count: int = 1):
        self.rank = rank
        self.count = count
        self._has_met = False
        self._exchanges = 0
        self._wished = False
        self._decision: list[int] = []  # step, wish

    @classmethod
    def from_environment(cls) -> "Job":
        """The job that Keras' variables describe: KERAS_DISTRIBUTION_JOB_ADDRESSES, _NUM_PROCESSES and _PROCESS_ID.

        Raises:
            ValueError: If a variable is missing or out of range, or the backend is not JAX.
        """
        address, count, rank = (os.environ.get(name) for name in (ADDRESSES, COUNT, RANK))
        if count in (None, "1") and rank in (None, "0"):
            return cls()
        received = ", ".join(f"{name}={os.environ.get(name)}" for name in (ADDRESSES, COUNT, RANK))
        if keras.backend.backend() != "jax":
            raise ValueError(
                "Expected the backend jax for training with several processes (KERAS_BACKEND=jax). Received: "
                f"{keras.backend.backend()}, {received}"
            )
        host, _, port = (address or "").split(",")[0].rpartition(":")
        numbers = [int(text) if text and text.isdecimal() else -1 for text in (count, rank, port)]
        if not host or not 0 <= numbers[1] < numbers[0] or not 0 < numbers[2] < 2**16:
            raise ValueError(
                f"Expected the address of process 0, host:port, in {ADDRESSES}, the number of processes in {COUNT}, "
                f"and a number from 0 to one less in {RANK}. Received: {received}"
            )
        return cls(numbers[1], numbers[0])

    def meet(self) -> None:
        """Waits for the other processes of the job. Call it before JAX computes anything.

        Raises:
            RuntimeError: If not all processes have come after 300 seconds.
            ValueError: If the processes have different numbers of devices.
        """
        if self.count == 1:
            return
        import jax

        # JAX would take SIGTERM for itself.
        jax.config.update("jax_enable_preemption_service", False)
        self._has_met = True
        address = os.environ[ADDRESSES].split(",")[0]
        errors = []

        def initialize():
            try:
                jax.distributed.initialize(
                    *(address, self.count, self.rank),
                    initialization_timeout=2 * _SECONDS_TO_MEET,
                    heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
                )
            except Exception as error:
                errors.append(error)

        # In a thread, because JAX may end the process when its own time is over, with no word to Python.
        thread = threading.Thread(target=initialize, daemon=True)
        thread.start()
        thread.join(_SECONDS_TO_MEET)
        if errors or thread.is_alive():
            reason = f" Received: {_shortened(errors[0])}" if errors else ""
            raise RuntimeError(
                f"Expected the {self.count} processes of the job to meet at {address}. Process {self.rank} waited "
                f"{_SECONDS_TO_MEET} seconds: another one has not started, or the address is wrong.{reason}"
            )
        counts = self.gather(jax.local_device_count())
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
        pause = 0.002
        while len(values := self._heard(folder)) < self.count:
            if failures := self._failures():
                raise RuntimeError(failures)
            time.sleep(pause)
            pause = min(2 * pause, 0.2)
        return [values[rank] for rank in range(self.count)]

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

        Raises:
            RuntimeError: If another process has ended.
        """
        try:
            yield
        except BaseException as error:
            if not self._has_met:
                raise
            import jax

            sentence = str(error) or type(error).__name__
            is_lost = isinstance(error, jax.errors.JaxRuntimeError)
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
        _client().key_value_set(f"keras_attn/{name}", json.dumps(value))

    def _heard(self, folder: str) -> dict[int, Any]:
        found = _client().key_value_dir_get(f"keras_attn/{folder}")
        return {int(name.rpartition("/")[2]): json.loads(value) for name, value in found}

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
            while self.rank == 0 and len(self._heard("failed/")) < self.count and time.monotonic() < end:
                time.sleep(0.1)  # the store ends with this process


def _client():
    from jax._src import distributed  # the store has no public name

    if distributed.global_state.client is None:
        raise RuntimeError("Expected a job that has met.")
    return distributed.global_state.client


def _shortened(value: Any) -> str:
    return textwrap.shorten(str(value), 200)


@contextlib.contextmanager
def _no_distribution() -> Iterator[None]:
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)
