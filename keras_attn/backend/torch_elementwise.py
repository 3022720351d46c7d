"""tanh and exp on torch by other functions, for which it has faster code on a processor.

Of a million numbers tanh took 2.1 ms on one core of an AMD EPYC, sigma 0.2; exp 0.6, of which most are -inf 3.9, and
exp2 0.15 (docs/performance.md).
"""

import math
from functools import cache
from typing import Any


def is_served(x: Any) -> bool:
    """Returns True for a float32 tensor on a CPU."""
    import torch

    return isinstance(x, torch.Tensor) and x.dtype == torch.float32 and x.device.type == "cpu"


def tanh(x: Any) -> Any:
    """The hyperbolic tangent as 2 sigma(2x) - 1, with an error of at most 1.8e-7."""
    import torch

    if torch.is_grad_enabled() and x.requires_grad:
        return _differentiable_tanh().apply(x)
    return torch.add(-1, torch.sigmoid(x + x), alpha=2)


@cache
def _differentiable_tanh() -> Any:
    """The same with the gradient of tanh, which takes one operation instead of three."""
    import torch

    class Tanh(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return (x + x).sigmoid_().mul_(2).sub_(1)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, gradient):
            return torch.ops.aten.tanh_backward(gradient, *ctx.saved_tensors)

    return Tanh


def exp(x: Any) -> Any:
    """The exponential as 2^(x / ln 2), with a relative error of at most 1e-6 from -20 to 20."""
    return (x * (1 / math.log(2))).exp2()
