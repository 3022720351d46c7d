"""Random numbers by NumPy for Keras' initializers on JAX, which compiles a program for each of their shapes."""

import functools

import jax
import numpy as np
from jax._src.core import trace_state_clean
from keras.src.backend.jax import random
from scipy import stats


def install() -> None:
    """Replaces Keras' functions for the rest of the process."""
    for name, draw in (("normal", _normal), ("truncated_normal", _truncated_normal), ("uniform", _uniform)):
        setattr(random, name, _outside_traces(getattr(random, name), draw))


def _normal(generator, shape, mean=0.0, stddev=1.0):
    return generator.normal(mean, stddev, shape)


def _truncated_normal(generator, shape, mean=0.0, stddev=1.0):
    return mean + stddev * stats.truncnorm.rvs(-2, 2, size=shape, random_state=generator)


def _uniform(generator, shape, minval=0.0, maxval=1.0):
    return generator.uniform(minval, maxval, shape)


def _outside_traces(original, draw):
    @functools.wraps(original)
    def wrapped(shape, *args, dtype=None, seed=None, **kwargs):
        if not trace_state_clean():
            return original(shape, *args, dtype=dtype, seed=seed, **kwargs)
        generator = np.random.default_rng(np.asarray(random.jax_draw_seed(seed)).tolist())
        values = np.asarray(draw(generator, tuple(shape), *args, **kwargs))
        return jax.numpy.asarray(values.astype(dtype or random.floatx()))

    return wrapped
