"""Products of torch with matrices of float32 on a processor: by oneDNN instead of MKL, or in bfloat16.

torch has a setting of the whole process for both, `set_float32_matmul_precision("medium")`. It also has oneDNN multiply
batches of small matrices, which takes 7 to 13 times as long as MKL, and it uses bfloat16 with AMX alone, where AVX-512
BF16 halves the time, too (docs/performance.md).
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

LEAST_SIZE = 200_000  # elements of a matrix without gradients: with smaller ones oneDNN takes longer to start
LEAST_WIDTH = 64  # of a matrix with gradients: rounding a narrower one takes as long as its product


class _Kind(NamedTuple):
    """How the context multiplies."""

    multiply: Callable[[Any, Any], Any]
    dtype: Any  # of the factors


_kind: ContextVar[_Kind | None] = ContextVar("kind", default=None)


@contextlib.contextmanager
def fast_products(in_bfloat16: bool = False):
    """A context in which torch multiplies rows with a large matrix of float32 by oneDNN.

    The products are those of float32. With few rows MKL takes up to four times as long on an AMD EPYC
    (docs/performance.md). Where torch has no oneDNN or has an accelerator, under autocast, for other dtypes, and inside
    another such context, unless that one does not round, nothing changes.

    Args:
        in_bfloat16: Whether factors and results are rounded to bfloat16 where a gradient may follow, if the processor
            multiplies bfloat16. Without gradients they are not, because a trace of a loop outlives the context.
    """
    import torch

    has_onednn = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    is_rounded = in_bfloat16 and _multiplies_bfloat16()
    kind = _Kind(torch.matmul, torch.bfloat16) if is_rounded else _Kind(_by_onednn, torch.float32)
    is_inside = _kind.get() == kind or (_kind.get() is not None and not is_rounded)
    if is_inside or not has_onednn or torch.accelerator.is_available():
        yield
        return
    token = _kind.set(kind)
    try:
        with _mode():
            yield
    finally:
        _kind.reset(token)


@cache
def _multiplies_bfloat16() -> bool:
    import torch

    found = torch.cpu.get_capabilities()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


@cache
def _mode() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    products = {torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__}

    class FastProducts(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            if function in products and len(arguments) == 2 and not options and _is_served(*arguments):
                x, matrix = arguments
                if not torch.is_grad_enabled():
                    return _by_onednn(x, matrix)
                rows = deferred_product(matrix)(x.reshape(-1, x.shape[-1]))
                return rows.reshape(*x.shape[:-1], rows.shape[-1])
            return function(*arguments, **(options or {}))

    return FastProducts()


def _by_onednn(x, matrix):
    import torch

    return torch.ops.mkldnn._linear_pointwise(x, matrix.T, None, "none", [], "")


def _is_served(x, matrix) -> bool:
    import torch

    if not (isinstance(x, torch.Tensor) and isinstance(matrix, torch.Tensor)):
        return False
    if any(one.dtype != torch.float32 or one.device.type != "cpu" for one in (x, matrix)):
        return False
    if x.dim() < 2 or matrix.dim() != 2 or torch.is_autocast_enabled("cpu") or not torch.backends.mkldnn.enabled:
        return False
    if torch.is_grad_enabled():
        return min(matrix.shape) >= LEAST_WIDTH
    is_plain = x.is_contiguous() and (matrix.is_contiguous() or matrix.T.is_contiguous())
    return is_plain and matrix.numel() >= LEAST_SIZE


def deferred_product(kernel: Any) -> Callable[[Any], Any]:
    """`x -> x @ kernel`, whose gradient of the kernel is one product over all calls, after their backward passes.

    Args:
        kernel: A tensor (I, O) or (B, I, O); x is (R, I) or (B, 1, I) of its dtype.
    """
    import torch

    gather, product = _deferred()
    kind = _kind.get() if _is_served(kernel, kernel) else None
    kind = kind or _Kind(torch.matmul, kernel.dtype)
    pairs = defaultdict(list)  # backward pass -> (x, gradient of x @ kernel) of every call
    kernel = gather.apply(kernel, pairs, kind)
    return lambda x: product.apply(x, kernel, pairs, kind)


def may_defer(x: Any, kernel: Any) -> bool:
    """Whether `batch_product` is for `x @ kernel`: a row for each kernel, which has a gradient and is no leaf.

    The graph of a copy of a leaf ends in the leaf, so that its entry would stay for ever.
    """
    import torch

    if not (isinstance(x, torch.Tensor) and isinstance(kernel, torch.Tensor) and torch.is_grad_enabled()):
        return False
    return kernel.grad_fn is not None and x.dim() == kernel.dim() == 3 and x.shape[1] == 1 and x.dtype == kernel.dtype


def batch_product(kernel: Any) -> Callable[[Any], Any]:
    """The `deferred_product` of x (B, 1, I) and a kernel (B, I, O), the same for each call with this tensor."""
    products = _batch_products()
    if kernel not in products:
        # A copy, because a view would keep the kernel, and so its entry.
        products[kernel] = deferred_product(kernel.clone())
    return products[kernel]


@cache
def _batch_products() -> Any:
    from torch.utils.weak import WeakTensorKeyDictionary

    return WeakTensorKeyDictionary()


@cache
def _deferred() -> tuple[Any, Any]:
    """Two autograd functions: a product that records its gradient, and a cast of the kernel that sums the records.

    Autograd runs the backward pass of the cast after those of all products that depend on it, whichever of them were
    reached.
    """
    import torch

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, kernel, pairs, kind):
            ctx.set_materialize_grads(False)
            ctx.pairs, ctx.kind, ctx.dtype = pairs, kind, kernel.dtype
            return kernel.view_as(kernel) if kernel.dtype == kind.dtype else kernel.to(kind.dtype)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, _):
            columns = zip(*ctx.pairs.pop(torch._C._current_graph_task_id()), strict=True)
            # (T R, I) and (T R, O), or (B, T, I) and (B, T, O)
            inputs, gradients = (torch.cat(one, dim=-2) if len(one) > 1 else one[0] for one in columns)
            return ctx.kind.multiply(inputs.mT, gradients).to(ctx.dtype), None, None

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, kernel, pairs, kind):
            rounded = x.to(kind.dtype)
            ctx.save_for_backward(rounded, kernel)
            ctx.pairs, ctx.kind = pairs, kind
            return kind.multiply(rounded, kernel).to(x.dtype)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            x, kernel = ctx.saved_tensors
            rounded = gradient.to(ctx.kind.dtype)
            if ctx.needs_input_grad[1]:
                # A backward pass that asks for the gradient of x alone leaves its pairs.
                ctx.pairs[torch._C._current_graph_task_id()].append((x, rounded))
            of_x = ctx.kind.multiply(rounded, kernel.mT).to(gradient.dtype) if ctx.needs_input_grad[0] else None
            return of_x, None, None, None

    return Gather, Product
