"""A part of a projection to the vocabulary, for a search with a shortlist."""

from typing import Any

import keras
from keras import ops

from keras_attn.backend import dense, take


def projection_part(
    projection: keras.layers.Layer, output_bias: keras.layers.Layer | None, token_ids: Any
) -> dict[str, Any]:
    """The columns of a projection to the vocabulary for some of its ids, for `project`.

    Args:
        projection: A `Dense` layer, or a `ReversibleEmbedding` that is transposed.
        output_bias: A bias besides; None: none.
        token_ids: `(n,)` int32.

    Returns:
        "kernel" `(F, n)` and, where there is one, "bias" `(n,)`, in the projection's compute dtype.

    Raises:
        ValueError: for a layer of another kind, or one that changes the logits further.
    """
    if isinstance(projection, keras.layers.Dense) and projection.activation is keras.activations.linear:
        kernel, bias = take(ops.convert_to_tensor(projection.kernel), token_ids, axis=1), projection.bias
    elif isinstance(projection, keras.layers.ReversibleEmbedding) and projection.logit_soft_cap is None:
        bias = None
        if projection.tie_weights:
            kernel = ops.transpose(take(ops.convert_to_tensor(projection.embeddings), token_ids))
        else:
            kernel = take(ops.convert_to_tensor(projection.reverse_embeddings), token_ids, axis=1)
    else:
        raise ValueError(f"Expected a projection whose logits are a product and a bias. Received: {projection.name!r}")
    biases = [bias, output_bias and output_bias.bias]
    biases = [take(ops.convert_to_tensor(one), token_ids) for one in biases if one is not None]
    part = {"kernel": kernel} | ({"bias": sum(biases)} if biases else {})
    return {name: ops.cast(value, projection.compute_dtype) for name, value in part.items()}


def project(features: Any, part: dict[str, Any]) -> Any:
    """The logits `(..., n)` of features `(..., F)` for the ids of a `projection_part`."""
    logits = dense(ops.cast(features, part["kernel"].dtype), part["kernel"])
    return logits + part["bias"] if "bias" in part else logits
