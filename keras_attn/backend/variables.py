"""A model's layers and weights: without initial ones, copied, and the state of training that Keras does not keep."""

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
from keras import ops

_PACKAGES = ("keras", "keras_attn", "keras_hub")  # whose layers store all weights and read none while they are built


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


@contextlib.contextmanager
def dense_gradients(optimizer: keras.optimizers.Optimizer | None) -> Iterator[None]:
    """Gives an optimizer dense gradients on TensorFlow.

    There, the gradient of a lookup (`tf.IndexedSlices`) has a row for each id of a batch. Keras 3.15 squares the rows
    of an id that occurs several times one by one, not their sum. With n equal rows and without clipping, Adam's first
    step is sqrt(n) times the learning rate.

    Args:
        optimizer: The optimizer of a training step, whose `apply_gradients` is replaced within the context.

    Example:
        >>> class Translation(keras.Model):
        ...     def train_step(self, *args):
        ...         with keras_attn.backend.dense_gradients(self.optimizer):
        ...             return super().train_step(*args)
    """
    if optimizer is None or keras.backend.backend() != "tensorflow":
        yield
        return
    import tensorflow as tf

    def dense(gradient):
        return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient

    def apply_gradients(pairs):
        pairs = [(dense(gradient), variable) for gradient, variable in pairs]
        return type(optimizer).apply_gradients(optimizer, pairs)

    optimizer.apply_gradients = apply_gradients
    try:
        yield
    finally:
        vars(optimizer).pop("apply_gradients", None)  # another replica of the step may have done so


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


class _Build:
    """A model that is being built: its weights that got no value, and how many elements it may still ask for."""

    def __init__(self, most_elements: float):
        self.skipped: list[keras.Variable] = []
        self.elements_left = most_elements


_building: ContextVar[_Build | None] = ContextVar("building", default=None)


def without_initial_weights(build: Callable[[], Any], most_elements: float = float("inf")) -> Any:
    """Returns `build()`, a model whose weights are all set there or afterwards, and computes no initial ones for it.

    On JAX an initializer is compiled for each shape, so that the five of a small model take longer than its first
    translation (docs/performance.md). Here weights have NaN instead, and their initializers stay.

    It is built once more, as always, if it has a user's layers or weights that are not the model's, because those may
    be left out when it is saved, or read when it is built. With a `keras.distribution`, where each device makes its
    part, and where JAX looks for NaN (`jax_debug_nans`), it is built as always at once.

    Args:
        build: Makes or loads the model, without side effects.
        most_elements: Elements of weights that it may have, all together.

    Raises:
        ValueError: if the model asks for weights of more elements.
    """
    if keras.distribution.distribution() is not None or _looks_for_nan():
        return build()
    building = _Build(most_elements)
    token = _building.set(building)
    try:
        with _add_weight:
            model = build()
    finally:
        _building.reset(token)
    return model if _stores_all(model, building.skipped) else build()


def copy_weights(source: keras.Model, target: keras.Model) -> None:
    """Gives a model the weights of another one of its class and configuration, layer by layer.

    As when a model is saved and loaded, Keras' layers keep what they derive from weights (`Normalization`), merge what
    was added to them (`enable_lora`), and may have made their weights in another order (`quantize`).

    Args:
        source: The model that is read.
        target: The model whose weights are set.
    """
    for (old, store), (new, _) in zip(_own_variables(source), _own_variables(target), strict=True):
        # A user's layer may leave something out when it is saved: it is copied, too.
        known = _is_known(old) and not isinstance(old, keras.Model)
        other = type(new) if known else keras.layers.Layer
        if known:
            store = {}
            old.save_own_variables(store)
        # On JAX an array must not be that of two variables: training gives it away.
        other.load_own_variables(new, {name: ops.convert_to_numpy(value) for name, value in store.items()})


def _own_variables(model):
    """Each layer that has variables itself, with these; a layer attached to a model need not be in its copy."""
    for layer in all_layers(model):
        store = {}
        keras.layers.Layer.save_own_variables(layer, store)
        if store:
            yield layer, store


def set_weights(model: keras.Model, weights: list[np.ndarray]) -> None:
    """As `model.set_weights`, and what layers derive from weights follows.

    Args:
        model: The model whose weights are set.
        weights: An array for each, in the order of `get_weights`.
    """
    model.set_weights(weights)
    copy_weights(model, model)


def _stores_all(model, skipped: list) -> bool:
    if not isinstance(model, keras.Model):
        return False
    stored = {id(weight) for weight in model.weights}
    return all(map(_is_known, all_layers(model)[1:])) and all(id(weight) in stored for weight in skipped)


def _is_known(layer) -> bool:
    return type(layer).__module__.partition(".")[0] in _PACKAGES


def _looks_for_nan() -> bool:
    if keras.backend.backend() != "jax":
        return False
    import jax

    return jax.config.jax_debug_nans


class _AddWeight:
    """Replaces `add_weight` of Keras' layers while any thread is inside: Keras has no setting for this."""

    def __init__(self):
        self._lock, self._inside, self._original = threading.Lock(), 0, None

    def __enter__(self):
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._original = keras.layers.Layer.add_weight
                keras.layers.Layer.add_weight = _skipping(self._original)

    def __exit__(self, *_):
        with self._lock:
            self._inside -= 1
            if not self._inside:
                keras.layers.Layer.add_weight = self._original


_add_weight = _AddWeight()


def _skipping(add_weight):
    @functools.wraps(add_weight)
    def wrapped(layer, *args, **kwargs):
        building = _building.get()
        if building is None:
            return add_weight(layer, *args, **kwargs)
        building.elements_left -= math.prod((args[0] if args else kwargs.get("shape")) or ())
        if building.elements_left < 0:
            raise ValueError(f"Expected the weights that are stored. {layer.name} asks for more.")
        dtype = kwargs.get("dtype") or getattr(layer, "variable_dtype", None)
        if len(args) > 1 or dtype not in ("float16", "float32", "float64"):
            return add_weight(layer, *args, **kwargs)
        weight = add_weight(layer, *args, **kwargs | {"initializer": _not_a_number})
        building.skipped.append(weight)
        return weight

    return wrapped


def _not_a_number(shape, dtype):
    return np.full(shape, np.nan, dtype)
