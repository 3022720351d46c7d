"""Loops on torch, which run as Python: traced where no gradient is needed, else with one gradient of each kernel.

Without gradients a step is traced (`torch_traces.py`). A trace belongs to one owner and one set of shapes, and is
released with the owner.

With gradients autograd would add up that of a kernel step by step: T small products, and T sums as large as the kernel.
Here, as in `tensorflow_loops`, the backward pass of a product hands out its two factors as the gradients of two inputs
of the step. `torch.unbind` stacks these; one product over all T follows.
"""

import types
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from keras import ops, tree

from keras_attn.backend.int8_products import has_kernel_products
from keras_attn.backend.operations import matmul
from keras_attn.backend.torch_products import inference_products, is_rounded, multiply
from keras_attn.backend.torch_traces import agree, flattened, record

_products: ContextVar["_Products | None"] = ContextVar("products", default=None)
_CALLS_BEFORE_TRACE = 4  # to record a trace takes as long as some calls, which it then saves
_MOST_TRACES = 256  # of an owner, the oldest of which goes first: a processor of logits may be new in each search
_NEVER = -1  # of a function whose operations depend on the values of tensors
_traces: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # owner -> {key: number of calls so far, or the trace}


class _Unchecked(NamedTuple):
    """A trace that no other call has confirmed yet."""

    trace: Callable


def product(x, kernel):
    """`keras_attn.backend.loop_matmul`."""
    products = _products.get()
    return matmul(x, kernel) if products is None else products(x, kernel)


def scan(bind: Callable, init: Any, xs: Any, length: int | None, reverse: bool, constants: Any, owner: Any, key: Any):
    """`keras_attn.backend.scan`, of the step `bind(constants)`.

    Args:
        bind: From constants to the step, `(carry, x) -> (carry, y)`.
        init, xs, length, reverse, constants, owner: As in `keras_attn.backend.scan`.
        key: Hashable; identifies the step among the owner's.
    """
    step, leaves = bind(constants), tree.flatten(xs)
    length = leaves[0].shape[0] if leaves else length
    if not length:
        _, ys = step(init, tree.pack_sequence_as(xs, [leaf.new_zeros(leaf.shape[1:]) for leaf in leaves]))
        return init, tree.map_structure(lambda y: y.new_zeros((0, *y.shape)), ys)
    # `unbind` has one backward pass for all T; indexing x[t] would add a whole (T, ...) gradient at every step.
    slices = [torch.unbind(leaf) for leaf in leaves]
    order = range(length)[::-1] if reverse else range(length)
    if _may_trace(owner, [*tree.flatten(init), *leaves]):
        return _traced_scan(bind, init, xs, slices, order, constants, owner, key)
    carry, outputs = init, [None] * length
    products = _Products(length) if torch.is_grad_enabled() else None
    token = _products.set(products)
    try:
        for t in order:
            carry, outputs[t] = step(carry, tree.pack_sequence_as(xs, [leaf[t] for leaf in slices]))
            if products:
                products.is_first_step = False
    finally:
        _products.reset(token)
    return carry, tree.map_structure(lambda *ys: torch.stack(ys), *outputs)


def _traced_scan(bind, init, xs, slices, order, constants, owner, key):
    """`scan` over the steps `order` of the `slices` of `xs`, without gradients."""
    state, (tensors, with_tensors) = tree.flatten(init), _tensors_of(constants)
    count, outputs = len(state), [()] * len(order)

    def step(leaves):
        end = len(leaves) - len(tensors)
        carry, x = tree.pack_sequence_as(init, leaves[:count]), tree.pack_sequence_as(xs, leaves[count:end])
        return bind(with_tensors(leaves[end:]))(carry, x)

    run = _traced(step, owner, (key, _describe((init, [leaf[0] for leaf in slices], constants))))
    for t in order:
        results, structure = run([*state, *(leaf[t] for leaf in slices), *tensors])
        state, outputs[t] = results[:count], results[count:]
    ys = tree.pack_sequence_as(structure[1], [torch.stack(column) for column in zip(*outputs, strict=True)])
    return tree.pack_sequence_as(init, state), ys


def while_loop(condition: Callable, body: Callable, state: Any, constants: Any, owner: Any) -> Any:
    """`keras_attn.backend.while_loop`."""
    if not _may_trace(owner, tree.flatten(state)):
        while condition(state, constants):
            state = body(state, constants)
        return state
    leaves, (tensors, with_tensors) = tree.flatten(state), _tensors_of(constants)

    def step(leaves):
        whole = with_tensors(leaves[count:])
        new = body(tree.pack_sequence_as(state, leaves[:count]), whole)
        return [condition(new, whole), *tree.flatten(new)]

    count, goes_on = len(leaves), condition(state, constants)
    run = _traced(step, owner, (condition, body, _describe((state, constants))))
    while goes_on:
        (goes_on, *leaves), _ = run([*leaves, *tensors])
    return tree.pack_sequence_as(state, leaves)


def _may_trace(owner, leaves: list) -> bool:
    """Returns True if the steps of this owner's loop over these leaves may be traced.

    With gradients on, a step must be recorded by autograd; and a weight that was cast before the loop is a copy, which
    the trace would keep when the weight changes. What torch compiles or exports is traced by it.
    """
    if owner is None or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    for leaf in leaves:  # a tensor on "meta", of which Keras asks a layer's shapes, has no values
        if not isinstance(leaf, torch.Tensor) or leaf.is_meta or torch.is_autocast_enabled(leaf.device.type):
            return False
    return owner.compute_dtype == owner.variable_dtype


