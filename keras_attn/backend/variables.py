"""A model's layers, and the state of training that Keras does not keep in its variables, or not always."""

import contextlib
from collections.abc import Iterator

import keras
import numpy as np


def all_layers(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    """A layer or model and everything inside it; a layer comes after the one that it is a part of."""
    return list(layer._flatten_layers())  # private: of a layer's layers Keras has no public list


@contextlib.contextmanager
def keep_values(model: keras.Model) -> Iterator[None]:
    """Puts the values of a model's variables back if an error or an interruption ends `fit`, `evaluate` or `predict`.

    On JAX, Keras 3.15 takes the values out of the variables, to have one copy of them on the device, and puts them
    back when `evaluate` and `predict` end without an error, or `fit` after its first step: otherwise the model would
    have lost its weights.

    Args:
        model: A built model.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    build_optimizer(model)
    variables = list(model.variables)
    if getattr(model, "optimizer", None):  # not set before `compile`
        variables += model.optimizer.variables
    values = [variable.value for variable in variables]
    try:
        yield
    except BaseException:
        model.jax_state_sync()  # the values of the last step, if there was one
        for variable, value in zip(variables, values, strict=True):
            if not _has_value(variable):
                variable.assign(value)  # of before the first step, which has not begun
        if not all(map(_has_value, model.metrics_variables)):
            model.reset_metrics()
        raise


def build_optimizer(model: keras.Model) -> None:
    """Makes the variables of a model's optimizer before the first step.

    On TensorFlow, Keras makes them while the first step is traced. A function that has made variables is traced again:
    the first step took twice as long.

    Args:
        model: A built model. Where it is not compiled, or its optimizer has its variables, nothing is made: Keras'
            `LossScaleOptimizer` would begin anew with its first scale.
    """
    optimizer = getattr(model, "optimizer", None)  # not set before `compile`
    if optimizer is None or optimizer.built:
        return
    tensorflow = keras.backend.backend() == "tensorflow"
    with model.distribute_strategy.scope() if tensorflow else contextlib.nullcontext():
        optimizer.build(model.trainable_variables)


def sync_variables(model: keras.Model) -> None:
    """Gives a model's variables their values in a callback of `fit`, where Keras on JAX keeps them elsewhere.

    Args:
        model: A model that `fit` trains.
    """
    if keras.backend.backend() == "jax":
        model.jax_state_sync()


def random_state() -> list[np.ndarray]:
    """The random state that Keras keeps in no variable: on torch, where dropout draws from torch's own generators.

    Returns:
        The states (uint8) of torch's generator on the CPU and on each GPU; none on other backends.
    """
    if keras.backend.backend() != "torch":
        return []
    import torch

    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else ())]
    return [state.numpy() for state in states]


def set_random_state(states: list[np.ndarray]) -> None:
    """Sets what `random_state` returned, on as many devices as there are now; nothing if that is empty."""
    if not states:
        return
    import torch

    first, *others = (torch.from_numpy(state) for state in states)
    torch.set_rng_state(first)
    for device, state in enumerate(others[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, device)


def _has_value(variable: keras.Variable) -> bool:
    try:
        return variable.value is not None
    except TypeError:  # Keras takes it for a variable that is not built yet, without an initializer
        return False
