"""The loops: `jax.lax.scan` and `jax.lax.while_loop` semantics on TensorFlow, JAX and torch.

`keras.ops.scan` cannot be differentiated under XLA on TensorFlow, and `keras.layers.RNN` cannot hand a memory
to its cell, so every recurrence of this package runs through `scan`; every search runs through `while_loop`. This is
the only module besides `keras_attn.serving` that knows which backend is running.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import keras
from keras import ops, tree

from keras_attn.backend.torch_tracing import describe, may_trace, records_gradients, traced


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    *,
    length: int | None = None,
    reverse: bool = False,
    mask: Any = None,
    owner: Any = None,
) -> tuple[Any, Any]:
    """Runs `carry, y = step(carry, x)` along the leading axis of `xs`.

    Gradients flow through `init`, `xs` and whatever `step` closes over, on every backend, with and without
    XLA on TensorFlow, for a static or an unknown T.

    Args:
        step: `(carry, x) -> (carry, y)`. The carry keeps its structure, shapes and dtypes; `y` may be any
            nested structure.
        init: The first carry, any nested structure of tensors. With a `mask`, each is `(B, ...)`.
        xs: Nested structure of tensors `(T, ...)`, or `None` if `step` needs no input.
        length: T, needed only where `xs` is `None`.
        reverse: Runs from the last step to the first; outputs stay aligned with inputs.
        mask: Boolean `(T, B)`, True = real. A masked step hands the carry on untouched and its outputs
            are zero.
        owner: The layer whose weights are all that `step` reads besides its arguments. Where no gradient is wanted,
            torch then traces it, as in `while_loop`.

    Returns:
        `(carry, ys)`: the last carry, and the outputs stacked to `(T, ...)`.

    Raises:
        ValueError: if neither `xs` nor `length` says how many steps there are.
    """
    xs = () if xs is None else xs
    if length is None and not tree.flatten(xs):
        raise ValueError("Expected `xs` or `length` to give the number of steps. Received neither.")
    run = step
    if mask is not None:
        run, xs = _masked(step), (xs, ops.cast(mask, "bool"))
    if keras.backend.backend() == "torch":
        return _scan_torch(run, init, xs, length, reverse, owner, step)
    runner = {"tensorflow": _scan_tensorflow, "jax": _scan_jax}[keras.backend.backend()]
    return runner(run, init, xs, length, reverse)


def while_loop(condition: Callable, body: Callable, state: Any, constants: Any = (), owner: Any = None) -> Any:
    """Runs `state = body(state, constants)` while `condition(state, constants)`.

    On torch, where Keras' loop is Python's, the operations of the two are traced once they have run for some steps of
    the same shapes, and from then on only they are run: the same kernels without the layers' Python around them.

    Args:
        condition, body: Functions of a module, so that they are the same ones at the next search. They read no tensor
            but those of `state`, those of `constants` and the owner's weights.
        state: Nested structure of tensors, whose structure, shapes and dtypes stay.
        constants: Nested structure of tensors and of what else the two depend on, hashable.
        owner: Whose weights the body reads, such as a model; traces live as long. None: nothing is traced.

    Returns:
        The last state.
    """
    if keras.backend.backend() == "torch":
        return _while_torch(condition, body, state, constants, owner)
    leaves = ops.while_loop(
        lambda *leaves: condition(tree.pack_sequence_as(state, leaves), constants),
        lambda *leaves: tuple(tree.flatten(body(tree.pack_sequence_as(state, leaves), constants))),
        tuple(tree.flatten(state)),
    )
    return tree.pack_sequence_as(state, leaves)


def preferred_jit_compile() -> bool | str:
    """What `jit_compile="auto"` should mean for a model made of these loops.

    Keras' own "auto" compiles with XLA wherever it can. For TensorFlow on a processor that is the slower way: a step of
    training the 6 M parameters of `recipes/rnnsearch.py` took 0.75 s with XLA and 0.48 s without, on two cores, and a
    step of search with 13 M parameters, 128 sentences and a beam of 5 took 132 ms and 91 ms.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not (tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU")):
            return False
    return "auto"


@cache
def prefer_fast_matmul() -> None:
    """Has torch multiply matrices on a processor by oneDNN, where that is exact, instead of by MKL.

    MKL takes 2.4 times as long on AMD's processors (with 512 x 5,921 and 640 rows 49 ms and 20 ms, with 5 rows 1.06 ms
    and 0.21 ms, one core). Torch has oneDNN multiply float32 only where it may use bfloat16 inside, which it does on
    processors with AMX: so a product that bfloat16 would round is tried, and if it is, all stays as it was. So it does
    with an accelerator, or another choice of the user's (`torch.set_float32_matmul_precision`).
    """
    if keras.backend.backend() != "torch":
        return
    import torch

    try:
        is_default = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # chosen backend by backend
        return
    if not is_default or torch.accelerator.is_available():
        return
    torch.set_float32_matmul_precision("medium")
    fine = torch.full((256, 256), 1 + 2**-20)
    if not torch.equal(fine @ torch.eye(256), fine):
        torch.set_float32_matmul_precision("highest")


def loop_product(kernel) -> Callable[[Any], Any]:
    """`x -> x @ kernel` for use inside `step`: `(B, I)` times `(I, O)`, made before the loop.

    On torch the kernel's gradient is one product over all T after the loop's backward pass, instead of T small ones
    accumulated; elsewhere the compiler has the loop in hand and this is a plain product.
    """
    if keras.backend.backend() == "torch" and records_gradients():
        gather, product = _torch_deferred_product()
        pairs = []  # (x, gradient of x @ kernel) of every step, filled by the backward pass
        kernel = gather.apply(ops.convert_to_tensor(kernel), pairs)
        return lambda x: product.apply(x, kernel, pairs)
    return lambda x: ops.matmul(x, kernel)


@cache
def _torch_deferred_product():
    """Two autograd functions: a product that notes its gradient, and the kernel's identity that sums the notes.

    Autograd runs the identity's backward after that of every product that hangs on it, whichever were reached.
    """
    import torch

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, kernel, pairs):
            ctx.pairs = pairs
            return kernel.view_as(kernel)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, _):
            inputs, gradients = (torch.cat(column) for column in zip(*ctx.pairs, strict=True))  # (T B, I), (T B, O)
            ctx.pairs.clear()
            return inputs.T @ gradients, None

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, kernel, pairs):
            ctx.save_for_backward(x, kernel)
            ctx.pairs = pairs
            return x @ kernel

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, gradient):
            x, kernel = ctx.saved_tensors
            ctx.pairs.append((x, gradient))
            return gradient @ kernel.T, None, None

    return Gather, Product


