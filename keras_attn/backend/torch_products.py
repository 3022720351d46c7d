"""Products of torch with matrices of float32 on a processor: by oneDNN instead of MKL, or in bfloat16.

torch has a setting of the whole process for both, `set_float32_matmul_precision("medium")`. It also has oneDNN multiply
batches of small matrices, which takes 7 to 13 times as long as MKL, and it uses bfloat16 with AMX alone, where AVX-512
BF16 halves the time, too (docs/performance.md).
"""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

LEAST_SIZE = 200_000  # elements of a matrix in float32: with smaller ones oneDNN takes longer to start
LEAST_WIDTH = 64  # of a matrix in bfloat16: rounding a narrower one takes as long as its product


class _Kind(NamedTuple):
    """The products of a context, and the dtype of the factors; None: their own."""

    multiply: Callable[[Any, Any], Any]
    dtype: Any = None


class _Thread(threading.local):
    kind: _Kind | None = None  # of the innermost context


_thread = _Thread()


@contextlib.contextmanager
def fast_products(in_bfloat16: bool = False):
    """A context in which torch multiplies rows with a large matrix of float32 by oneDNN.

    They are the products of `torch.matmul` and `@`, in this thread, and those of float32. On an AMD EPYC with AVX-512
    MKL takes 2 to 4 times as long (docs/performance.md). On one without it MKL is faster with many rows, and multiplies
    where a gradient may follow; where none does, a row has the same product whatever others are beside it, which MKL
    does not give. Where torch has no oneDNN or has an accelerator, under autocast, for other dtypes, and inside another
    such context, unless that one does not round, nothing changes.

    Args:
        in_bfloat16: Whether factors and results are rounded to bfloat16 where a gradient may follow, if the processor
            multiplies bfloat16. Without gradients they are not, because a trace of a loop outlives the context.
    """
    import torch

    has_onednn = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    is_rounded = in_bfloat16 and _multiplies_bfloat16()
    # Not `matmul`, which would be a product of this context again.
    by_rows = _by_onednn if _has("avx512_f") else torch.mm
    kind = _Kind(torch.matmul, torch.bfloat16) if is_rounded else _Kind(by_rows, torch.float32)
    before = _thread.kind
    is_inside = before == kind or (before is not None and not is_rounded)
    if is_inside or not has_onednn or torch.accelerator.is_available():
        yield
        return
    _thread.kind = kind
    try:
        with _mode():
            yield
    finally:
        _thread.kind = before


@cache
def _multiplies_bfloat16() -> bool:
    return _has("avx512_bf16") or _has("amx_bf16")


@cache
def _has(instructions: str) -> bool:
    import torch

    return bool(torch.cpu.get_capabilities().get(instructions))


