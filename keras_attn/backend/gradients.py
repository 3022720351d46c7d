"""Computation that no gradient flows through, and gradients of gradients."""

from collections.abc import Callable
from typing import Any

import keras


def without_gradients(function: Callable, *arguments: Any) -> Any:
    """Returns `function(*arguments)` computed apart from any gradient, of arguments and of weights that it reads.

    Stopping the gradient of the results is not enough: a backend would carry derivatives through a loop, or keep its
    intermediate values for them, before it finds that nobody needs them.

    Args:
        function: Of nested structures of tensors, without side effects such as random draws.
        arguments: Nested structures of tensors.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        with torch.no_grad():
            return function(*arguments)
    if backend == "jax":
        import jax
        from jax.extend.core import jaxpr_as_fun

        traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        constants, leaves = jax.lax.stop_gradient((traced.consts, jax.tree.leaves(arguments)))
        return jax.tree.unflatten(jax.tree.structure(shapes), jaxpr_as_fun(traced.replace(consts=constants))(*leaves))
    import tensorflow as tf

    stop = tf.stop_gradient
    return tf.nest.map_structure(stop, function(*tf.nest.map_structure(stop, arguments)))


def is_graph_created() -> bool:
    """Returns True inside a backward pass that builds a graph: on torch, with `create_graph=True`.

    For a gradient written by hand, which on torch must then be computed from its arguments: what the forward pass left
    has no gradient. TensorFlow and JAX find one in any case.
    """
    if keras.backend.backend() != "torch":
        return False
    import torch

    return torch.is_grad_enabled()
