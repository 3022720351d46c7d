"""Traces on torch: the operations that a function executes, without the Python code between them.

For one sentence the Python code of the layers takes twice as long as the kernels. The same operations on the same
weights give the same results bit for bit. `torch.fx.experimental.proxy_tensor.make_fx` records the same, but takes as
long as 30 steps, most of it for what only compilers need (shapes of fake tensors, stacks).
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
from keras import tree
from torch.fx import Graph, GraphModule
from torch.utils._python_dispatch import TorchDispatchMode

_LIFT, _DETACH = torch.ops.aten.lift_fresh.default, torch.ops.aten.detach_.default  # of tensors made from numbers


def flattened(function: Callable) -> Callable:
    """Returns the function whose results are the tensors of those of `function` in a list, and their structure."""

    def flat(tensors):
        outputs = function(tensors)
        return tree.flatten(outputs), outputs

    return flat


def record(function: Callable, tensors: list) -> tuple[tuple[list, Any], Callable | None]:
    """Calls a function of tensors, and returns its results and its trace.

    Args:
        function: From a list of tensors to a nested structure of tensors.
        tensors: Its argument.

    Returns:
        The results of `flattened(function)`, and another function with such results, which executes the operations that
        this call did: all else on which they depend stays as it was. None where they depend on the values of tensors,
        or write to tensors.
    """
    # Views, because a tensor that is passed twice would get a single name in the trace.
    inputs = [x.view_as(x) for x in tensors]
    with _Recorder(inputs) as recorder:
        results = flattened(function)(inputs)
    return results, recorder.trace(*results)


def agree(results: tuple, others: tuple) -> bool:
    """Returns True for two results with the same values; not a number is a value."""
    return all(
        a.shape == b.shape and a.dtype == b.dtype and bool(torch.isclose(a, b, rtol=0, atol=0, equal_nan=True).all())
        for a, b in zip(results[0], others[0], strict=True)
    )


class _Recorder(TorchDispatchMode):
    """A context that makes a graph of the operations in it."""

    def __init__(self, inputs):
        super().__init__()
        self._graph, self._constants, self._is_valid = Graph(), {}, True
        # By id, with the tensor itself, so that the id stays its own.
        self._numbers = {}
        self._nodes = {id(x): (x, self._graph.placeholder(f"input_{i}")) for i, x in enumerate(inputs)}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        outputs = function(*args, **kwargs)
        if function is _LIFT:
            self._numbers[id(outputs)] = outputs
        if function in (_LIFT, _DETACH):
            return outputs
        several = isinstance(outputs, tuple | list)
        results = outputs if several else [outputs]
        tensors = [x for x in tree.flatten((args, kwargs)) if isinstance(x, torch.Tensor)]
        if function is torch.ops.aten.item.default and id(tensors[0]) in self._numbers:
            return outputs
        if function._schema.is_mutable or not all(isinstance(x, torch.Tensor) for x in results):
            self._is_valid = False
        has_memory_of_constant = function.is_view and not any(id(x) in self._nodes for x in tensors)
        if not self._is_valid or has_memory_of_constant:  # then it is a constant, too
            return outputs
        node = self._graph.call_function(function, *tree.map_structure(self._argument, (args, kwargs)))
        for index, x in enumerate(results):
            item = self._graph.call_function(operator.getitem, (node, index)) if several else node
            self._nodes[id(x)] = x, item
        return outputs

    def _argument(self, x):
        """The node of a tensor; anything else is itself."""
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in self._nodes:
            name = f"constant_{len(self._constants)}"
            self._constants[name] = x
            self._nodes[id(x)] = x, self._graph.get_attr(name)
        return self._nodes[id(x)][1]

    def trace(self, outputs: list, structure) -> Callable | None:
        """The recorded operations as a function, see `record`."""
        if not self._is_valid:
            return None
        self._graph.output([self._argument(x) for x in outputs])
        self._graph.eliminate_dead_code()
        run = GraphModule(self._constants, self._graph).forward
        structure = tree.map_structure(lambda _: 0, structure)
        return lambda tensors: (run(*tensors), structure)