def _masked(step: Callable) -> Callable:
    """Wraps `step` so that rows whose mask is False keep their carry and put out zeros."""

    def select(mask, new, old):
        mask = ops.reshape(mask, (-1,) + (1,) * (len(new.shape) - 1))  # (B, 1, ...)
        return ops.where(mask, new, old)

    def masked_step(carry, x_and_mask):
        x, mask = x_and_mask  # mask: (B,)
        new_carry, y = step(carry, x)
        new_carry = tree.map_structure(lambda new, old: select(mask, new, old), new_carry, carry)
        return new_carry, tree.map_structure(lambda new: select(mask, new, ops.zeros_like(new)), y)

    return masked_step


def _scan_jax(step, init, xs, length, reverse):
    import jax

    return jax.lax.scan(step, init, xs, length=length, reverse=reverse)


def _scan_torch(step, init, xs, length, reverse, owner, inner):
    import torch

    def run(carry, x):
        return step(carry, tree.pack_sequence_as(xs, x))

    leaves = tree.flatten(xs)
    length = leaves[0].shape[0] if leaves else length
    # `unbind` has one backward for all T; indexing x[t] would add a whole (T, ...) gradient at every step.
    slices = [torch.unbind(leaf) for leaf in leaves]
    carry, outputs = init, [None] * length
    if length and may_trace(owner):
        key = inner.__code__, step is inner, describe((init, [leaf[0] for leaf in slices]))
        run = traced(run, owner, key)
    for t in reversed(range(length)) if reverse else range(length):
        carry, outputs[t] = run(carry, [leaf[t] for leaf in slices])
    if not length:
        return init, None
    return carry, tree.map_structure(lambda *ys: torch.stack(ys), *outputs)


def _scan_tensorflow(step, init, xs, length, reverse):
    import tensorflow as tf

    leaves = [tf.convert_to_tensor(leaf) for leaf in tree.flatten(xs)]
    if leaves:
        length = leaves[0].shape[0] if leaves[0].shape[0] is not None else tf.shape(leaves[0])[0]
    init = tree.map_structure(tf.convert_to_tensor, init)
    inputs = [tf.TensorArray(x.dtype, size=length, element_shape=x.shape[1:]).unstack(x) for x in leaves]
    specs = [tf.TensorSpec(x.shape[1:], x.dtype) for x in leaves]
    carry_specs = [tf.TensorSpec(c.shape, c.dtype) for c in tree.flatten(init)]

    def flat_step(carry, x):
        carry, y = step(tree.pack_sequence_as(init, carry), tree.pack_sequence_as(xs, x))
        return tree.flatten(carry), y

    # The outputs' structure and shapes, by tracing one step: the arrays must exist before the loop does.
    y_spec = tf.function(flat_step).get_concrete_function(carry_specs, specs).structured_outputs[1]
    outputs = [tf.TensorArray(spec.dtype, size=length, element_shape=spec.shape) for spec in tree.flatten(y_spec)]

    def body(i, carry, outputs):
        t = length - 1 - i if reverse else i
        carry, y = flat_step(carry, [x.read(t) for x in inputs])
        return i + 1, carry, [array.write(t, leaf) for array, leaf in zip(outputs, tree.flatten(y), strict=True)]

    # Without `maximum_iterations` the gradient of a while loop does not compile under XLA.
    _, carry, outputs = tf.while_loop(
        lambda i, *_: i < length,
        body,
        (tf.constant(0), tree.flatten(init), outputs),
        maximum_iterations=length,
    )
    return tree.pack_sequence_as(init, carry), tree.pack_sequence_as(y_spec, [y.stack() for y in outputs])


def _while_torch(condition, body, state, constants, owner):
    import torch

    if not may_trace(owner):
        while condition(state, constants):
            state = body(state, constants)
        return state
    leaves, constant_leaves = tree.flatten(state), tree.flatten(constants)
    tensors = [leaf for leaf in constant_leaves if isinstance(leaf, torch.Tensor)]

    def step(leaves, tensors):
        tensors = iter(tensors)
        whole = [next(tensors) if isinstance(leaf, torch.Tensor) else leaf for leaf in constant_leaves]
        whole = tree.pack_sequence_as(constants, whole)
        new = body(tree.pack_sequence_as(state, leaves), whole)
        return [condition(new, whole), *tree.flatten(new)]

    goes_on, run = condition(state, constants), traced(step, owner, (condition, body, describe((state, constants))))
    while goes_on:
        goes_on, *leaves = run(leaves, tensors)
    return tree.pack_sequence_as(state, leaves)
