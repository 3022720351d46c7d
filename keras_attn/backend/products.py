"""Matrix products: a kernel's product inside a loop, and how float32 is multiplied on a CPU."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
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
    """Whether some products are those of `kernel_products` now."""
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
            gather, product = _torch_deferred_product()
            pairs = []  # (x, gradient of x @ kernel) of every step, filled by the backward pass
            kernel = gather.apply(ops.convert_to_tensor(kernel), pairs)
            # Keras' operations turn float64 into float32 on torch; a product of both is an error.
            return lambda x: product.apply(x.to(kernel.dtype), kernel, pairs)
    return lambda x: loop_matmul(x, kernel)


def loop_matmul(x, kernel):
    """`matmul(x, kernel)`; in a step of a `scan` on TensorFlow with the kernel's gradient as in `loop_product`.

    Args:
        x: `(B, I)`, or `(B, 1, I)` with a kernel for each row, for the gradient after the loop; any shape without.
        kernel: `(I, O)` or `(B, I, O)`, a tensor from before the loop or a weight; for any other this is a `matmul`.
    """
    if keras.backend.backend() == "tensorflow":
        from keras_attn.backend import tensorflow_loops

        return tensorflow_loops.product(x, kernel)
    from keras_attn.backend.float64 import matmul

    return matmul(x, kernel)


def _part(kernel, rows: slice, columns: slice):
    return kernel if rows == columns == ALL else kernel[rows, columns]


@cache
def prefer_fast_matmul() -> None:
    """Makes torch multiply float32 matrices on a CPU with oneDNN instead of MKL, if oneDNN is exact.

    This changes the process-wide `torch.set_float32_matmul_precision`, so only programs call it: the commands, the
    recipes and the benchmarks. For all programs there is `torch_products`, in loops without gradients. On the other
    backends it does nothing.

    On AMD processors MKL takes 2.4 times as long (with 512 x 5,921 and 640 rows 49 ms against 20 ms, with 5 rows
    1.06 ms against 0.21 ms, one core). Torch uses oneDNN for float32 only if it may use bfloat16 internally, which it
    does on processors with AMX. Therefore a product that bfloat16 would round is tried; if it is rounded, the setting
    stays as it was. It also stays with an accelerator, or if the user has changed it before.
    """
    if keras.backend.backend() != "torch":
        return
    import torch

    try:
        is_default = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # set for each backend separately
        return
    if not is_default or torch.accelerator.is_available():
        return
    torch.set_float32_matmul_precision("medium")
    probe = torch.full((256, 256), 1 + 2**-20)
    if not torch.equal(probe @ torch.eye(256), probe):
        torch.set_float32_matmul_precision("highest")


@contextlib.contextmanager
def bfloat16_products() -> Iterator[None]:
    """Within this, matrices of float32 are multiplied in bfloat16 on a CPU, with sums in float32; weights stay float32.

    For training: the factors of a product are rounded to 8 bits, as in the dtype policy "mixed_bfloat16". On torch all
    else stays as it is. On TensorFlow the optimizer of graphs does it, in compiled functions: the sum of a product is
    rounded too, and what stands between two products (a bias, a tanh) may be computed in bfloat16. It needs a processor
    that multiplies bfloat16 (AMX, on TensorFlow also AVX-512 BF16); on others, and on torch with a GPU, products stay
    those of float32. It is process-wide.

    Raises:
        ValueError: On JAX, whose compiler multiplies float32 on a CPU in float32.
    """
    if keras.backend.backend() == "jax":
        raise ValueError("Expected TensorFlow or torch for products in bfloat16 on a CPU. Received: JAX")
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        name, inside = "auto_mixed_precision_onednn_bfloat16", True
        before = tf.config.optimizer.get_experimental_options().get(name, False)

        def set_to(value):
            tf.config.optimizer.set_experimental_options({name: value})

    else:
        import torch

        try:
            before = torch.get_float32_matmul_precision()
        except RuntimeError:  # set for each backend separately
            before = None
        if before is None or torch.accelerator.is_available():
            yield
            return
        inside, set_to = "medium", torch.set_float32_matmul_precision
    set_to(inside)
    try:
        yield
    finally:
        set_to(before)


@cache
def _torch_deferred_product():
    """Two autograd functions: a product that records its gradient, and an identity of the kernel that sums the records.

    Autograd runs the backward pass of the identity after those of all products that depend on it, whichever of them
    were reached.
    """
    import torch

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, kernel, pairs):
            ctx.pairs = pairs
            return kernel.view_as(kernel)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, _):
            inputs, gradients = (torch.cat(column) for column in zip(*ctx.pairs, strict=True))  # (T B, I), (T B, O)
            ctx.pairs.clear()
            return inputs.T @ gradients, None

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, kernel, pairs):
            ctx.save_for_backward(x, kernel)
            ctx.pairs = pairs
            return x @ kernel

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            x, kernel = ctx.saved_tensors
            ctx.pairs.append((x, gradient))
            return gradient @ kernel.T, None, None

    return Gather, Product
