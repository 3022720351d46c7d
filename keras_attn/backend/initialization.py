"""Models whose weights come from a file or another model, and which need no initial ones."""

import functools
import math
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attn.backend.variables import all_layers

_PACKAGES = ("keras", "keras_attn", "keras_hub")  # whose layers store all weights and read none while they are built


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
