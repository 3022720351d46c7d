"""`scan` on JAX: `jax.lax.scan`, with rows in groups of one device each where Keras divides batches among devices.

Left to itself, XLA adds up the gradient of a loop's weights over all devices at every time step, so that a batch of
T steps waits T times for the slowest device. Here each device has a copy of the weights for the loop, and so a gradient
of its own rows; these are added up once, after the loop.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras


def scan_jax(bind: Callable, init: Any, xs: Any, length: int | None, reverse: bool, constants: Any, closed: bool):
    """Runs `jax.lax.scan(bind(constants), init, xs)`.

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
