"""How the processes of a job find each other, and the store of short texts that they then share, on JAX and torch.

A store is the key-value store of the backend's own runtime: no accelerator takes part. A key is `folder/.../rank`, and
only that rank sets it.
"""

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import keras

ADDRESSES, COUNT, RANK = (f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"))
_HEARTBEAT_SECONDS = 60  # without a sign of life a process is taken for dead; JAX then ends the others


class Store(Protocol):
    """What a `Job` needs of its backend.

    Attributes:
        rank, count: int, the number of this process, and of all.
        address: str, where they meet.
        ends_with_rank_0: bool, whether the texts are lost when rank 0 ends.
    """

    rank: int
    count: int
    address: str
    ends_with_rank_0: bool

    def meet(self, seconds: float) -> None:
        """Joins the backend's job, or raises any error if not all processes have come after that time."""

    def set(self, key: str, text: str) -> None:
        """Sets a key, once."""

    def texts(self, folder: str) -> dict[int, str]:
        """What has been set so far below a folder, which ends with a slash, by rank."""

    def watch(self) -> Callable[[], Exception | None]:
        """Begins to wait for the others, in all processes. Returns what gives an error if one has gone since then."""

    def is_lost(self, error: BaseException) -> bool:
        """Whether an error, of a computation or of this store, means that another process has gone."""


def from_environment() -> Store | None:
    """The store of the job that the environment describes; None if this process is alone.

    On JAX these are Keras' variables KERAS_DISTRIBUTION_JOB_ADDRESSES, _NUM_PROCESSES and _PROCESS_ID, on torch what
    `torchrun` sets.

    Raises:
        ValueError: If a variable is missing or out of range, or the backend has no such job.
    """
    backend = keras.backend.backend()
    if backend == "torch" and "TORCHELASTIC_RUN_ID" in os.environ and os.environ["WORLD_SIZE"] != "1":
        check_torch_can_distribute()
        return TorchStore(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    address, count, rank = (os.environ.get(name) for name in (ADDRESSES, COUNT, RANK))
    if count in (None, "1") and rank in (None, "0"):
        return None
    received = ", ".join(f"{name}={os.environ.get(name)}" for name in (ADDRESSES, COUNT, RANK))
    if backend != "jax":
        raise ValueError(
            "Expected the backend jax for training with several processes by these variables (KERAS_BACKEND=jax), or "
            f"torchrun with torch. Received: {backend}, {received}"
        )
    host, _, port = (address or "").split(",")[0].rpartition(":")
    numbers = [int(text) if text and text.isdecimal() else -1 for text in (count, rank, port)]
    if not host or not 0 <= numbers[1] < numbers[0] or not 0 < numbers[2] < 2**16:
        raise ValueError(
            f"Expected the address of process 0, host:port, in {ADDRESSES}, the number of processes in {COUNT}, "
            f"and a number from 0 to one less in {RANK}. Received: {received}"
        )
    return JaxStore(numbers[1], numbers[0], f"{host}:{port}")


def check_torch_can_distribute() -> None:
    """Raises ValueError if this version of Keras has no distribution on torch."""
    if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 16):
        raise ValueError(
            "Expected Keras 3.16 or later for training on several devices of torch, for which Keras has no "
            f"distribution before 3.16, or the backend jax (KERAS_BACKEND=jax). Received: torch with Keras "
            f"{keras.__version__}"
        )


class JaxStore:
    """The store of `jax.distributed`, which rank 0 keeps."""

    ends_with_rank_0 = True

    def __init__(self, rank: int, count: int, address: str):
        self.rank = rank
        self.count = count
        self.address = address

    def meet(self, seconds: float) -> None:
        import jax
        from jax._src import distributed  # the store has no public name

        # JAX would take SIGTERM for itself.
        jax.config.update("jax_enable_preemption_service", False)
        errors = []

        def initialize():
            try:
                jax.distributed.initialize(
                    *(self.address, self.count, self.rank),
                    initialization_timeout=round(2 * seconds),
                    heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
                )
            except Exception as error:
                errors.append(error)

        # In a thread, because JAX may end the process when its own time is over, with no word to Python.
        thread = threading.Thread(target=initialize, daemon=True)
        thread.start()
        thread.join(seconds)
        if errors:
            raise errors[0]
        if thread.is_alive():
            raise TimeoutError
        self._client = distributed.global_state.client

    def set(self, key: str, text: str) -> None:
        self._client.key_value_set(f"keras_attn/{key}", text)

    def texts(self, folder: str) -> dict[int, str]:
        found = self._client.key_value_dir_get(f"keras_attn/{folder}")
        return {int(name.rpartition("/")[2]): text for name, text in found}

    def watch(self) -> Callable[[], None]:
        return lambda: None  # JAX ends this process

    def is_lost(self, error: BaseException) -> bool:
        import jax

        return isinstance(error, jax.errors.JaxRuntimeError)


class TorchStore:
    """A store that `torchrun` keeps, as long as any of its processes lives."""

    ends_with_rank_0 = False

    def __init__(self, rank: int, count: int):
        self.rank = rank
        self.count = count
        self.address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"

    def meet(self, seconds: float) -> None:
        import torch.distributed

        limit = timedelta(seconds=seconds)
        self._store, *_ = next(torch.distributed.rendezvous("env://", timeout=limit))
        self.set(f"met/{self.rank}", "")
        # Keras' own call would wait for half an hour.
        self._store.wait([f"keras_attn/met/{rank}" for rank in range(self.count)], limit)
        keras.distribution.initialize()
        # Also with GPUs, whose own library would not notice. As long as a process writes, no time is over.
        self._group = torch.distributed.new_group(backend="gloo", timeout=timedelta(days=30))

    def set(self, key: str, text: str) -> None:
        self._store.set(f"keras_attn/{key}", text)

    def texts(self, folder: str) -> dict[int, str]:
        keys = {rank: f"keras_attn/{folder}{rank}" for rank in range(self.count)}
        return {rank: self._store.get(key).decode() for rank, key in keys.items() if self._store.check([key])}

    def watch(self) -> Callable[[], Exception | None]:
        import torch.distributed

        barrier = torch.distributed.barrier(self._group, async_op=True)  # fails at once if a connection ends

        def error() -> Exception | None:
            try:
                if barrier.is_completed():
                    barrier.wait()
            except RuntimeError as error:
                return error
            return None

        return error

    def is_lost(self, error: BaseException) -> bool:
        import torch.distributed

        # Gloo, on CPUs, has no class of its own for its errors.
        return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)
