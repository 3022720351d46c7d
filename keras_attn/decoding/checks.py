"""Checks of what the engine receives, and of what its model computes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from keras_attn.text import check_joint

if TYPE_CHECKING:
    from keras_attn.models import Seq2Seq
    from keras_attn.text import Tokenizer


def check_parts(model: "Seq2Seq", source_tokenizer: "Tokenizer", target_tokenizer: "Tokenizer") -> None:
    """Refuses tokenizers that do not belong to a model.

    Raises:
        ValueError: if a tokenizer has another number of ids than the model, or other special ids; or if padding decides
            on translations, and nothing on how much of it there is.
    """
    for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
        expected, special_ids = (getattr(model, f"{side}_{name}") for name in ("vocabulary_size", "special_ids"))
        if tokenizer.vocabulary_size != expected:
            raise ValueError(
                f"Expected a {side} tokenizer with the model's {expected} ids. "
                f"Received one with {tokenizer.vocabulary_size}."
            )
        if tokenizer.special_ids != special_ids:
            raise ValueError(
                f"Expected a {side} tokenizer with the model's {special_ids}; a model takes those of its tokenizer as "
                f"`{side}_special_ids`. Received one with {tokenizer.special_ids}."
            )
    if model.pointer:
        check_joint(source_tokenizer, target_tokenizer)
    if not model.mask_padding and model.source_length is None:
        raise ValueError(
            "Expected a model with `source_length`, because it does not mask padding: a translation would depend on "
            "its batch mates. Received: source_length=None"
        )


def check_list(name: str, values: Iterable, count: int | None = None) -> list:
    """The values as a list. Refuses what is none, a string in the place of a list, and another length than `count`."""
    if isinstance(values, str):
        raise ValueError(f"Expected `{name}` to be a list of strings. Received one string; put it into a list.")
    if not isinstance(values, Iterable):
        raise ValueError(f"Expected `{name}` to be a list. Received: {values!r}")
    values = list(values)
    if count is not None and len(values) != count:
        raise ValueError(f"Expected `{name}` to have an entry for each of {count} sentences. Received: {len(values)}")
    return values


def check_whole(**lists) -> None:
    """Refuses lists with anything but whole numbers."""
    for name, values in lists.items():
        wrong = [value for value in values if isinstance(value, bool) or not isinstance(value, (int, np.integer))]
        if wrong:
            raise ValueError(f"Expected `{name}` to be a whole number, or a list of them. Received: {wrong[0]!r}")


def check_scores(scores: np.ndarray, model: "Seq2Seq") -> None:
    """Refuses the scores (B, N) of a model whose logits are NaN.

    Where a NaN reaches a search, the best score of the sentence is NaN or, by the order of a backend's `top_k`, -inf.
    Only a sentence whose every translation has probability 0 has such a score too, so that the weights are seldom read.

    Raises:
        ValueError: if a score is NaN, or a sentence has none and a weight is not finite; the sentence names weights
            that are not finite.
    """
    if np.isfinite(scores[:, 0]).all():
        return
    from keras.ops import convert_to_numpy  # here: the other checks do without Keras

    wrong = [weight.path for weight in model.weights if not np.isfinite(convert_to_numpy(weight)).all()]
    if wrong or np.isnan(scores).any():
        cause = f"Weights that are not finite: {', '.join(wrong[:3])}" if wrong else "Its weights are finite"
        more = f" and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
        raise ValueError(f"Expected a model with finite logits. Received: logits that are NaN. {cause}{more}.")
