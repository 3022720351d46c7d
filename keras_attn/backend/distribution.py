"""Data-parallel training: devices, the scopes in which a model is made and compiled, and sums over replicas.

Each replica gets a part of the batch. On JAX (`keras.distribution`) the compiled step is written for the whole batch,
so a sum in it is already over all devices. `tf.distribute` on TensorFlow and `DistributedDataParallel` on torch run the
step once for each replica, on that replica's rows alone.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import keras
from keras import ops


def training_devices() -> list[str]:
    """The devices on which `data_parallel` can train.

    Returns:
        list of names such as "gpu:0": all accelerators or, without one, all CPU devices, of which a process has one
        unless the backend was set up with several virtual ones. On JAX those of all processes of the job, by rank.

    Raises:
        ValueError: On torch, where Keras has no distribution.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        return [f"{device.platform}:{device.id}" for device in devices]
    if backend == "tensorflow":
        import tensorflow as tf

        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return [device.name.removeprefix("/device:").lower() for device in devices]
    raise ValueError(
        "Expected the backend jax or tensorflow for training on several devices (KERAS_BACKEND=jax). Received: "
        f"{backend}"
    )


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
