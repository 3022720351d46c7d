"""Traces torch loops with torch.fx to skip Python overhead.

On torch the loops of `keras_attn.backend.loops` run as Python, layer by layer, which for one sentence takes as long as
the kernels themselves. A trace is the list of operations that a step executed: the same operations on the same weights
give the same results bit for bit. A trace belongs to one owner and one set of shapes, and is released with the owner.
"""

import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary

from keras import tree

from keras_attn.backend.products import has_kernel_products
from keras_attn.backend.torch_graphs import simplify
from keras_attn.backend.torch_products import fast_products

_tracing = threading.Lock()  # torch.fx patches classes while it traces, so that only one thread may
_CALLS_BEFORE_TRACE = 200  # by then Python's overhead has cost as much time as a trace does
_traces: WeakKeyDictionary = WeakKeyDictionary()  # owner -> {key: number of calls so far, or the trace}


def may_trace(owner) -> bool:
    """Returns True if the steps of this owner's loops may be traced.

    With gradients on, a step must be recorded by autograd; and a weight that was cast before the loop is a copy, which
    the trace would keep when the weight changes.
    """
    import torch

    if owner is None or torch.is_grad_enabled():
        return False
    return owner.compute_dtype == owner.variable_dtype


def traced(function: Callable, owner, key) -> Callable:
    """`function` of tensors, which runs as a trace after its first calls with this owner and key.

    Args:
        function: Takes and returns nested structures of tensors.
        owner: The layer or model that owns the weights that `function` reads.
        key: Hashable; everything else on which the operations depend (see `describe`).
    """
    import torch

    entries = _traces.setdefault(owner, {})
    # If weights are replaced by other tensors, or there are more of them (LoRA, quantisation), it is another model.
    key = (key, has_kernel_products(), *(id(weight.value) for weight in owner.weights))

    def run(*arguments):
        entry = entries.get(key, 0)
        if not isinstance(entry, int):
            with torch._C.DisableTorchFunction():  # which would look at each operation again
                return entry(*arguments)
        if entry < _CALLS_BEFORE_TRACE:
            entries[key] = entry + 1
        elif _tracing.acquire(blocking=False):  # else another thread traces: a later call will
            try:
                with fast_products():
                    entries[key] = _trace(function, arguments)
            finally:
                _tracing.release()
        with fast_products():
            return function(*arguments)

    return run


def _trace(function: Callable, arguments) -> Callable:
    from torch.fx.experimental.proxy_tensor import make_fx

    # Views, because a tensor that is passed twice would get a single name in the trace.
    operations = make_fx(function)(*tree.map_structure(lambda x: x.view_as(x), arguments))
    operations.graph.eliminate_dead_code()
    simplify(operations)
    operations.recompile()
    return operations


def describe(structure) -> tuple:
    """Everything on which a function's operations can depend: structure, layout of tensors, and other values."""
    import torch

    def described(leaf):
        if isinstance(leaf, torch.Tensor):
            return tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device
        return getattr(leaf, "__func__", leaf)  # of a method of the owner, which a key must not keep alive

    return str(tree.map_structure(lambda _: 0, structure)), *map(described, tree.flatten(structure))
