"""Products with large matrices in the loops of torch, without gradients, by oneDNN instead of MKL."""

import contextlib
from functools import cache
from typing import Any

LEAST_SIZE = 200_000  # elements of a matrix: with smaller ones oneDNN takes longer to start


@cache
def fast_products() -> Any:
    """A context in which torch multiplies rows with a large matrix of float32 by oneDNN, without gradients.

    The products are those of float32. With few rows MKL takes up to four times as long on an AMD EPYC
    (docs/performance.md). Where torch has no oneDNN, on an accelerator, under autocast and for other dtypes nothing
    changes.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return contextlib.nullcontext()

    class FastProducts(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            if function is torch.matmul and len(arguments) == 2 and not options and _is_served(*arguments):
                x, matrix = arguments
                return torch.ops.mkldnn._linear_pointwise(x, matrix.T, None, "none", [], "")
            return function(*arguments, **(options or {}))

    return FastProducts()


def _is_served(x, matrix) -> bool:
    import torch

    if x.dim() != 2 or matrix.dim() != 2 or matrix.numel() < LEAST_SIZE:
        return False
    if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or not torch.backends.mkldnn.enabled:
        return False
    is_plain = all(one.dtype == torch.float32 and one.device.type == "cpu" for one in (x, matrix))
    return is_plain and x.is_contiguous() and (matrix.is_contiguous() or matrix.T.is_contiguous())
