"""Loops: the semantics of `jax.lax.scan` and `jax.lax.while_loop` on TensorFlow, JAX and torch.

`keras.ops.scan` cannot be differentiated under XLA on TensorFlow, and `keras.layers.RNN` cannot pass a memory to its
cell. So every recurrence of this package runs through `scan`, and every search through `while_loop`.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    *,
    length: int | None = None,
    reverse: bool = False,
    mask: Any = None,
    owner: Any = None,
    constants: Any = None,
) -> tuple[Any, Any]:
    """Runs `carry, y = step(carry, x)` along the leading axis of `xs`.

    Gradients flow through `init`, `xs` and everything that `step` closes over, on every backend, with and without
    XLA on TensorFlow, for a static or an unknown T.

    Args:
        step: `(carry, x) -> (carry, y)`. The carry keeps its structure, shapes and dtypes; `y` may be any
            nested structure.
        init: The first carry, any nested structure of tensors. With a `mask`, each is `(B, ...)`.
        xs: Nested structure of tensors `(T, ...)`, or `None` if `step` needs no input.
        length: T, needed only where `xs` is `None`.
        reverse: Runs from the last step to the first; outputs stay aligned with inputs.
        mask: Boolean `(T, B)`, True = real. A masked step carries the carry over and outputs zeros.
        owner: The layer that owns all weights that `step` reads; besides them `step` reads its arguments only. Without
            gradients, torch then traces the step, as in `while_loop`.
        constants: Nested structure of tensors `(B, ...)`, such as a memory. The step is then `step(carry, x,
            constants)`, and reads no other tensors but weights.

    Where Keras divides batches among devices on JAX, and `owner` or `constants` is given, each device scans its own
    rows, and the gradients of the weights are summed over devices once, after the loop.

    Returns:
        `(carry, ys)`: the last carry, and the outputs stacked to `(T, ...)`.

    Raises:
        ValueError: if neither `xs` nor `length` gives the number of steps.

    Example:
        >>> total, totals = keras_attn.scan(lambda total, x: (total + x,) * 2, keras.ops.zeros(()), keras.ops.ones(3))
        >>> float(total), [float(each) for each in totals]
        (3.0, [1.0, 2.0, 3.0])
    """
    xs = () if xs is None else xs
    if length is None and not tree.flatten(xs):
        raise ValueError("Expected `xs` or `length` to give the number of steps. Received neither.")
    if mask is not None:
        xs = xs, ops.cast(mask, "bool")

    def bind(constants):
        run = step if constants is None else lambda carry, x: step(carry, x, constants)
        return run if mask is None else _masked(run)

    if keras.backend.backend() == "jax":
        closed = owner is not None or constants is not None
        return _scan_jax(bind, init, xs, length, reverse, constants, closed)
    if keras.backend.backend() == "torch":
        from keras_attn.backend import torch_loops

        key = step.__code__, mask is None
        return torch_loops.scan(bind, init, xs, length, reverse, constants, owner, key)
    from keras_attn.backend import tensorflow_loops

    return tensorflow_loops.scan(bind(constants), init, xs, length, reverse)


def while_loop(condition: Callable, body: Callable, state: Any, constants: Any = (), owner: Any = None) -> Any:
    """Runs `state = body(state, constants)` while `condition(state, constants)`.

    On torch, where Keras' loop is a Python loop, the operations of both functions are traced after some steps of
    the same shapes. From then on only the trace runs: the same kernels without the Python code of the layers. A step
    that reads values of tensors in Python, or writes to tensors, is not traced, nor is one whose trace gives another
    result for the next step.

    Args:
        condition, body: Functions at module level, so that the next search has the same ones. They read no tensors
            but those of `state` and `constants` and the owner's weights.
        state: Nested structure of tensors; its structure, shapes and dtypes stay the same.
        constants: Nested structure of tensors and other hashable values on which the two depend.
        owner: The layer or model that owns the weights that the body reads; traces live as long as it does. None:
            nothing is traced.

    Returns:
        The last state.

    Example:
        >>> def below_five(state, constants):
        ...     return state[0] < 5
        >>> def add(state, constants):
        ...     return (state[0] + constants[0],)
        >>> (last,) = keras_attn.while_loop(below_five, add, (keras.ops.convert_to_tensor(0),), (2,))
        >>> int(last)
        6
    """
    if keras.backend.backend() == "torch":
        from keras_attn.backend import torch_loops

        return torch_loops.while_loop(condition, body, state, constants, owner)
    leaves = ops.while_loop(
        lambda *leaves: condition(tree.pack_sequence_as(state, leaves), constants),
        lambda *leaves: tuple(tree.flatten(body(tree.pack_sequence_as(state, leaves), constants))),
        tuple(tree.flatten(state)),
    )
    return tree.pack_sequence_as(state, leaves)


def _masked(step: Callable) -> Callable:
    """Wraps `step` so that rows whose mask is False keep their carry and output zeros."""

    def select(mask, new, old):
        mask = ops.reshape(mask, (-1,) + (1,) * (len(new.shape) - 1))  # (B, 1, ...)
        return ops.where(mask, new, old)

    def masked_step(carry, x_and_mask):
        x, mask = x_and_mask  # mask: (B,)
        new_carry, y = step(carry, x)
        new_carry = tree.map_structure(lambda new, old: select(mask, new, old), new_carry, carry)
        return new_carry, tree.map_structure(lambda new: select(mask, new, ops.zeros_like(new)), y)

    return masked_step


def _scan_jax(bind: Callable, init: Any, xs: Any, length: int | None, reverse: bool, constants: Any, closed: bool):
    """Runs `jax.lax.scan(bind(constants), init, xs)`, rows in groups of one device each where Keras divides batches.

    Left to itself, XLA adds up the gradient of a loop's weights over all devices at every time step, so that a batch of
    T steps waits T times for the slowest device. Here each device has a copy of the weights for the loop, and so a
    gradient of its own rows; these are added up once, after the loop.

    Args:
        bind: From constants to the step, `(carry, x) -> (carry, y)`.
        init, xs, length, reverse: As in `jax.lax.scan`.
        constants: Nested structure of tensors, which may be empty.
        closed: The step reads, besides its arguments and the constants, nothing that has a row for each sentence.
    """
    import jax
    from jax.extend.core import jaxpr_as_fun

    mesh = _mesh((init, constants), xs) if closed else None
    if mesh is None:
        return jax.lax.scan(bind(constants), init, xs, length=length, reverse=reverse)
    groups = mesh.size
    rows = functools.partial(_divide, groups, 0), (init, constants)
    init, constants = jax.tree.map(*rows)  # (D, B / D, ...)
    xs = jax.tree.map(functools.partial(_divide, groups, 1), xs)  # (T, D, B / D, ...)
    # Traced for the rows of one device, to know the weights that the step reads.
    first = jax.tree.map(lambda x: x[0], (init, constants)), jax.tree.map(lambda x: x[0, 0], xs)
    traced, shapes = jax.make_jaxpr(lambda rows, x: bind(rows[1])(rows[0], x), return_shape=True)(*first)
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*mesh.axis_names))

    def own(x):
        return jax.lax.with_sharding_constraint(x, sharding)

    weights = [own(jax.numpy.broadcast_to(x, (groups, *jax.numpy.shape(x)))) for x in traced.consts]

    def step(carry, x):
        def one(carry, constants, x, weights):
            leaves = jaxpr_as_fun(traced.replace(consts=weights))(*jax.tree.leaves(((carry, constants), x)))
            return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

        return jax.tree.map(own, jax.vmap(one)(carry, constants, x, [own(x) for x in weights]))

    carry, ys = jax.lax.scan(step, jax.tree.map(own, init), xs, reverse=reverse)
    return jax.tree.map(lambda x: _unite(x, 0), carry), jax.tree.map(lambda x: _unite(x, 1), ys)


def _divide(groups: int, axis: int, x):
    shape = x.shape
    return x.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _unite(x, axis: int):
    return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])


def _mesh(rows: Any, steps: Any):
    """The mesh of the data-parallel distribution in force; None without one, or if a tensor does not divide.

    Args:
        rows: Nested structure of tensors `(B, ...)`.
        steps: Nested structure of tensors `(T, B, ...)`.
    """
    import jax

    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.DataParallel) or not jax.tree.leaves(steps):
        return None
    mesh = distribution.device_mesh.backend_mesh
    leaves = [(x, 0) for x in jax.tree.leaves(rows)] + [(x, 1) for x in jax.tree.leaves(steps)]
    sizes = {x.shape[axis] if len(x.shape) > axis else None for x, axis in leaves}
    if mesh.size == 1 or len(sizes) != 1 or None in sizes or sizes.pop() % mesh.size:
        return None
    # Outside a compiled function nothing is divided, and Keras' shapes of unknown sizes are stand-ins.
    return mesh if any(isinstance(x, jax.core.Tracer) for x, _ in leaves) else None
