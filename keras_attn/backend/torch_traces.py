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
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_LIFT = torch.ops.aten.lift_fresh.default  # of a tensor made from numbers
_READS = {getattr(torch.Tensor, name) for name in ("numpy", "tolist", "__array__", "__dlpack__", "data_ptr")}


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
    with _Recorder(inputs) as recorder, _Reads(recorder):
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
        self._graph, self._constants, self.is_valid = Graph(), {}, True
        # By id, with the tensor itself, so that the id stays its own.
        self._numbers = {}
        self._nodes = {id(x): (x, self._graph.placeholder(f"input_{i}")) for i, x in enumerate(inputs)}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        outputs = function(*args, **kwargs)
        several = isinstance(outputs, tuple | list)
        results = outputs if several else [outputs]
        values = tree.flatten((args, kwargs))
        tensors = [x for x in values if isinstance(x, torch.Tensor)]
        of_numbers = function is _LIFT or all(map(self.is_number, tensors))
        if of_numbers and torch.Tag.nondeterministic_seeded not in function.tags:
            self._numbers |= {id(x): x for x in results}
            return outputs
        if (
            function._schema.is_mutable
            or not _are_tensors(results)
            or any(isinstance(x, torch.Generator) for x in values)
        ):
            self.is_valid = False
        is_new = any(id(x) in self._nodes for x in tensors) or not _have_same_memory(function, tensors, results)
        if not self.is_valid or not is_new:  # a view of a constant is a constant
            return outputs
        node = self._graph.call_function(function, *tree.map_structure(self._argument, (args, kwargs)))
        for index, x in enumerate(results):
            item = self._graph.call_function(operator.getitem, (node, index)) if several else node
            self._nodes[id(x)] = x, item
        return outputs

    def is_number(self, x) -> bool:
        """Returns True for a tensor made from numbers alone, as `keras.ops.split` makes and reads them."""
        return id(x) in self._numbers

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
        if not self.is_valid or not _are_tensors(outputs):
            return None
        nodes = [self._argument(x) for x in outputs]
        clone = torch.ops.aten.clone.default  # of constants, in which a caller may write
        self._graph.output([self._graph.call_function(clone, (n,)) if n.op == "get_attr" else n for n in nodes])
        self._graph.eliminate_dead_code()
        run = GraphModule(self._constants, self._graph).forward
        structure = tree.map_structure(lambda _: 0, structure)
        return lambda tensors: (run(*tensors), structure)


class _Reads(TorchFunctionMode):
    """A context in which a recorder learns of values that Python reads, which are no operations."""

    def __init__(self, recorder: _Recorder):
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, function, types, arguments=(), options=None):
        if function in _READS and not self._recorder.is_number(arguments[0]):
            self._recorder.is_valid = False
        return function(*arguments, **(options or {}))


def _are_tensors(values) -> bool:
    return all(isinstance(x, torch.Tensor) for x in values)


def _have_same_memory(function, tensors: list, results) -> bool:
    """Returns True for a view; `reshape` and others, which are operations in `torch.inference_mode`, may copy."""
    if not function.is_view:
        return False
    memory = [x.untyped_storage()._cdata for x in (tensors[0], *results)]
    return len(set(memory)) == 1
