"""The model of a preset: stored in fewer bits, and loaded in Keras' safe mode within bounds.

Matrices are stored in float16 or int8 instead of float32. One in float16 is an array like any other: Keras loads it and
widens it. One in int8 is a group of two arrays, `values` and `scale`, in the place of one array, so that Keras alone
refuses the file instead of loading integers as weights. `load_model` makes it an array again, `values * scale`. Vectors
and small matrices keep their bits.
"""

import contextlib
import functools
import io
import json
import math
import re
import tempfile
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path

import h5py
import keras
import numpy as np

from keras_attn import files
from keras_attn.backend import without_initial_weights
from keras_attn.models import Seq2Seq
from keras_attn.saving.quantization import QuantizedMatrix, dequantized, is_quantized, quantize_matrix

DTYPES = ("float16", "int8")
_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_PARTS = {"values", "scale"}  # of an int8 matrix
_LARGEST_CONFIG = 1 << 24  # bytes; a model's are some 10 kB
_LONGEST_ERROR = 400  # characters of Keras' message, which may have a whole config
_DEEPEST = 32  # groups within groups; Keras makes 10 or fewer
_COUNT_OF_LAYERS = re.compile(r"(^|_)(layers|transitions)$")  # arguments that say how many layers there are
_UNSTORED = 1 << 24  # elements of weights that a model may have besides those of its file


def narrow(path: Path, dtype: str) -> None:
    """Stores the matrices of a model's file in float16 or int8."""
    with files.replacing(path) as narrowed:
        _rewrite(path, narrowed, dtype)


def load_model(path: Path) -> Seq2Seq:
    """Loads a model that `save_preset` wrote.

    Raises:
        ValueError: if the file is none, or asks for far more memory or time than its size accounts for.
        ImportError: if a layer needs a package that is not installed.
        OSError: if it has int8 matrices and there is no room for temporary files.
    """
    try:
        elements, is_narrow = _check(path)
        with tempfile.TemporaryDirectory() if is_narrow else contextlib.nullcontext(path.parent) as folder:
            wide = Path(folder, path.name)
            if is_narrow:
                with files.needs_room(wide.parent.parent):
                    _rewrite(path, wide)
            load = functools.partial(keras.saving.load_model, wide, compile=False)
            model = without_initial_weights(load, most_elements=2 * elements + _UNSTORED)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # Keras fails in as many ways as a file can be wrong
        if files.is_disk_full(error):
            raise
        message = textwrap.shorten(str(error), _LONGEST_ERROR) or "The file is damaged."
        raise ValueError(
            f"Expected {str(path)!r} to be a model of keras_attn. Received: {type(error).__name__}: {message}"
        ) from error
    if not isinstance(model, Seq2Seq):
        raise ValueError(f"Expected {str(path)!r} to be a model of keras_attn. Received: {type(model).__name__}")
    return model


def _check(path: Path) -> tuple[int, bool]:
    """Refuses a file that takes far more memory or time than its size accounts for.

    Returns its number of weights, and whether some are int8 matrices.

    Keras writes neither the parts of the zip file nor the arrays in them compressed, so that a few kilobytes that
    unpack to gigabytes are not its work. A layer has an array at least.
    """
    files.check_archive(path)
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo(_CONFIG).file_size > _LARGEST_CONFIG:
            raise ValueError(f"Its {_CONFIG} has more than {_LARGEST_CONFIG:,} bytes.")
        config, stored_size = json.loads(archive.read(_CONFIG)), archive.getinfo(_WEIGHTS).file_size
    with _opened(path) as weights:
        arrays = [item for _, item in _items(weights) if isinstance(item, h5py.Dataset)]
        size = sum(math.prod(array.shape or ()) * array.dtype.itemsize for array in arrays)
        if any(array.external or array.is_virtual for array in arrays):
            raise ValueError(f"Its {_WEIGHTS} has arrays that are in other files.")
        if size > stored_size:
            raise ValueError(f"Its weights have {size:,} bytes, in {stored_size:,} bytes of {_WEIGHTS}.")
        for name, count in _counts_of_layers(config):
            if count > len(arrays):
                raise ValueError(f"Its {_CONFIG} has {count:,} as {name}, with weights of {len(arrays)} arrays.")
        return sum(math.prod(array.shape or ()) for array in arrays), any(map(_is_part, arrays))


def _counts_of_layers(config) -> Iterator[tuple[str, int]]:
    """Yields the arguments in a nested config that say how many layers there are."""
    for name, value in config.items() if isinstance(config, dict) else enumerate(config):
        if isinstance(value, (dict, list)):
            yield from _counts_of_layers(value)
        elif isinstance(value, int) and _COUNT_OF_LAYERS.search(str(name)):
            yield name, value


def _rewrite(old: Path, new: Path, dtype: str | None = None) -> None:
    """Copies a model's file, with its matrices in `dtype` if it is given; int8 matrices are arrays again.

    Each array is copied once, under one name, and no link to another file is followed.

    Raises:
        ValueError: if an int8 matrix has a scale of another shape than one of its axes.
    """
    file = io.BytesIO()
    with _opened(old) as stored, h5py.File(file, "w") as weights:
        for name, item in _items(stored):
            if isinstance(item, h5py.Group) and set(item) == _PARTS:
                weights[name] = _wide(item)
            elif isinstance(item, h5py.Group):
                weights.require_group(name).attrs.update(item.attrs)
            elif not _is_part(item):
                _write(item, weights, name, dtype)
    with zipfile.ZipFile(old) as archive, zipfile.ZipFile(new, "w", zipfile.ZIP_STORED) as rewritten:
        for part in archive.namelist():
            rewritten.writestr(part, file.getvalue() if part == _WEIGHTS else archive.read(part))


def _write(array: h5py.Dataset, group: h5py.Group, name: str, dtype: str | None) -> None:
    # HDF5 has no bfloat16, so that Keras writes its name beside it; NumPy has it by a dependency of Keras.
    values = array[()].view("bfloat16") if array.attrs.get("dtype") == "bfloat16" else array
    if dtype is None or not is_quantized(values):
        group[name] = array[()]
        group[name].attrs.update(array.attrs)
        return
    matrix = quantize_matrix(values[()], dtype)
    if dtype == "float16":
        group[name] = matrix.values
    else:
        group.update({f"{name}/{part}": value for part, value in matrix._asdict().items()})


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read(_WEIGHTS)), "r") as weights:
        yield weights


def _items(weights: h5py.File) -> list[tuple[str, h5py.Dataset | h5py.Group]]:
    """Returns each array and group once, with its name, a group before what is in it.

    Raises:
        ValueError: if groups are nested more deeply than a model's layers.
    """
    items = []

    def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if name.count("/") >= _DEEPEST:
            raise ValueError(f"Its {_WEIGHTS} has groups nested more than {_DEEPEST} deep.")
        items.append((name, item))

    weights.visititems(visit)
    return items


def _is_part(array: h5py.Dataset) -> bool:
    return set(array.parent) == _PARTS


def _wide(parts: h5py.Group) -> np.ndarray:
    matrix = QuantizedMatrix(parts["values"][()], parts["scale"][()])
    shape, scales = matrix.values.shape, matrix.scale.shape
    if len(shape) != len(scales) or any(scale not in (1, size) for scale, size in zip(scales, shape, strict=True)):
        raise ValueError(f"Expected a scale for each index of an axis of {shape}. Received: {scales}")
    return dequantized(matrix)
