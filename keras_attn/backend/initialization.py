"""Models whose weights come from a file or another model, and which need no initial ones."""

import functools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np

_PACKAGES = ("keras", "keras_attn", "keras_hub")  # whose layers store all weights and read none while they are built
_skipped: ContextVar[list | None] = ContextVar("skipped", default=None)  # weights that got no value, if so


def without_initial_weights(build: Callable[[], Any]) -> Any:
    """Returns `build()`, a model whose weights are all set there or afterwards, and computes no initial ones for it.

    On JAX an initializer is compiled for each shape, so that the five of a small model take longer than its first
    translation (docs/performance.md). Here weights have NaN instead, and their initializers stay.

    It is built once more, as always, if it has a user's layers or weights that are not the model's, because those may
    be left out when it is saved, or read when it is built. With a `keras.distribution`, where each device makes its
    part, and where JAX looks for NaN (`jax_debug_nans`), it is built as always at once.

    Args:
        build: Makes or loads the model, without side effects.
    """
    if keras.distribution.distribution() is not None or _looks_for_nan():
        return build()
    skipped: list[keras.Variable] = []
    token = _skipped.set(skipped)
    try:
        with _add_weight:
            model = build()
    finally:
        _skipped.reset(token)
    return model if _stores_all(model, skipped) else build()


def _stores_all(model, skipped: list) -> bool:
    if not isinstance(model, keras.Model):
        return False
    stored = {id(weight) for weight in model.weights}
    layers = model._flatten_layers(include_self=False)
    is_ours = all(type(layer).__module__.partition(".")[0] in _PACKAGES for layer in layers)
    return is_ours and all(id(weight) in stored for weight in skipped)


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
        skipped = _skipped.get()
        dtype = kwargs.get("dtype") or getattr(layer, "variable_dtype", None)
        if skipped is None or len(args) > 1 or dtype not in ("float16", "float32", "float64"):
            return add_weight(layer, *args, **kwargs)
        weight = add_weight(layer, *args, **kwargs | {"initializer": _not_a_number})
        skipped.append(weight)
        return weight

    return wrapped


def _not_a_number(shape, dtype):
    return np.full(shape, np.nan, dtype)
