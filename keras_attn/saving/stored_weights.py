"""The weights of a model's file in fewer bits: float16 or int8 instead of float32.

A matrix in float16 is an array like any other: Keras loads it and widens it. A matrix in int8 is a group of two arrays,
`values` and `scale`, in the place of one array, so that Keras alone refuses the file instead of loading integers as
weights. `widened` makes it an array again, `values * scale`. Vectors and small matrices keep their bits.
"""

import contextlib
import io
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np

from keras_attn import files
from keras_attn.saving.quantization import QuantizedMatrix, dequantized, is_quantized, quantize_matrix

DTYPES = ("float16", "int8")
_WEIGHTS = "model.weights.h5"
_PARTS = {"values", "scale"}


def check_dtype(dtype: str | None) -> None:
    """Refuses a dtype in which weights cannot be stored.

    Raises:
        ValueError: if it is neither None nor one of `DTYPES`.
    """
    if dtype not in (None, *DTYPES):
        raise ValueError(f'Expected `dtype` to be None, "float16" or "int8". Received: {dtype!r}')


def narrow(path: Path, dtype: str) -> None:
    """Stores the matrices of a model's file in float16 or int8."""

    def write(array: h5py.Dataset, group: h5py.Group, name: str) -> None:
        # HDF5 has no bfloat16, so that Keras writes its name beside it; NumPy has it by a dependency of Keras.
        values = array[()].view("bfloat16") if array.attrs.get("dtype") == "bfloat16" else array
        if not is_quantized(values):
            _copy(array, group, name)
            return
        matrix = quantize_matrix(values[()], dtype)
        if dtype == "float16":
            group[name] = matrix.values
        else:
            parts = group.create_group(name)
            parts["values"], parts["scale"] = matrix.values, matrix.scale

    with files.replacing(path) as narrowed:
        _rewrite(path, narrowed, write)


@contextlib.contextmanager
def widened(path: Path) -> Iterator[Path]:
    """Yields a model's file without int8 matrices: the file itself if it has none, else a temporary one.

    Raises:
        ValueError: if an int8 matrix has a scale of another shape than one of its axes.
    """
    with _opened(path) as weights:
        is_narrow = weights.visititems(lambda _, item: (isinstance(item, h5py.Dataset) and _is_part(item)) or None)
    if not is_narrow:
        yield path
        return
    with tempfile.TemporaryDirectory() as temporary:
        wide = Path(temporary, path.name)
        _rewrite(path, wide, _copy)
        yield wide


def _rewrite(old: Path, new: Path, write: Callable[[h5py.Dataset, h5py.Group, str], None]) -> None:
    """Copies a model's file, its arrays with `write`; int8 matrices are arrays again.

    Each array is copied once, under one name, and no link to another file is followed.
    """
    file = io.BytesIO()
    with _opened(old) as stored, h5py.File(file, "w") as weights:

        def copy(name: str, item: h5py.Dataset | h5py.Group) -> None:
            if isinstance(item, h5py.Dataset):
                if not _is_part(item):
                    write(item, weights, name)
            elif set(item) == _PARTS:
                weights[name] = _wide(item)
            else:
                weights.require_group(name).attrs.update(item.attrs)

        stored.visititems(copy)
    with zipfile.ZipFile(old) as archive, zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as rewritten:
        for part in archive.namelist():
            rewritten.writestr(part, file.getvalue() if part == _WEIGHTS else archive.read(part))


def _is_part(array: h5py.Dataset) -> bool:
    return set(array.parent) == _PARTS


def _wide(parts: h5py.Group) -> np.ndarray:
    matrix = QuantizedMatrix(parts["values"][()], parts["scale"][()])
    shape, scales = matrix.values.shape, matrix.scale.shape
    if len(shape) != len(scales) or any(scale not in (1, size) for scale, size in zip(scales, shape, strict=True)):
        raise ValueError(f"Expected a scale for each index of an axis of {shape}. Received: {scales}")
    return dequantized(matrix)


def _copy(array: h5py.Dataset, group: h5py.Group, name: str) -> None:
    group[name] = array[()]
    group[name].attrs.update(array.attrs)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    with zipfile.ZipFile(path) as archive, archive.open(_WEIGHTS) as part, h5py.File(part, "r") as weights:
        yield weights
