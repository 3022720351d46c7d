"""Operations that `keras.ops` lacks, or has in another form: in float64, without gradients, at places inside a tensor.

Keras follows JAX's habit of having no float64: `tanh` computes in float32 on JAX, and most operations with two tensors
do on torch. With every other dtype the functions here are those of `keras.ops`.

Keras' `take`, `take_along_axis` and `scatter_update` accept negative places, and JAX's give NaN outside a tensor. That
takes 3 to 10 operations for each read or write, as long as the steps of one sentence take altogether. `take`,
`take_in_rows` and `put` take one or two. A place outside the tensor is an error of the caller, and what it gives
depends on the backend.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def matmul(x, y):
    """`keras.ops.matmul`; float64 if one of the two is."""
    return _run("matmul", (x, y))


def tanh(x):
    """`keras.ops.tanh`; float64 if x is."""
    return _run("tanh", (x,))


def maximum(x, y):
    """`keras.ops.maximum`; float64 if one of the two is."""
    return _run("maximum", (x, y))


def cumsum(x, axis: int):
    """`keras.ops.cumsum`; float64 if x is."""
    return _run("cumsum", (x,), axis)


def segment_sum(data, segment_ids, num_segments: int):
    """`keras.ops.segment_sum` of data `(N,)`; float64 if it is."""
    if keras.backend.backend() != "torch" or not _is_float64(data):
        return ops.segment_sum(data, segment_ids, num_segments=num_segments)
    data = ops.convert_to_tensor(data)
    return data.new_zeros(num_segments).index_add(0, ops.convert_to_tensor(segment_ids), data)


def keep_float64(activation: Callable) -> Callable:
    """An activation of Keras as one that is float64 where its input is: tanh, the only one that is not."""
    return tanh if activation is keras.activations.tanh else activation


def take(x: Any, places: Any, axis: int = 0) -> Any:
    """The slices of `x` at `places`, an integer tensor of any rank, along `axis`: as `keras.ops.take`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, places, axis=axis)
    if keras.backend.backend() == "jax":
        index = (slice(None),) * axis + (places,)
        return x.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)
    import torch

    taken = torch.index_select(x, axis, places.reshape(-1))
    return taken if places.dim() == 1 else taken.reshape(x.shape[:axis] + places.shape + x.shape[axis + 1 :])


def take_in_rows(x: Any, places: Any) -> Any:
    """`x[b, places[b, n]]` as `(B, n)`, from `x` `(B, M)` and `places` `(B, n)`: as `keras.ops.take_along_axis`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, places, batch_dims=1)
    if keras.backend.backend() == "jax":
        rows = ops.arange(x.shape[0], dtype=places.dtype)[:, None]  # (B, 1)
        return x.at[rows, places].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return x.gather(1, places.long())


def put(buffer: Any, place: Any, update: Any) -> Any:
    """`buffer` `(L, ...)` with `buffer[place] = update`, for a scalar `place`: as `keras.ops.scatter_update`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.tensor_scatter_nd_update(buffer, tf.reshape(place, (1, 1)), update[None])
    if keras.backend.backend() == "jax":
        from jax import lax

        return lax.dynamic_update_index_in_dim(buffer, update, place, 0, allow_negative_indices=False)
    return buffer.index_copy(0, place.reshape(1).long(), update[None])


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


def _run(name: str, tensors: tuple[Any, ...], *others):
    if not any(_is_float64(x) for x in tensors):
        return getattr(ops, name)(*tensors, *others)
    if keras.backend.backend() == "jax":
        import jax.numpy as native
    elif keras.backend.backend() == "torch":
        import torch as native
    else:
        native = ops
    return getattr(native, name)(*(ops.convert_to_tensor(x, dtype="float64") for x in tensors), *others)


def _is_float64(x) -> bool:
    dtype = getattr(x, "dtype", None)
    return dtype is not None and keras.backend.standardize_dtype(dtype) == "float64"