@cache
def _mode() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    products = {torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__}

    class FastProducts(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            if function in products and len(arguments) == 2 and not options and _is_product(*arguments):
                x, matrix = arguments
                if not torch.is_grad_enabled():
                    return _by_onednn(x, matrix)
                rows = deferred_product(matrix)(x.reshape(-1, x.shape[-1]))
                return rows.reshape(*x.shape[:-1], rows.shape[-1])
            return function(*arguments, **(options or {}))

    return FastProducts()


def _by_onednn(x, matrix):
    import torch

    # Of a slice oneDNN takes a thousand times as long.
    x, matrix = (one if one.is_contiguous() or one.mT.is_contiguous() else one.contiguous() for one in (x, matrix))
    return torch.ops.mkldnn._linear_pointwise(x, matrix.T, None, "none", [], "")


def _is_product(x, matrix) -> bool:
    """Returns True if `x @ matrix` is one of the context's products."""
    import torch

    if not (_is_served(x) and _is_matrix(matrix) and x.numel() and x.dim() > 1 and x.shape[-1] == matrix.shape[0]):
        return False
    is_plain = x.is_contiguous() and (matrix.is_contiguous() or matrix.mT.is_contiguous())
    return is_plain or torch.is_grad_enabled()


def _is_matrix(matrix) -> bool:
    import torch

    if _thread.kind is None or not _is_served(matrix) or matrix.dim() != 2:
        return False
    if torch.is_grad_enabled() and _thread.kind.dtype == torch.bfloat16:
        return min(matrix.shape) >= LEAST_WIDTH
    return matrix.numel() >= LEAST_SIZE


def _is_served(x) -> bool:
    import torch

    if not isinstance(x, torch.Tensor) or x.dtype != torch.float32 or x.device.type != "cpu":
        return False
    if x.layout != torch.strided or torch.is_autocast_enabled("cpu") or not torch.backends.mkldnn.enabled:
        return False
    # In a part that is computed again for its gradient (`keras.RematScope`) torch would leave the context then.
    return not torch.is_grad_enabled() or torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def deferred_product(kernel: Any) -> Callable[[Any], Any]:
    """`x -> x @ kernel`, whose gradient of the kernel is one product over all calls, after their backward passes.

    Args:
        kernel: A tensor (I, O) or (B, I, O); x is (R, I) or (B, 1, I) of its dtype.
    """
    import torch

    gather, product = _deferred()
    kind = _thread.kind if _is_matrix(kernel) else _Kind(torch.matmul)
    pairs = defaultdict(list)  # backward pass -> (x, gradient of x @ kernel) of every call
    kernel = gather.apply(kernel, pairs, kind)
    return lambda x: product.apply(x, kernel, pairs, kind)


def may_defer(x: Any, kernel: Any) -> bool:
    """Returns True if `batch_product` is for `x @ kernel`: a row for each kernel, which has a gradient and is no leaf.

    The graph of a copy of a leaf ends in the leaf, so that its entry would stay for ever.
    """
    import torch

    if not (isinstance(x, torch.Tensor) and isinstance(kernel, torch.Tensor) and torch.is_grad_enabled()):
        return False
    return kernel.grad_fn is not None and x.dim() == kernel.dim() == 3 and x.shape[1] == 1 and x.dtype == kernel.dtype


def batch_product(kernel: Any) -> Callable[[Any], Any]:
    """The `deferred_product` of x (B, 1, I) and a kernel (B, I, O), the same for each call with this tensor."""
    products = _batch_products()
    version, product = products.get(kernel, (None, None))
    if version != kernel._version:  # or it was changed in place
        # A copy, because a view would keep the kernel, and so its entry.
        product = deferred_product(kernel.clone())
        products[kernel] = kernel._version, product
    return product


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
            return kernel.view_as(kernel) if kind.dtype in (None, kernel.dtype) else kernel.to(kind.dtype)

        @staticmethod
        def backward(ctx, of_gradients):
            pairs = ctx.pairs.pop(torch._C._current_graph_task_id(), None)
            if pairs is None:  # the gradient of a gradient, none of which came from a product
                return of_gradients, None, None
            # (T R, I) and (T R, O), or (B, T, I) and (B, T, O)
            inputs, gradients = (torch.cat(one, dim=-2) if len(one) > 1 else one[0] for one in zip(*pairs, strict=True))
            gradient = _multiply(ctx.kind)(inputs.mT, gradients).to(ctx.dtype)
            return gradient if of_gradients is None else gradient + of_gradients, None, None

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, kernel, pairs, kind):
            rounded = x.to(kernel.dtype)
            ctx.save_for_backward(rounded, kernel)
            ctx.pairs, ctx.kind, ctx.dtype = pairs, kind, x.dtype
            product = kind.multiply(rounded, kernel)
            return product if kind.dtype is None else product.to(x.dtype)

        @staticmethod
        def backward(ctx, gradient):
            x, kernel = ctx.saved_tensors
            multiply = _multiply(ctx.kind)
            rounded = gradient.to(kernel.dtype)
            # Not where the gradient of x alone is asked for: no `Gather` would take the pair, which holds the graph.
            if ctx.needs_input_grad[1] and torch._C._will_engine_execute_node(ctx.next_functions[1][0]):
                ctx.pairs[torch._C._current_graph_task_id()].append((x, rounded))
            of_x = multiply(rounded, kernel.mT).to(ctx.dtype) if ctx.needs_input_grad[0] else None
            return of_x, None, None, None

    return Gather, Product


def _multiply(kind: _Kind) -> Callable[[Any, Any], Any]:
    """The products of a backward pass: with `create_graph` by a function that has a gradient itself.

    Raises:
        RuntimeError: with `create_graph`, for factors in bfloat16, whose rounding is not part of the graph.
    """
    import torch

    if not torch.is_grad_enabled():
        return kind.multiply
    if kind.dtype == torch.bfloat16:
        raise RuntimeError("Expected `create_graph=False` for gradients of `bfloat16_products`. Received: True")
    return torch.matmul
