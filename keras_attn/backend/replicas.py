"""The replicas of data-parallel training: how many there are, and sums over all of them.

An engine of data parallelism gives each replica a part of the batch. On JAX (`keras.distribution`) the compiled step is
written for the whole batch, so a sum in it is already over all devices. `tf.distribute` on TensorFlow and
`DistributedDataParallel` on torch run the step once for each replica, on that replica's rows alone.
"""

import keras
from keras import ops


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
