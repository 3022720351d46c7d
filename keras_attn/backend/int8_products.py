"""Products with a model's matrices in int8, for decoding on a processor.

    y_rj = s_r t_j sum_i q_ri p_ij,    q_ri = round(x_ri / s_r),  s_r = max_i |x_ri| / 127,
                                       p_ij = round(w_ij / t_j),  t_j = max_i |w_ij| / 127

The sums are whole numbers in int32. So they are exact, and a row's product does not depend on the other rows.
"""

import contextlib
import threading
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

MIN_WIDTH = 32  # of a matrix in int8: narrower ones are multiplied as fast in float32
MAX_SUMMED = 2**31 // (255 * 127)  # products: a sum of more may not fit into int32
ALL = slice(None)
_LEAST = 1e-20  # so that a row of zeros has a scale
_kernel_products: ContextVar[Callable | None] = ContextVar("kernel_products", default=None)


@contextlib.contextmanager
def kernel_products(find: Callable | None) -> Iterator[None]:
    """Within this, products with weights are those that `find` returns, where it returns any.

    Args:
        find: `(kernel, rows, columns, transpose)` -> `x -> x @ kernel[rows, columns]`, or with its transpose, or None;
            such as `Int8Weights.product`. None: all products are as always.
    """
    token = _kernel_products.set(find)
    try:
        yield
    finally:
        _kernel_products.reset(token)


def kernel_product(kernel, *, rows: slice = ALL, columns: slice = ALL, transpose: bool = False):
    """The product with a weight inside `kernel_products`; None for an ordinary one."""
    find = _kernel_products.get()
    return find and find(kernel, rows, columns, transpose)


def has_kernel_products() -> bool:
    """Returns True inside `kernel_products`."""
    return _kernel_products.get() is not None


class Int8Matrix(NamedTuple):
    """p and t of a matrix `(I, O)`."""

    values: Any  # (I, O) int8; on torch as oneDNN stores it, or in float32
    scale: Any  # t / 127, (O,) float32
    zeros: Any = None  # (O,) int64, which oneDNN asks for


class Int8Weights:
    """The matrices of a model in int8, each made when a product first asks for it, and kept.

    Args:
        model: A `keras.Model` whose weights do not change any more.
    """

    def __init__(self, model: keras.Model):
        weights = [w for w in model.weights if len(w.shape) == 2 and keras.backend.is_float_dtype(w.dtype)]
        self._variables = {id(weight): weight for weight in weights}  # kept, so that an id stays that of one weight
        self._weights = {id(weight): ops.convert_to_numpy(weight.value) for weight in weights}
        self._numbers = {id(weight): i for i, weight in enumerate(weights)}
        self._making = threading.Lock()
        self.matrices: dict[tuple, Int8Matrix] = {}

    def product(self, kernel, rows: slice, columns: slice, transpose: bool) -> Callable[[Any], Any] | None:
        """`x -> x @ kernel[rows, columns]`, or with its transpose; None for what stays in float32."""
        if id(kernel) not in self._variables:
            return None
        ends = [part.indices(size)[:2] for part, size in zip((rows, columns), kernel.shape, strict=True)]
        widths = [stop - start for start, stop in ends]
        if min(widths) < MIN_WIDTH or widths[transpose] > MAX_SUMMED:
            return None
        key = (self._numbers[id(kernel)], *ends[0], *ends[1], transpose)
        with self._making:
            if key not in self.matrices:
                matrix = self._weights[id(kernel)][rows, columns]
                self.matrices[key] = _quantized(matrix.T if transpose else matrix)
        return partial(_product, self.matrices[key])

    def bound(self, matrices: Mapping[tuple, Int8Matrix]) -> "Int8Weights":
        """These weights with the given matrices: the arguments of a compiled function of JAX."""
        other = object.__new__(Int8Weights)
        vars(other).update(vars(self), matrices=_Bound(matrices, self.matrices))
        return other


class _Bound(dict):
    """Arguments of a compiled function; a matrix that it lacks is a constant, and an argument from the next call on."""

    def __init__(self, matrices, kept):
        super().__init__(matrices)
        self._kept = kept

    def __setitem__(self, key, matrix):
        super().__setitem__(key, matrix)
        self._kept[key] = matrix


