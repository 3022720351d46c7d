"""Data-parallel training over the devices of this process."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import keras


def local_devices() -> list[str]:
    """The devices of this process on which `data_parallel` can train.

    Returns:
        list of names such as "gpu:0": all accelerators or, without one, all CPU devices. There is one of those unless
        the backend was set up with several virtual ones.

    Raises:
        ValueError: On torch, where Keras has no distribution before 3.16, and this function does not know it yet.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return [f"{device.platform}:{device.id}" for device in jax.local_devices()]
    if backend == "tensorflow":
        import tensorflow as tf

        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return [device.name.removeprefix("/device:").lower() for device in devices]
    raise ValueError(
        "Expected the backend jax or tensorflow for training on several devices. On torch, Keras has no distribution "
        "before 3.16, and this version of keras_attn does not use that of 3.16 yet. Received: torch with Keras "
        f"{keras.__version__}"
    )


@contextlib.contextmanager
def data_parallel(devices: Sequence[str]) -> Iterator[Callable[[], contextlib.AbstractContextManager]]:
    """Inside, `fit` divides the rows of each batch among devices; the model's weights are on all of them.

    On JAX this sets `keras.distribution.DataParallel` and, at the end, what was set before. On TensorFlow it makes a
    `tf.distribute.MirroredStrategy`. With one device it does nothing.

    Args:
        devices: Names, as `local_devices` returns them.

    Yields:
        A function that returns a context manager: make the model inside. Compile it in `compilation_scope(model)`.
    """
    scope = contextlib.nullcontext
    with contextlib.ExitStack() as stack:
        if len(devices) > 1 and keras.backend.backend() == "jax":
            stack.enter_context(keras.distribution.DataParallel(devices=list(devices)).scope())
        elif len(devices) > 1:
            import tensorflow as tf

            scope = tf.distribute.MirroredStrategy(list(devices)).scope
        yield scope


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
        On TensorFlow the number of replicas of the model's strategy; on JAX, where the gradient is that of the whole
        batch, 1.
    """
    if keras.backend.backend() != "tensorflow":
        return 1
    return model.distribute_strategy.num_replicas_in_sync
