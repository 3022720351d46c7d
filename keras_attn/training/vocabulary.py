"""`--distribute model=N`: the vocabulary's matrices in parts, and their padding in saved arrays."""

import re
from collections.abc import Collection, Sequence

import keras
import numpy as np


def parts(distribute: str | None) -> int:
    """N of `--distribute model=N`; 1 for `data` and None.

    Raises:
        ValueError: if it is another word.
    """
    if distribute in (None, "data"):
        return 1
    if not (match := re.fullmatch(r"model=([1-9][0-9]{0,5})", distribute)):
        raise ValueError(f"Expected --distribute data or model=N, such as model=2. Received: {distribute}")
    return int(match[1])


def check_divided(model: keras.Model, parts: int) -> None:
    """Refuses a model none of whose weights the distribution divides.

    Args:
        model: The model, made in the distribution's scope.
        parts: N of `--distribute model=N`, or 1.

    Raises:
        ValueError: The sentence says which layers are divided.
    """
    if parts > 1 and all(weight.value.sharding.is_fully_replicated for weight in model.weights):
        raise ValueError(
            f"Expected a model with layers to divide in {parts} parts: embeddings whose names end with `embedding`, or "
            f"an output projection called `output`. Received: {type(model).__name__}"
        )


def parameters(model: keras.Model) -> int:
    """The number of a model's weights, without the padding of a divided vocabulary."""
    return model.count_params() - sum(getattr(layer, "padded_parameters", 0) for layer in model.layers)


def fit_padding(array: np.ndarray, shape: Sequence[int], vocabularies: Collection[int]) -> np.ndarray:
    """A saved array with as much padding of the vocabulary as a variable has now.

    Args:
        array: What a variable was, or its average in the optimizer, on any number of devices.
        shape: What it has to be.
        vocabularies: The vocabulary sizes of the model.

    Returns:
        The array, cut or filled up with zeros at the end of the axis of a vocabulary. An array that has no such axis,
        or more than zeros there, is returned as it is.
    """
    odd = [axis for axis, sizes in enumerate(zip(array.shape, shape, strict=False)) if sizes[0] != sizes[1]]
    if array.ndim != len(shape) or len(odd) != 1:
        return array
    (axis,) = odd
    size, wanted = array.shape[axis], shape[axis]
    if not any(vocabulary <= min(size, wanted) for vocabulary in vocabularies):
        return array
    kept, surplus = np.split(array, [wanted], axis=axis)
    if surplus.any():
        return array
    return np.pad(kept, [(0, wanted - kept.shape[i] if i == axis else 0) for i in range(array.ndim)])
