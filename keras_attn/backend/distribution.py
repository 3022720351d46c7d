"""Training on several devices: batches divided among them, or the vocabulary's matrices, or both."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import keras

from keras_attn.backend.job_stores import check_torch_can_distribute
from keras_attn.backend.replicas import replica_count


def training_devices() -> list[str]:
    """The devices on which `data_parallel` can train.

    Returns:
        list of names such as "gpu:0": all accelerators or, without one, all CPU devices, of which a process has one
        unless the backend was set up with several virtual ones. On JAX and torch those of all processes of the job, by
        rank.

    Raises:
        ValueError: On torch, if Keras is older than 3.16, or there are more devices than processes.
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
    check_torch_can_distribute()
    devices = keras.distribution.list_devices()
    if len(devices) > replica_count():
        raise ValueError(
            f"Expected a process for each of the {len(devices)} devices of this machine. Start them with torchrun "
            f"--nproc-per-node {len(devices)} -m recipes.train and the same arguments. Received: one process"
        )
    return devices


@contextlib.contextmanager
def data_parallel(
    devices: Sequence[str], vocabulary_parts: int = 1
) -> Iterator[Callable[[], contextlib.AbstractContextManager]]:
    """Inside, `fit` divides the rows of each batch among devices; the model's weights are on all of them.

    With `vocabulary_parts=N`, the rows are divided among groups of N devices, and the devices of each group have a part
    of the vocabulary each: of the embeddings, the output's kernel and bias, and the optimizer's averages of them.

    On JAX and torch this sets `keras.distribution.DataParallel` or, on JAX, `ModelParallel`, and at the end what was
    set before. On TensorFlow it makes a `tf.distribute.MirroredStrategy`. With one device it does nothing.

    Args:
        devices: Names, as `training_devices` returns them.
        vocabulary_parts: N, a divisor of their number; 1 but on JAX.

    Yields:
        A function that returns a context manager: make the model inside. Compile it in `compilation_scope(model)`.
    """
    scope = contextlib.nullcontext
    with contextlib.ExitStack() as stack:
        if vocabulary_parts > 1:
            stack.enter_context(_vocabulary_parallel(list(devices), vocabulary_parts).scope())
        elif len(devices) > 1 and keras.backend.backend() != "tensorflow":
            # The data sets give each process its rows.
            distribution = keras.distribution.DataParallel(devices=list(devices), auto_shard_dataset=False)
            stack.enter_context(distribution.scope())
        elif len(devices) > 1:
            import tensorflow as tf

            scope = tf.distribute.MirroredStrategy(list(devices)).scope
        yield scope


def _vocabulary_parallel(devices: list[str], parts: int) -> keras.distribution.ModelParallel:
    mesh = keras.distribution.DeviceMesh((len(devices) // parts, parts), ("batch", "model"), devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*embedding/embeddings"] = ("model", None)
    layouts["(member_[0-9]+/)?output/kernel"] = (None, "model")
    layouts["(member_[0-9]+/)?output/bias"] = ("model",)
    return keras.distribution.ModelParallel(layout_map=layouts)


def model_parallel() -> bool:
    """Whether the distribution in force, Keras' own, may divide variables among devices."""
    return isinstance(keras.distribution.distribution(), keras.distribution.ModelParallel)


def parts_of_axis(path: str, axis: int) -> int:
    """Among how many devices the distribution in force divides an axis of a variable.

    Args:
        path: The variable's path, such as "output/kernel".
        axis: Its axis.

    Returns:
        The size of the mesh's axis that the variable's layout names there, or 1.
    """
    layout = keras.distribution.distribution().get_tensor_layout(path) if model_parallel() else None
    if layout is None or layout.axes[axis] is None:
        return 1
    return dict(zip(layout.device_mesh.axis_names, layout.device_mesh.shape, strict=True))[layout.axes[axis]]


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
