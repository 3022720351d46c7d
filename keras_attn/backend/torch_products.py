"""Products with large matrices of float32 on torch, on a CPU: by oneDNN, or with factors rounded to bfloat16.

On a CPU with AVX-512 oneDNN multiplies faster than MKL in training too (docs/performance.md).
"""

import contextlib
import math
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cache

import torch
from torch.overrides import TorchFunctionMode

LEAST_SIZE = 200_000  # elements of a matrix in float32: with smaller ones oneDNN takes longer to start
LEAST_WIDTH = 64  # of a matrix in bfloat16: rounding a narrower one takes as long as its product
_rounds: ContextVar[bool] = ContextVar("rounds", default=False)
_MATMULS = {torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__}


def training_products() -> contextlib.AbstractContextManager:
    """A context for a forward pass whose gradients may follow: products by oneDNN where that is faster.

    Inside `RoundedProducts`, products stay in bfloat16.
    """
    is_faster = torch.is_grad_enabled() and _has_avx512() and not _rounds.get()
    return OneDNNProducts() if is_faster else contextlib.nullcontext()


def inference_products(weights: Iterable) -> contextlib.AbstractContextManager:
    """A context for a loop without gradients, which reads these weights: products by oneDNN if one of them is large."""
    # The mode sees each operation, which small models need not pay for.
    has_large = any(math.prod(weight.shape) >= LEAST_SIZE for weight in weights)
    return OneDNNProducts() if has_large else contextlib.nullcontext()


class OneDNNProducts(TorchFunctionMode):
    """A context in which oneDNN multiplies with large matrices of float32 on a CPU, instead of MKL.

    Of 5 rows and 512 x 6,000 numbers the product takes half as long (docs/performance.md).
    """

    def __torch_function__(self, function, types, arguments=(), options=None):
        if function in _MATMULS and len(arguments) == 2 and not options and _is_large(*arguments):
            x, matrix = arguments
            has_gradient = torch.is_grad_enabled() and (x.requires_grad or matrix.requires_grad)
            if has_gradient and not _is_recomputed():  # as rows, because oneDNN prepares itself for each shape
                return _OneDNNProduct.apply(x.flatten(0, -2), matrix).unflatten(0, x.shape[:-1])
            if not has_gradient and x.is_contiguous() and _is_whole(matrix):
                return _by_onednn(x, matrix)
        return function(*arguments, **(options or {}))


class _OneDNNProduct(torch.autograd.Function):
    """x @ matrix of x (R, I) by oneDNN, with both of its gradients."""

    @staticmethod
    def forward(ctx, x, matrix):
        ctx.save_for_backward(x, matrix)
        return multiply(x, matrix)

    @staticmethod
    def backward(ctx, gradient):
        x, matrix = ctx.saved_tensors
        of_x = multiply(gradient, matrix.mT) if ctx.needs_input_grad[0] else None
        return of_x, multiply(x.mT, gradient) if ctx.needs_input_grad[1] else None


def multiply(x, matrix):
    """`x @ matrix` in training; with `create_graph` by torch's product, which has a gradient itself."""
    if torch.is_grad_enabled() or not _has_avx512() or not _is_large(x, matrix):
        return x @ matrix
    return _by_onednn(*(one if _is_whole(one) else one.contiguous() for one in (x, matrix)))


def _by_onednn(x, matrix):
    # Private: torch's public functions have oneDNN multiply float32 with less precision alone.
    return torch.ops.mkldnn._linear_pointwise(x, matrix.T, None, "none", [], "")


@cache
def _has_avx512() -> bool:
    """Returns True on a CPU with AVX-512; on others MKL is faster with many rows. With an accelerator, False."""
    return bool(torch.cpu.get_capabilities().get("avx512_f")) and not torch.accelerator.is_available()


class RoundedProducts(TorchFunctionMode):
    """A context in which factors and results of large products of float32 on a CPU are rounded to bfloat16.

    Only where a gradient may follow: a trace of a loop outlives the context.
    """

    def __enter__(self):
        self._token = _rounds.set(True)
        return super().__enter__()

    def __exit__(self, *error):
        _rounds.reset(self._token)
        return super().__exit__(*error)

    def __torch_function__(self, function, types, arguments=(), options=None):
        if function in _MATMULS and len(arguments) == 2 and not options and is_rounded(*arguments):
            return torch.matmul(*(x.to(torch.bfloat16) for x in arguments)).to(torch.float32)
        return function(*arguments, **(options or {}))


def _is_whole(x) -> bool:
    """Returns False for a slice, of which oneDNN takes a thousand times as long."""
    return x.is_contiguous() or x.mT.is_contiguous()


def _is_large(x, matrix) -> bool:
    return (
        _is_float32_product(x, matrix)
        and matrix.numel() >= LEAST_SIZE
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def is_rounded(x, matrix) -> bool:
    may_round = _rounds.get() and torch.is_grad_enabled()
    return may_round and _is_float32_product(x, matrix) and min(matrix.shape) >= LEAST_WIDTH and not _is_recomputed()


def _is_recomputed() -> bool:
    """Returns True in a part that is computed again for its gradient (`keras.RematScope`), then outside the context."""
    # Such a part has hooks for the tensors that it saves, and only where there are none can they be disabled.
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("none"):
            return False
    except RuntimeError:
        return True


def _is_float32_product(x, matrix) -> bool:
    """Returns True for rows and a matrix of float32 on a CPU, unless autocast has another dtype for them."""
    for one in (x, matrix):
        if not isinstance(one, torch.Tensor) or one.dtype != torch.float32 or one.device.type != "cpu":
            return False
    is_strided = x.layout == matrix.layout == torch.strided
    is_product = x.dim() > 1 and matrix.dim() == 2 and x.shape[-1] == matrix.shape[0] and x.numel()
    return bool(is_strided and is_product and not torch.is_autocast_enabled("cpu"))
