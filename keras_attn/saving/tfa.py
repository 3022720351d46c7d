"""Weights of models made with tensorflow_addons.seq2seq, or with Keras 2, for the layers of this package."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_attn.saving.tfa_pairing import pair
from keras_attn.saving.tfa_parts import our_parts
from keras_attn.saving.tfa_stored import read_stored, stored_parts


def from_tfa(
    path: str | os.PathLike,
    target: keras.layers.Layer | Mapping[str, Any],
    *,
    mapping: Mapping[str, str | Mapping[str, str]] | None = None,
) -> dict[str, str]:
    """Loads the weights of a model that was made with tensorflow_addons.seq2seq, or of a Keras 2 model.

    A model consists of parts: embeddings, cells, attention mechanisms, attention layers and other dense layers. Each
    part of `target` gets that of the file whose weights are the same, by kind and shape; among several the words
    "encoder", "source", "decoder", "target", "forward" and "backward" in their names decide, and in a stack of cells
    the numbers. What is converted on the way: the rows of an attention layer's kernel, `[state; context]` there and
    `[context; state]` here. Nothing is loaded unless everything of `target` is.

    A file has the weights alone. All else has to be in `target` as it was in the model: `attend="after"` and
    `input_feeding=True` for an `AttentionWrapper`, `activation=None` for the attention layer that it makes itself,
    `reset_after` of a GRU, masks. `docs/migrating-from-tfa.md` has the arguments.

    Args:
        path: A checkpoint that `tf.train.Checkpoint` wrote, a folder of them (the last one is read) or a SavedModel,
            for which TensorFlow has to be installed, whatever the backend; or weights in Keras 2's ".h5".
        target: What gets the weights, built: a `RecurrentSeq2Seq`, such as `LuongSeq2Seq`; an `AttentionDecoder`, an
            `RNNEncoder` or any other layer; or a dict of such layers, whose keys are their names here.
        mapping: What cannot be guessed: from a part of `target`, such as "decoder/cell" or "source_embedding", to the
            one of the file, such as "decoder/rnn_cell/_cell"; or to a dict of its weights, such as
            `{"kernel": "decoder/W/kernel"}`. The names of all parts are in the message of the error that asks for it.

    Returns:
        The part of the file for each part of `target`. What is left of the file without a place, other than the
        optimizer's variables, is named in a warning.

    Raises:
        ValueError: if a part of `target` has none in the file of its weights and shapes, or several which no name tells
            apart; for a layer without weights yet; for unknown names in `mapping`; or for a damaged file.
        FileNotFoundError: if there is no such file.
        ModuleNotFoundError: without TensorFlow, for a checkpoint or a SavedModel.
    """
    parts = our_parts(target)
    stored = read_stored(Path(path))
    pairs = pair(parts, stored_parts(stored), stored, dict(mapping or {}))
    for part, found in pairs:
        for role, variable in part.weights.items():
            variable.assign(part.convert(role, found.arrays[role]))
    used = {name for _, found in pairs for name in found.sources}
    if left := [name for name in stored if name not in used]:
        shown = ", ".join(f"{name} {tuple(np.shape(stored[name].value))}" for name in left[:8])
        warnings.warn(
            f"Expected a place for all that {str(path)!r} contains. Received {len(left)} weights without one: "
            f"{shown}{', ...' if len(left) > 8 else ''}.",
            stacklevel=2,
        )
    return {part.name: found.name for part, found in pairs}
