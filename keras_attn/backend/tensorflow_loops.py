"""`scan` on TensorFlow: a `tf.while_loop`, after whose backward pass the gradients of its kernels are computed.

TensorFlow adds up the gradient of a kernel step by step: T small products, and T sums as large as the kernel. Here the
backward pass of a product hands out its two factors as the gradients of two inputs of the step. The loop stacks the
gradients of its inputs anyway; one product over all T follows.
"""

import contextvars
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops, tree
from tensorflow.python.eager import record  # private: nothing public says whether a tape may record

LEAST_WIDTH = 64  # of both factors: the sums of smaller kernels cost less than tracing more inputs
_products: contextvars.ContextVar["_Products | None"] = contextvars.ContextVar("products", default=None)


def product(x, kernel):
    """`keras_attn.backend.loop_matmul`."""
    products = _products.get()
    return ops.matmul(x, kernel) if products is None else products(x, kernel)


def scan(step: Callable, init: Any, xs: Any, length: int | None, reverse: bool) -> tuple[Any, Any]:
    """`keras_attn.backend.scan`, without mask and constants."""
    leaves = [tf.convert_to_tensor(leaf) for leaf in tree.flatten(xs)]
    if leaves:
        length = leaves[0].shape[0] if leaves[0].shape[0] is not None else tf.shape(leaves[0])[0]
    init = tree.map_structure(tf.convert_to_tensor, init)
    rows = next((leaf for leaf in tree.flatten(init) if leaf.shape.rank > 1), None)  # (B, ...)
    # In eager mode the loop is one of Python, and without a tape there is no backward pass.
    deferred = rows is not None and not tf.executing_eagerly() and record.could_possibly_record()
    products = _Products() if deferred else None

    def flat_step(carry, x, factors=None):
        token = _products.set(products and products.of_step(factors))
        try:
            carry, y = step(tree.pack_sequence_as(init, carry), tree.pack_sequence_as(xs, x))
        finally:
            _products.reset(token)
        return tree.flatten(carry), y

    if tf.executing_eagerly() and length:  # of such a loop the trace below would take most of the time
        carry, ys, order = tree.flatten(init), [], slice(None, None, -1 if reverse else 1)
        inputs = [tf.unstack(x)[order] for x in leaves]
        for t in range(length):
            carry, y = flat_step(carry, [x[t] for x in inputs])
            ys.append(y)
        return tree.pack_sequence_as(init, carry), tree.map_structure(lambda *y: tf.stack(y[order]), *ys)

    specs = [tf.TensorSpec(x.shape[1:], x.dtype) for x in leaves]
    carry_specs = [tf.TensorSpec(c.shape, c.dtype) for c in tree.flatten(init)]
    # One traced step gives the outputs' structure and shapes, and the products: the arrays must exist before the loop.
    # No autograph, as in the loop itself.
    y_spec = tf.function(flat_step, autograph=False).get_concrete_function(carry_specs, specs).structured_outputs[1]
    inputs = [_unstacked(x, length) for x in leaves]
    factors = [_unstacked(x, length) for x in products.factors(length, rows)] if products else []
    outputs = [tf.TensorArray(spec.dtype, size=length, element_shape=spec.shape) for spec in tree.flatten(y_spec)]

    def body(i, carry, outputs):
        t = length - 1 - i if reverse else i
        carry, y = flat_step(carry, [x.read(t) for x in inputs], [x.read(t) for x in factors])
        return i + 1, carry, [array.write(i, leaf) for array, leaf in zip(outputs, tree.flatten(y), strict=True)]

    # Without `maximum_iterations`, XLA cannot compile the gradient of a while loop.
    _, carry, outputs = tf.while_loop(
        lambda i, *_: i < length,
        body,
        (tf.constant(0), tree.flatten(init), outputs),
        maximum_iterations=length,
    )
    # Written in the order of the steps and then reversed: a converter to ONNX takes the order of an array for it.
    ys = [y.stack()[::-1] if reverse else y.stack() for y in outputs]
    return tree.pack_sequence_as(init, carry), tree.pack_sequence_as(y_spec, ys)


def _is_from(graph, x) -> bool:
    """Returns True if x, a tensor or a weight, can be read in a graph: it is not of an inner graph."""
    if not tf.is_symbolic_tensor(x):
        return True
    while graph is not None and x.graph is not graph:
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def _unstacked(x, length) -> tf.TensorArray:
    return tf.TensorArray(x.dtype, size=length, element_shape=x.shape[1:]).unstack(x)


class _Products:
    """The products of a step, in the order of their calls, which is that of its first trace."""

    def __init__(self):
        self._graph = tf.compat.v1.get_default_graph()
        self._kernels: list[tf.Tensor] = []
        self._factors: Sequence[tf.Tensor] | None = None
        self._count = 0

    def of_step(self, factors: Sequence[tf.Tensor] | None) -> "_Products":
        """For a trace of the step, with this step of `factors`, or None in the first trace."""
        self._factors, self._count = factors, 0
        return self

    def __call__(self, x, kernel):
        x = tf.convert_to_tensor(x)
        if not self._is_deferred(x, kernel):
            return ops.matmul(x, kernel)
        if self._factors is None:
            with self._graph.as_default():  # a weight is read before the loop
                kernel = ops.convert_to_tensor(ops.cast(kernel, x.dtype))
            self._kernels.append(kernel)
            return tf.matmul(x, kernel)
        number, self._count = self._count, self._count + 1
        kernel = self._kernels[number]

        @tf.custom_gradient
        def multiply(x, left, right):
            return tf.matmul(x, kernel), lambda upstream: (tf.matmul(upstream, kernel, transpose_b=True), x, upstream)

        return multiply(x, *self._factors[2 * number : 2 * number + 2])

    def _is_deferred(self, x, kernel) -> bool:
        if len(x.shape) != len(kernel.shape) or x.dtype != keras.backend.standardize_dtype(kernel.dtype):
            return False
        if len(x.shape) > 2 and x.shape[1:-1] != [1]:
            return False
        widths = kernel.shape[-2:] if len(x.shape) == 2 else kernel.shape[-1:]
        is_large = all(width is not None and width >= LEAST_WIDTH for width in widths)
        return is_large and len(x.shape) > 1 and _is_from(self._graph, kernel)

    def factors(self, length, rows) -> list[tf.Tensor]:
        """Two inputs of the loop for each product, whose gradients are the factors of its kernel's gradient."""
        return [x for kernel in self._kernels for x in _factors(kernel, length, rows)]


def _factors(kernel, length, rows):
    """Zeros `(T, B, I)` and `(T, B, O)` whose gradients make up that of a kernel; with a 1 after B if it has rows."""

    @tf.custom_gradient
    def source(kernel):
        is_of_rows = len(kernel.shape) == 3
        *_, inputs, outputs = (_size(kernel, axis) for axis in range(len(kernel.shape)))
        batch = [_size(kernel, 0), 1] if is_of_rows else [_size(rows, 0)]

        def gradient(left, right):
            if is_of_rows:
                left, right = (tf.transpose(x[:, :, 0], (1, 0, 2)) for x in (left, right))  # (B, T, I), (B, T, O)
            else:
                left, right = (tf.reshape(x, (-1, x.shape[-1])) for x in (left, right))  # (T B, I), (T B, O)
            return tf.matmul(left, right, transpose_a=True)

        return [tf.zeros([length, *batch, size], kernel.dtype) for size in (inputs, outputs)], gradient

    return source(kernel)


def _size(x, axis: int):
    return tf.shape(x)[axis] if x.shape[axis] is None else x.shape[axis]