def _traced(function: Callable, owner, key) -> Callable:
    """`flattened(function)`, which runs as a trace after its first calls with this owner and key.

    Args:
        function: From a list of tensors to a nested structure of tensors.
        owner: The layer or model that owns the weights that `function` reads.
        key: Hashable; everything else on which the operations depend (see `_describe`).
    """
    entries = _traces.setdefault(owner, {})
    # If weights are replaced by other tensors, or there are more of them (LoRA, quantisation), it is another model.
    key = (key, has_kernel_products(), *(id(weight.value) for weight in owner.weights))
    products = inference_products(owner.weights)

    def run(tensors):
        entry = entries.get(key, 0)
        if callable(entry):
            return entry(tensors)
        with products:
            if entry == _CALLS_BEFORE_TRACE:
                outputs, trace = record(function, tensors)
                entries[key] = _Unchecked(trace) if trace else _NEVER
                return outputs
            outputs = flattened(function)(tensors)
        if isinstance(entry, _Unchecked):  # other values in tensors: what a trace took for constant may differ
            entries[key] = entry.trace if agree(entry.trace(tensors), outputs) else _NEVER
        elif entry != _NEVER:
            if key not in entries and len(entries) >= _MOST_TRACES:
                entries.pop(next(iter(entries)), None)
            entries[key] = entry + 1
        return outputs

    return run


def _describe(structure) -> tuple:
    """Everything on which a function's operations can depend: structure, layout of tensors, and other values."""

    def described(leaf):
        if isinstance(leaf, torch.Tensor):
            return tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device
        if not isinstance(leaf, types.MethodType):
            return leaf
        try:  # a key must not keep the owner alive
            return leaf.__func__, weakref.ref(leaf.__self__)
        except TypeError:
            return leaf

    return str(tree.map_structure(lambda _: 0, structure)), *map(described, tree.flatten(structure))


def _tensors_of(structure):
    """The tensors of a structure, and the structure as a function of tensors in their places."""
    leaves = tree.flatten(structure)

    def with_tensors(tensors):
        tensors = iter(tensors)
        whole = [next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return tree.pack_sequence_as(structure, whole)

    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], with_tensors


class _Products:
    """The products of a loop of `length` steps. Those with a tensor of the first step are deferred.

    Attributes:
        is_first_step: bool. A kernel that is not used in the first step was made in a later one, for itself.
    """

    def __init__(self, length: int):
        self._length = length
        self.is_first_step = True
        self._kernels: dict[int, tuple] = {}  # by id: itself, so that the id stays its own, a factor, and step inputs

    def __call__(self, x, kernel):
        if id(kernel) not in self._kernels:
            factor = ops.convert_to_tensor(kernel)
            if not self.is_first_step or not _is_deferred(x, factor):
                return matmul(x, kernel)
            factor = factor.to(torch.bfloat16) if is_rounded(x, factor) else factor
            left, right = _StepInputs.apply(factor, self._length, x.shape)
            self._kernels[id(kernel)] = kernel, factor, zip(left.unbind(), right.unbind(), strict=True)
        _, factor, inputs = self._kernels[id(kernel)]
        if (step_inputs := next(inputs, None)) is None:  # the step has a second product with this kernel
            return matmul(x, kernel)
        return _Product.apply(x.to(factor.dtype), factor, *step_inputs).to(x.dtype)


def _is_deferred(x, kernel) -> bool:
    """Returns True for x (R, I) and kernel (I, O), or x (B, 1, I) and a kernel for each row (B, I, O)."""
    if x.dtype != kernel.dtype or x.dim() != kernel.dim() or not kernel.requires_grad:
        return False
    return x.dim() == 2 or (x.dim() == 3 and x.shape[1] == 1)


class _StepInputs(torch.autograd.Function):
    """Zeros (T, ..., I) and (T, ..., O), whose gradients are the factors of the kernel's."""

    @staticmethod
    def forward(ctx, kernel, length, shape):
        zero = kernel.new_zeros(())
        return zero.expand(length, *shape), zero.expand(length, *shape[:-1], kernel.shape[-1])

    @staticmethod
    def backward(ctx, inputs, gradients):
        if inputs.dim() == 4:  # (T, B, 1, I) and (T, B, 1, O)
            inputs, gradients = (x.squeeze(2).transpose(0, 1) for x in (inputs, gradients))  # (B, T, I), (B, T, O)
        else:
            inputs, gradients = inputs.flatten(0, 1), gradients.flatten(0, 1)  # (T R, I), (T R, O)
        return multiply(inputs.mT, gradients), None, None


class _Product(torch.autograd.Function):
    """x @ kernel, whose backward pass gives its factors to the step's inputs instead of multiplying them."""

    @staticmethod
    def forward(ctx, x, kernel, inputs, gradients):
        ctx.save_for_backward(x, kernel)
        return multiply(x, kernel)

    @staticmethod
    def backward(ctx, gradient):
        x, kernel = ctx.saved_tensors
        return multiply(gradient, kernel.mT), None, x, gradient
