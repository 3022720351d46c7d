"""Matrix products: a kernel's product inside a loop, and how float32 is multiplied on a CPU."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras
from keras import ops

ALL = slice(None)
_kernel_products: ContextVar[Callable | None] = ContextVar("kernel_products", default=None)


@contextlib.contextmanager
def kernel_products(find: Callable | None) -> Iterator[None]:
    """Within this, products with weights are those that `find` returns, where it returns any.

    Args:
        find: `(kernel, rows, columns, transpose)` -> `x -> x @ kernel[rows, columns]`, or with its transpose, or None;
            such as `Int8Weights.product`. None: all products are as always.
    """
    token = _kernel_products.set(find)
    try:
        yield
    finally:
        _kernel_products.reset(token)


def kernel_product(kernel, *, rows: slice = ALL, columns: slice = ALL, transpose: bool = False):
    """The product with a weight inside `kernel_products`; None for an ordinary one."""
    find = _kernel_products.get()
    return find and find(kernel, rows, columns, transpose)


def has_kernel_products() -> bool:
    """Returns True inside `kernel_products`."""
    return _kernel_products.get() is not None


def dense(inputs, kernel, *, rows: slice = ALL, columns: slice = ALL):
    """`inputs @ kernel[rows, columns]`, in the dtype of `inputs`; inside `kernel_products` its product.

    Args:
        inputs: `(..., I)`.
        kernel: A weight or a tensor `(I, O)`.
        rows, columns: The part of the kernel that is multiplied.
    """
    from keras_attn.backend.float64 import matmul

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
    if keras.backend.backend() == "torch":
        import torch

        if torch.is_grad_enabled():
            from keras_attn.backend.torch_products import deferred_product

            kernel = ops.convert_to_tensor(kernel)
            product = deferred_product(kernel)
            # Keras' operations turn float64 into float32 on torch; a product of both is an error.
            return lambda x: product(x.to(kernel.dtype))
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
        from keras_attn.backend import torch_products

        if torch_products.may_defer(x, kernel):
            return torch_products.batch_product(kernel)(x)
    from keras_attn.backend.float64 import matmul

    return matmul(x, kernel)


def _part(kernel, rows: slice, columns: slice):
    return kernel if rows == columns == ALL else kernel[rows, columns]


def fast_products() -> contextlib.AbstractContextManager:
    """Within this, in this thread, torch multiplies with large matrices of float32 by oneDNN instead of MKL.

    For training; translators do so in any case. They are the products of `keras.ops.matmul` and `@`, and those of
    float32. On an AMD EPYC with AVX-512 MKL takes 2 to 4 times as long; without AVX-512 MKL is faster with many rows,
    and multiplies where a gradient may follow. It does nothing inside `bfloat16_products`, with an accelerator, and on
    the other backends.
    """
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    from keras_attn.backend import torch_products

    return torch_products.fast_products()


@contextlib.contextmanager
def bfloat16_products() -> Iterator[None]:
    """Within this, matrices of float32 are multiplied in bfloat16 on a CPU, with sums in float32; weights stay float32.

    For training: the factors of a product and its result are rounded to 8 bits, as in the dtype policy
    "mixed_bfloat16". On torch these are the products of `keras.ops.matmul` and `@` with matrices at least 64 wide, in
    this thread, unless gradients are off, or outputs are computed again for them (`keras.RematScope`); small models
    gain nothing. On TensorFlow the optimizer of graphs does it, in compiled functions of the process: what stands
    between two products (a bias, a tanh) may be computed in bfloat16. It needs a processor that multiplies bfloat16
    (AMX or AVX-512 BF16); on others, and on torch with a GPU, products stay those of float32.

    Raises:
        ValueError: On JAX, whose compiler multiplies float32 on a CPU in float32.
        RuntimeError: On torch, for a gradient with `create_graph=True`.
    """
    if keras.backend.backend() == "jax":
        raise ValueError("Expected TensorFlow or torch for products in bfloat16 on a CPU. Received: JAX")
    if keras.backend.backend() == "torch":
        from keras_attn.backend import torch_products

        with torch_products.fast_products(in_bfloat16=True):
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
