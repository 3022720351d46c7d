"""Traces torch loops with torch.fx to skip Python overhead.

On torch the loops of `keras_attn.backend.loops` run as Python, layer by layer, which for one sentence takes as long as
the kernels themselves. A trace is the list of operations that a step executed: the same operations on the same weights
give the same results bit for bit. A trace belongs to one owner and one set of shapes, and is released with the owner.
"""

from collections.abc import Callable
from weakref import WeakKeyDictionary

from keras import tree

_CALLS_BEFORE_TRACE = 200  # of Python around the kernels, they have cost as much as a trace does
_traces: WeakKeyDictionary = WeakKeyDictionary()  # owner -> {what decides the operations: calls so far, or the trace}


def records_gradients() -> bool:
    import torch

    return torch.is_grad_enabled()


def may_trace(owner) -> bool:
    """With gradients on, a step must leave its tape; a weight that is cast before the loop is a copy that ages."""
    if owner is None or records_gradients():
        return False
    return owner.compute_dtype == owner.variable_dtype


def traced(function: Callable, owner, key) -> Callable:
    """`function` of tensors; after its first calls by this key, the list of torch's operations that it came to."""
    known = _traces.setdefault(owner, {})
    # Weights that are other tensors now, or more of them (of LoRA, or quantised), are another model.
    key = (key, *(id(weight.value) for weight in owner.weights))

    def run(*arguments):
        entry = known.get(key, 0)
        if not isinstance(entry, int):
            return entry(*arguments)
        known[key] = entry + 1 if entry < _CALLS_BEFORE_TRACE else _trace(function, arguments)
        return function(*arguments)

    return run


def _trace(function: Callable, arguments) -> Callable:
    from torch.fx.experimental.proxy_tensor import make_fx

    # Two names of one tensor would be one name in the trace: let no two be the same object.
    operations = make_fx(function)(*tree.map_structure(lambda x: x.view_as(x), arguments))
    operations.graph.eliminate_dead_code()
    operations.recompile()
    return operations


def describe(structure) -> tuple:
    """What a function's operations can depend on: structure, layouts of tensors, and all that is none."""
    import torch

    def described(leaf):
        if isinstance(leaf, torch.Tensor):
            return tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device
        return getattr(leaf, "__func__", leaf)  # of a method of the owner, which a key must not keep alive

    return str(tree.map_structure(lambda _: 0, structure)), *map(described, tree.flatten(structure))
