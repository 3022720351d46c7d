"""Matrix products: a kernel's product inside a loop, and how float32 is multiplied on a CPU."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from keras_attn.backend.int8_products import ALL, kernel_product
from keras_attn.backend.operations import matmul
from keras_attn.backend.settings import has_bfloat16_products


def dense(inputs, kernel, *, rows: slice = ALL, columns: slice = ALL):
    """`inputs @ kernel[rows, columns]`, in the dtype of `inputs`; inside `kernel_products` its product.

    Args:
        inputs: `(..., I)`.
        kernel: A weight or a tensor `(I, O)`.
        rows, columns: The part of the kernel that is multiplied.
    """
    if (product := kernel_product(kernel, rows=rows, columns=columns)) is not None:
        return product(inputs)
    return matmul(inputs, ops.cast(_part(kernel, rows, columns), inputs.dtype))


def loop_product(kernel, *, rows: slice = ALL, columns: slice = ALL, dtype: str | None = None) -> Callable[[Any], Any]:
    """Returns `x -> x @ kernel[rows, columns]` for use inside the step of a `scan`.

    On torch and TensorFlow the gradient of the kernel, which is made before the loop, is one product over all T after
    the backward pass of the loop, instead of a sum of T small products. On JAX the compiler optimises the loop, and
    this is a plain product. Inside `kernel_products` it is theirs.

    Args:
        kernel, rows, columns: As in `dense`.
        dtype: That of the kernel in the loop; None: its own.
    """
    if (product := kernel_product(kernel, rows=rows, columns=columns)) is not None:
        return product
    kernel = _part(kernel, rows, columns)
    kernel = kernel if dtype is None else ops.cast(kernel, dtype)
    return lambda x: loop_matmul(x, kernel)


def loop_matmul(x, kernel):
    """`matmul(x, kernel)`; in a step of a `scan` with the kernel's gradient as in `loop_product`.

    Args:
        x: `(B, I)`, or `(B, 1, I)` with a kernel for each row, for the gradient after the loop; any shape without.
        kernel: `(I, O)` or `(B, I, O)`, a tensor from before the loop or a weight; for any other this is a `matmul`.
    """
    if keras.backend.backend() == "tensorflow":
        from keras_attn.backend import tensorflow_loops

        return tensorflow_loops.product(x, kernel)
    if keras.backend.backend() == "torch":
        from keras_attn.backend import torch_loops

        return torch_loops.product(x, kernel)
    return matmul(x, kernel)


def _part(kernel, rows: slice, columns: slice):
    return kernel if rows == columns == ALL else kernel[rows, columns]


def training_products() -> contextlib.AbstractContextManager:
    """A context for a model's forward pass in training: on torch, products with large matrices by oneDNN on a CPU."""
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    from keras_attn.backend import torch_products

    return torch_products.training_products()


@contextlib.contextmanager
def bfloat16_products() -> Iterator[None]:
    """Within this, matrices of float32 are multiplied in bfloat16 on a CPU, with sums in float32; weights stay float32.

    For training: the factors of a product and its result are rounded to 8 bits, as in the dtype policy
    "mixed_bfloat16". On torch these are the products of `keras.ops.matmul` and `@` with matrices at least 64 wide, in
    this thread, unless gradients are off, or outputs are computed again for them (`keras.RematScope`); small models
    gain nothing. On TensorFlow the optimizer of graphs does it, in compiled functions of the process: what stands
    between two products (a bias, a tanh) may be computed in bfloat16. It needs `has_bfloat16_products`; elsewhere
    products stay those of float32.

    Raises:
        ValueError: On JAX, whose compiler multiplies float32 on a CPU in float32.
    """
    if keras.backend.backend() == "jax":
        raise ValueError("Expected TensorFlow or torch for products in bfloat16 on a CPU. Received: JAX")
    if keras.backend.backend() == "torch":
        from keras_attn.backend.torch_products import RoundedProducts

        with RoundedProducts() if has_bfloat16_products() else contextlib.nullcontext():
            yield
        return
    import tensorflow as tf

    name = "auto_mixed_precision_onednn_bfloat16"
    before = tf.config.optimizer.get_experimental_options().get(name, False)
    tf.config.optimizer.set_experimental_options({name: True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({name: before})
