"""What the models have in common beside their layers: how weights begin, embeddings, the output, stacks of cells."""

from collections.abc import Callable

import keras
from keras.initializers import Initializer, RandomNormal


def initializers(initializer, embedding_size: int, paper: Callable[[], Initializer]) -> tuple[Initializer, Initializer]:
    """For kernels and for embeddings, of a model's argument `initializer`; None means both as in the paper.

    Else embeddings are ~ N(0, 1 / m): drawn by Glorot's rule, over the vocabulary, they would be too small to learn
    from (Multi30k, 250 updates: training perplexity 207, against 59).
    """
    if initializer is None:
        return paper(), paper()
    return keras.initializers.get(initializer), RandomNormal(stddev=embedding_size**-0.5)


def embeddings(source_size: int, target_size: int, width: int, initializer, tie: str | None, features: int):
    """Source and target embedding, one object where they are tied; refuses ties that cannot be.

    Args:
        tie: None; "target": the output projection is the transposed target embedding; "source": source and target share
            one embedding; "all": both.
        features: Width of what the output projection reads.
    """
    if tie not in (None, "source", "target", "all"):
        raise ValueError(f'Expected `tie_embeddings` to be None, "source", "target" or "all". Received: {tie!r}')
    if tie in ("target", "all") and features != width:
        raise ValueError(
            f"Expected the output's features to be as wide as the embeddings (`embedding_size`) when the output is the "
            f"target embedding. Received: {features} features, embedding_size={width}"
        )
    if tie in ("source", "all") and source_size != target_size:
        raise ValueError(
            f"Expected one joint vocabulary when source and target share an embedding. Received: "
            f"source_vocabulary_size={source_size}, target_vocabulary_size={target_size}"
        )

    def embedding(size, name):
        return keras.layers.ReversibleEmbedding(size, width, embeddings_initializer=initializer.clone(), name=name)

    target = embedding(target_size, "target_embedding")
    return target if tie in ("source", "all") else embedding(source_size, "source_embedding"), target


def output_layer(size: int, initializer, tie: str | None):
    """From features to logits; None where the transposed target embedding does it."""
    if tie in ("target", "all"):
        return None
    return keras.layers.Dense(size, kernel_initializer=initializer.clone(), name="output")


def lstm_stack(units: int, num_layers: int, initializer, paper: Callable[[], Initializer], name: str):
    """LSTM cells, each of which reads the one below; `initializer` and `paper` as in `initializers`.

    Recurrent matrices are the paper's too, or else orthogonal.
    """
    if not isinstance(num_layers, int) or num_layers < 1:
        raise ValueError(f"Expected `num_layers` to be at least 1. Received: num_layers={num_layers!r}")
    cells = [
        keras.layers.LSTMCell(
            units,
            kernel_initializer=paper() if initializer is None else keras.initializers.get(initializer).clone(),
            recurrent_initializer=paper() if initializer is None else "orthogonal",
            name=f"{name}_{i}",
        )
        for i in range(num_layers)
    ]
    return keras.layers.StackedRNNCells(cells, name=name)
