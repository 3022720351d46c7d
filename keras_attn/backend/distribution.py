"""Data-parallel training: devices, processes, the scopes in which a model is made, and sums over replicas.

Each replica gets a part of the batch. On JAX (`keras.distribution`) the compiled step is written for the whole batch,
so a sum in it is already over all devices. `tf.distribute` on TensorFlow and `DistributedDataParallel` on torch run the
step once for each replica, on that replica's rows alone.
"""

import contextlib
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

ADDRESSES, COUNT, RANK = (f"KERAS_DISTRIBUTION_{name}" for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"))


def training_devices() -> list[str]:
    """The devices on which `data_parallel` can train.

    Returns:
        list of names such as "gpu:0": all accelerators or, without one, all CPU devices, of which a process has one
        unless the backend was set up with several virtual ones. On JAX those of all processes of the job.

    Raises:
        ValueError: On torch, where Keras has no distribution.
    """
    if keras.backend.backend() == "torch":
        raise ValueError(
            "Expected the backend jax or tensorflow for training on several devices (KERAS_BACKEND=jax). Received: "
            "torch"
        )
    return keras.distribution.list_devices()


@contextlib.contextmanager
def data_parallel(devices: Sequence[str]) -> Iterator[Callable[[], contextlib.AbstractContextManager]]:
    """Inside, `fit` divides the rows of each batch among devices; the model's weights are on all of them.

    On JAX this sets `keras.distribution.DataParallel`, and at the end what was set before. On TensorFlow it makes a
    `tf.distribute.MirroredStrategy`. With one device it does nothing.

    Args:
        devices: Names, as `training_devices` returns them.

    Yields:
        A function that returns a context manager: make the model inside. Compile it in `compilation_scope(model)`.
    """
    if len(devices) < 2:
        yield contextlib.nullcontext
    elif keras.backend.backend() == "jax":
        # The data sets give each process its rows.
        with keras.distribution.DataParallel(devices=list(devices), auto_shard_dataset=False).scope():
            yield contextlib.nullcontext
    else:
        import tensorflow as tf

        yield tf.distribute.MirroredStrategy(list(devices)).scope


def compilation_scope(model: keras.Model) -> contextlib.AbstractContextManager:
    """The context in which a model's optimizer is made and the model is compiled.

    Args:
        model: Made in the scope that `data_parallel` yields, or an ordinary one.

    Returns:
        On TensorFlow the scope of the model's strategy, if it has one; else a context manager that does nothing.
    """
    return contextlib.nullcontext() if clipping_replicas(model) == 1 else model.distribute_strategy.scope()


def clipping_replicas(model: keras.Model) -> int:
    """The number of replicas whose gradients an optimizer clips one by one, before it sums them.

    On TensorFlow, Keras clips the gradient of each replica, which with `SmoothedCrossentropy` is that replica's part of
    the sum. A limit divided by this number bounds the norm of the sum.

    Args:
        model: A model.

    Returns:
        On TensorFlow the number of replicas of the model's strategy; elsewhere, where the gradient is that of the
        whole batch, 1.
    """
    if keras.backend.backend() != "tensorflow":
        return 1
    return model.distribute_strategy.num_replicas_in_sync


def replica_count() -> int:
    """The number of replicas that run the calling code side by side, each on rows of its own.

    Returns:
        On TensorFlow, in a function that a `tf.distribute` strategy runs, its number of replicas; on torch, when
        `torch.distributed` is initialised, its number of processes. Else 1, and always 1 on JAX.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        context = tf.distribute.get_replica_context()  # None outside the replicas, where values are of all of them
        return context.num_replicas_in_sync if context else 1
    if backend == "torch":
        import torch.distributed

        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_world_size()
    return 1


def data_shard() -> tuple[int, int]:
    """The part of the data that this process reads in training with several processes.

    Returns:
        (index, count). With a `keras.distribution` set, those of its replicas, which may span processes: processes of
        one replica have the same index. Else, on JAX, the index and number of this process in the job that
        `keras.distribution.initialize` or `jax.distributed.initialize` joined; on torch its rank and the number of
        ranks, if `torch.distributed` is initialised. Else (0, 1).
    """
    distribution = keras.distribution.distribution()
    if distribution is not None:
        return distribution.data_shard_id, min(distribution.num_processes, distribution.num_model_replicas)
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.process_index(), jax.process_count()
    if backend == "torch":
        import torch.distributed

        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def sum_over_replicas(value):
    """The sum of a tensor over all replicas; with one replica, what was given.

    With more than one, all replicas must call this, in the same order. No gradient flows through the sum.

    Args:
        value: A tensor or variable, of the same shape and type on each replica.

    Returns:
        A tensor of that shape and type, the same on each replica.
    """
    if replica_count() == 1:
        return value
    value = ops.stop_gradient(ops.convert_to_tensor(value))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)
    import torch.distributed

    summed = value.clone()
    torch.distributed.all_reduce(summed)
    return summed


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
                with without_distribution() if self.count > 1 else contextlib.nullcontext():
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
def without_distribution() -> Iterator[None]:
    """Within this no distribution is set: nothing is divided among devices or waits for other processes."""
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)
