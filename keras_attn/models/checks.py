"""Checks of what a model is trained with: token ids, and the loss."""

import inspect
from typing import Any

import keras
import numpy as np

_BY_SHAPE = ("crossentropy", "ce")  # names for which Keras chooses a cross-entropy, of probabilities
_INPUTS = ("encoder_token_ids", "decoder_token_ids")


def check_ids(x: Any, model: keras.Model) -> None:
    """Checks that token ids are in a model's vocabularies.

    The backends differ in what an id outside the vocabulary does: an error, NaN, or a wrong loss without a word. The
    `fit` of a model calls this for a `ParallelDataset`, whose largest ids are known; for arrays, call it yourself.

    Args:
        x: A `ParallelDataset`; a batch `(inputs, labels, ...)`; or inputs, a dict of two arrays or a pair of them.
        model: A `keras_attn.models.Seq2Seq`. With `pointer=True` a source of S words adds S ids to its vocabularies.

    Raises:
        ValueError: if an id is not.

    Example:
        >>> keras_attn.check_ids({"encoder_token_ids": np.array([[4, 3]]), "decoder_token_ids": np.array([[2]])}, model)
        >>> keras_attn.check_ids(keras_attn.ParallelDataset([[4]], [[10**6]], batch_size=1), model)
        Traceback (most recent call last):
            ...
        ValueError: Expected labels from 0 to 12, the ids of the model's vocabulary. Received: 1000000
    """
    source, target = model.source_vocabulary_size, model.target_vocabulary_size
    sizes = {"encoder_token_ids": source, "decoder_token_ids": target, "labels": target}
    if (largest := getattr(x, "largest_token_ids", None)) is not None:
        temporary = max(length for _, length, _ in x.shapes) if model.pointer else 0
        ranges = {name: (0, one) for name, one in zip(("encoder_token_ids", "labels"), largest, strict=True)}
    else:
        arrays = _arrays(x)
        temporary = arrays["encoder_token_ids"].shape[1] if model.pointer else 0
        ranges = {name: (array.min(), array.max()) for name, array in arrays.items() if array.size}
    for name, (lowest, highest) in ranges.items():
        size = sizes[name] + temporary
        if not (lowest >= 0 and highest < size):
            raise ValueError(
                f"Expected {name} from 0 to {size - 1}, the ids of the model's vocabulary. "
                f"Received: {highest if lowest >= 0 else lowest}"
            )


def _arrays(x: Any) -> dict[str, np.ndarray]:
    inputs, labels = x, None
    if isinstance(x, (tuple, list)) and (isinstance(x[0], (dict, tuple, list)) or len(x) > len(_INPUTS)):
        inputs, labels = x[0], x[1] if len(x) > 1 else None
    if not isinstance(inputs, dict):
        inputs = dict(zip(_INPUTS, inputs, strict=True))
    named = {name: inputs[name] for name in _INPUTS} | ({} if labels is None else {"labels": labels})
    return {name: keras.ops.convert_to_numpy(array) for name, array in named.items()}


def check_loss(loss: Any, pointer: bool, vocabulary_size: int) -> None:
    """Raises ValueError for a loss that would take the model's logits for something else.

    Args:
        loss: What `compile` was given: a name, a function, a `keras.losses.Loss`, or a list or dict of them.
        pointer: Whether the logits are wider than the vocabulary.
        vocabulary_size: The size of the target vocabulary.

    Raises:
        ValueError: for a loss of probabilities, as Keras' cross-entropies are by name or without `from_logits=True`;
            and, with a pointer, for a smoothed loss that does not know the size of the vocabulary.
    """
    for one in keras.tree.flatten(loss):
        if _takes_probabilities(one):
            name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
            raise ValueError(
                "Expected a loss of logits, which the model returns: `keras_attn.losses.SmoothedCrossentropy()` "
                "or `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`. Received: a loss of probabilities, "
                f"{name!r} without `from_logits=True`"
            )
        if pointer and getattr(one, "label_smoothing", 0) and not getattr(one, "vocabulary_size", None):
            raise ValueError(
                f"Expected `SmoothedCrossentropy({one.label_smoothing}, vocabulary_size={vocabulary_size})`: with "
                "`pointer=True` the logits are wider than the vocabulary, and impossible words are not smoothed. "
                "Received: vocabulary_size=None"
            )


def _takes_probabilities(loss: Any) -> bool:
    """Returns True for a loss of Keras that can take logits and was not told to."""
    if isinstance(loss, str):
        if loss.lower() in _BY_SHAPE:
            return True
        loss = keras.losses.get(loss)
    if inspect.isfunction(loss):
        parameter = inspect.signature(loss).parameters.get("from_logits")
        return parameter is not None and parameter.default is False
    return getattr(loss, "from_logits", None) is False
