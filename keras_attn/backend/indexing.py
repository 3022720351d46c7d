"""Reads and writes at places that are known to be inside a tensor, for the steps of a search.

Keras' `take`, `take_along_axis` and `scatter_update` accept negative places, and JAX's give NaN outside a tensor. That
takes 3 to 10 operations for each read or write, as long as the steps of one sentence take altogether. These take one or
two. A place outside the tensor is an error of the caller, and what it gives depends on the backend.
"""

from typing import Any

import keras
from keras import ops


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