def _product(matrix: Int8Matrix, x):
    rows = ops.cast(x, "float32")
    if len(x.shape) != 2:
        rows = ops.reshape(rows, (-1, x.shape[-1]))  # (R, I)
    largest = ops.maximum(ops.amax(ops.abs(rows), axis=-1, keepdims=True), _LEAST)  # (R, 1)
    if matrix.zeros is not None:
        products = _onednn_product(rows, largest, matrix) * largest  # (R, O)
    else:
        products = _scaled_sums(ops.round(rows * (127 / largest)), matrix) * largest  # (R, O)
    if len(x.shape) != 2:
        products = ops.reshape(products, (*ops.shape(x)[:-1], products.shape[-1]))
    return ops.cast(products, x.dtype)


def _scaled_sums(rows, matrix: Int8Matrix):
    """t_j sum_i q_ri p_ij / 127, (R, O) in float32, for q (R, I) in float32."""
    if keras.backend.backend() != "torch":
        return ops.cast(ops.matmul(ops.cast(rows, "int8"), matrix.values), "float32") * matrix.scale
    # A sum of 1,024 of these products is below 2 ** 24: float32 has it exactly, added up in any order.
    parts = zip(rows.split(1024, dim=1), matrix.values.split(1024), strict=True)
    return sum(part @ values for part, values in parts) * matrix.scale


def _onednn_product(rows, largest, matrix: Int8Matrix):
    """t_j sum_i q_ri p_ij / 127, (R, O) in float32, for x (R, I) and max_i |x_ri| (R, 1)."""
    import torch

    # As uint8 with a zero at 128: of two factors with a sign VNNI has no product, and oneDNN takes 500 times as long.
    # The fraction is cut off, so that adding a half rounds; a number in the middle goes up, where others go
    # to the even one.
    rows = ops.add(rows * ops.divide(ops.convert_to_tensor(127.0), largest), 128.5).to(torch.uint8)
    arguments = (1.0, 128, matrix.values, matrix.scale, matrix.zeros, None, 1.0, 0, torch.float32, "none", [], "")
    return torch.ops.onednn.qlinear_pointwise(rows, *arguments)


def _quantized(matrix: np.ndarray) -> Int8Matrix:
    matrix = np.asarray(matrix, "float32")
    largest = np.abs(matrix).max(axis=0)  # (O,)
    scale = np.maximum(largest, _LEAST) / 127
    values = np.rint(matrix / scale).astype("int8")
    scale = np.float32(scale / 127)
    if keras.backend.backend() == "jax":
        import jax

        with jax.ensure_compile_time_eval():  # also while a function is traced
            return Int8Matrix(jax.numpy.asarray(values), jax.numpy.asarray(scale))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.init_scope():  # an input of each graph, not a constant in it
            return Int8Matrix(tf.constant(values), tf.constant(scale))
    import torch

    values, scale = torch.from_numpy(values), torch.from_numpy(scale)
    return _onednn_matrix(values, scale) if _has_onednn() else Int8Matrix(values.to(torch.float32), scale)


def _onednn_matrix(values, scale) -> Int8Matrix:
    import torch

    packed = torch.ops.onednn.qlinear_prepack(values.T.contiguous(), None)
    return Int8Matrix(packed, scale, torch.zeros(len(scale), dtype=torch.int64))


@cache
def _has_onednn() -> bool:
    """Returns True if torch has oneDNN, and its product in int8 is exact and fast.

    Without VNNI pairs of products must fit int16. Two of the largest ones do not, so that they are tried. A product for
    which oneDNN has no fast code takes some hundred times as long as in float32, a fast one half as long.
    """
    import torch

    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.onednn, "qlinear_prepack"):
        return False
    rows, values = torch.full((33, 512), 127.0), torch.full((512, 512), 127, dtype=torch.int8)
    matrix = _onednn_matrix(values, torch.ones(512))
    product = partial(_onednn_product, largest=torch.tensor(127.0), matrix=matrix)
    sums = [(product(sign * some), sign) for some in (rows, rows[:1]) for sign in (1, -1)]
    if not all(bool((found == sign * 512 * 127**2).all()) for found, sign in sums):
        return False
    limit = 2 * min(timeit.repeat(partial(torch.matmul, rows, values.to(torch.float32)), number=1, repeat=20))
    # Of several calls, because other work may interrupt some; but those of a slow product take a quarter of a second.
    end = time.monotonic() + 0.5
    for _ in range(20):
        if timeit.timeit(partial(product, rows), number=1) < limit:
            return True
        if time.monotonic() > end:
            break
    return False
