"""Checks of the loss that a model was compiled with, before its first batch."""

import inspect
from typing import Any

import keras

_BY_SHAPE = ("crossentropy", "ce")  # names for which Keras chooses a cross-entropy, of probabilities


def check_loss(loss: Any, pointer: bool, vocabulary_size: int) -> None:
    """Refuses a loss that would take the model's logits for something else.

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
    """Returns True for a loss of Keras that can take logits, without `from_logits=True`."""
    if isinstance(loss, str):
        if loss.lower() in _BY_SHAPE:
            return True
        loss = keras.losses.get(loss)
    if inspect.isfunction(loss):
        parameter = inspect.signature(loss).parameters.get("from_logits")
        return parameter is not None and parameter.default is False
    return getattr(loss, "from_logits", None) is False


def check_class_weight(class_weight: Any) -> None:
    """Refuses weights of classes, which would be ids."""
    if class_weight is not None:
        raise ValueError(
            "Expected no `class_weight`: the labels are token ids, of which each sentence has many. Weight tokens with "
            f"`sample_weight`, an array of the labels' shape (B, T). Received: class_weight={class_weight!r}"
        )
