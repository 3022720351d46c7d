"""Models whose weights come from a file or another model, and which need no initial ones."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import keras
import numpy as np

_PACKAGES = ("keras", "keras_attn", "keras_hub")  # whose layers store all weights and read none while they are built
_is_skipped: ContextVar[bool] = ContextVar("is_skipped", default=False)


@contextlib.contextmanager
def skip_initialization() -> Iterator[None]:
    """Within this, in this thread, weights of layers that are built have NaN as values, and their initializers stay.

    For a model whose weights are all set afterwards. On JAX an initializer is compiled for each shape, so that the
    five of a small model take longer than its first translation (docs/performance.md). A user's own layers are
    initialized as always, because they may leave out weights when they are saved, or read them when they are built; so
    are all layers with a `keras.distribution`, where each device makes its part, and where JAX looks for NaN
    (`jax_debug_nans`).
    """
    token = _is_skipped.set(keras.distribution.distribution() is None and not _looks_for_nan())
    try:
        with _add_weight:
            yield
    finally:
        _is_skipped.reset(token)


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
        is_ours = type(layer).__module__.partition(".")[0] in _PACKAGES
        if _is_skipped.get() and is_ours and len(args) < 2:
            dtype = kwargs.get("dtype") or getattr(layer, "variable_dtype", None)
            if dtype in ("float16", "float32", "float64"):
                kwargs["initializer"] = _not_a_number
        return add_weight(layer, *args, **kwargs)

    return wrapped


def _not_a_number(shape, dtype):
    return np.full(shape, np.nan, dtype)
