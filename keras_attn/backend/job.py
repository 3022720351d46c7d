"""The processes that train one model together, on JAX: how they start, exchange values and end."""

import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

ADDRESSES, COUNT, RANK = (f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"))


class Job:
    """The processes that train one model together. Each has a rank; a process alone is rank 0 of 1.

    All processes call `gather`, `broadcast`, `on_rank_0`, `assert_equal` and `stop_together` in the same order; each
    call returns when all have made it. If a process has ended, JAX raises an error in the others, or ends them.

    Attributes:
        rank: int, the number of this process.
        count: int, the number of processes.
    """

    def __init__(self, rank: int = 0, count: int = 1):
        self.rank = rank
        self.count = count

    @classmethod
    def from_environment(cls) -> "Job":
        """Reads Keras' variables KERAS_DISTRIBUTION_JOB_ADDRESSES, _NUM_PROCESSES and _PROCESS_ID.

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

    def init(self) -> None:
        """Joins the other processes. Call it before the backend computes anything.

        Raises:
            ValueError: If the processes have different numbers of devices.
        """
        if self.count == 1:
            return
        import jax

        jax.config.update("jax_enable_preemption_service", False)  # which would take SIGTERM for itself
        keras.distribution.initialize()
        counts = self.gather(jax.local_device_count())
        if len(set(counts)) > 1:
            raise ValueError(f"Expected as many devices in each process. Received: {', '.join(map(str, counts))}")

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all processes, by rank; `value` is what JSON can represent."""
        if self.count == 1:
            return [value]
        from jax.experimental import multihost_utils

        text = np.frombuffer(json.dumps(value).encode(), "uint8")
        sizes = multihost_utils.process_allgather(np.int32(len(text)))
        padded = np.pad(text, (0, sizes.max() - len(text)))
        texts = multihost_utils.process_allgather(padded)
        return [json.loads(row[:size].tobytes()) for row, size in zip(texts, sizes, strict=True)]

    def broadcast(self, value: Any) -> Any:
        """Returns the value of rank 0. Other ranks may give anything."""
        return self.gather(value if self.rank == 0 else None)[0]

    def on_rank_0(self, action: Callable[[], None]) -> None:
        """Rank 0 does something, such as writing a file, while the others wait.

        Meanwhile no distribution is set there: a model or variable that is made under one of several processes waits
        for the others to make it, too.

        Raises:
            RuntimeError: On the other ranks, if it fails on rank 0, which raises its own error.
        """
        error = None
        if self.rank == 0:
            try:
                with _no_distribution() if self.count > 1 else contextlib.nullcontext():
                    action()
            except Exception as raised:
                error = raised
        if reason := self.broadcast(error and (str(error) or type(error).__name__)):
            raise error or RuntimeError(f"Process 0 has ended: {reason}")

    def assert_equal(self, values: dict[str, Any]) -> None:
        """Checks that all processes have the same values, by name.

        Raises:
            ValueError: In all processes. The sentence has the names and values that differ.
        """
        first, *others = self.gather(values)
        for rank, other in enumerate(others, 1):
            if different := [name for name in first if other.get(name) != first[name]]:
                name = different[0]
                ours, theirs = (textwrap.shorten(str(one.get(name)), 200) for one in (first, other))
                raise ValueError(
                    f"Expected the same {', '.join(different)} in all processes. Received: {name}={ours} in process 0 "
                    f"and {theirs} in process {rank}"
                )

    def stop_together(self, wish: int) -> int:
        """Returns the greatest wish of all processes: 0 to go on, or a reason to stop, the most urgent the greatest."""
        if self.count == 1:
            return wish
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.int32(wish)).max())

    def exit(self, status: int) -> int:
        """Ends this process at once if it has failed in a job, where JAX would wait for the others; else the status."""
        if status and self.count > 1:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(status)
        return status


@contextlib.contextmanager
def _no_distribution() -> Iterator[None]:
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)
