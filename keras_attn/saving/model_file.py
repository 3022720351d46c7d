"""Loads the model of a preset: in Keras' safe mode, within bounds, and with a sentence for whatever is wrong."""

import io
import math
import os
import textwrap
import zipfile
from pathlib import Path

import keras

from keras_attn import files
from keras_attn.backend import without_initial_weights
from keras_attn.models import Seq2Seq
from keras_attn.saving.stored_weights import widened

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_LARGEST_CONFIG = 1 << 24  # bytes; a model's are some 10 kB
_LONGEST_ERROR = 400  # characters of Keras' message, which may have a whole config


def load_model(path: Path) -> Seq2Seq:
    """Loads a model that `save_preset` wrote.

    Raises:
        ValueError: if the file is none, or would take far more memory than disk.
        ImportError: if a layer needs a package that is not installed.
    """
    try:
        _check_sizes(path)
        with widened(path) as wide:
            model = without_initial_weights(lambda: keras.saving.load_model(wide, compile=False))
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # Keras fails in as many ways as a file can be wrong
        message = textwrap.shorten(str(error), _LONGEST_ERROR) or "The file is damaged."
        raise ValueError(
            f"Expected {str(path)!r} to be a model of keras_attn. Received: {type(error).__name__}: {message}"
        ) from error
    if not isinstance(model, Seq2Seq):
        raise ValueError(f"Expected {str(path)!r} to be a model of keras_attn. Received: {type(model).__name__}")
    return model


def _check_sizes(path: Path) -> None:
    """Refuses a file that takes far more memory than disk, as a few kilobytes of compressed zeros do.

    Keras writes neither the parts of the zip file nor the arrays in them compressed.
    """
    import h5py

    files.check_archive(path)
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        if archive.getinfo(_CONFIG).file_size > _LARGEST_CONFIG:
            raise ValueError(f"Its {_CONFIG} has more than {_LARGEST_CONFIG:,} bytes.")
        weights = archive.getinfo(_WEIGHTS)
        file.seek(weights.header_offset + 26)
        lengths = int.from_bytes(file.read(2), "little") + int.from_bytes(file.read(2), "little")
        begin = weights.header_offset + 30 + lengths
        arrays = []
        with h5py.File(_Part(file, begin, weights.file_size), "r") as stored:
            stored.visititems(lambda _, item: arrays.append(item) if isinstance(item, h5py.Dataset) else None)
            size = sum(math.prod(array.shape or ()) * array.dtype.itemsize for array in arrays)
            if any(array.external or array.is_virtual for array in arrays):
                raise ValueError(f"Its {_WEIGHTS} has arrays that are in other files.")
    if size > weights.file_size:
        raise ValueError(f"Its weights have {size:,} bytes, in {weights.file_size:,} bytes of {_WEIGHTS}.")


class _Part(io.RawIOBase):
    """A part of a file as a file of its own, so that the weights need not be read twice."""

    def __init__(self, file: io.BufferedReader, begin: int, size: int):
        self._file, self._begin, self._size = file, begin, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer) -> int:
        self._file.seek(self._begin + self._position)
        content = self._file.read(max(0, min(len(buffer), self._size - self._position)))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)
