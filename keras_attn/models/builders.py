"""Layers that several models build in the same way: embeddings, the output projection, cells."""

from collections.abc import Callable

import keras
from keras.initializers import Initializer, RandomNormal

from keras_attn.layers import (
    AttentionDecoder,
    BahdanauAttention,
    ContextGateCell,
    DecoderStack,
    DeepTransitionCell,
    LayerNormGRUCell,
    LayerNormLSTMCell,
    ResidualCells,
    check_size,
    get_attention,
    half_precision_safe,
)


def make_initializers(
    initializer, embedding_size: int, paper: Callable[[], Initializer]
) -> tuple[Initializer, Initializer]:
    """Initialisers for kernels and for embeddings, from a model's argument `initializer`; None: the paper's for both.

    Otherwise embeddings are ~ N(0, 1 / m). Glorot's rule, which counts the vocabulary as the fan-in, would make them
    too small to learn from (Multi30k, 250 updates: training perplexity 207, against 59).
    """
    check_size("embedding_size", embedding_size)
    if initializer is None:
        return paper(), paper()
    return keras.initializers.get(initializer), RandomNormal(stddev=embedding_size**-0.5)


def make_embeddings(
    source_size: int, target_size: int, width: int, initializer, tie: str | None, features: int, dtype=None
):
    """The source and the target embedding, one object if they are tied.

    Args:
        source_size, target_size: Vocabulary sizes.
        width: E.
        initializer: For both.
        tie: None; "target": the output projection is the transposed target embedding; "source": source and target share
            one embedding; "all": both.
        features: Width of the output projection's input.
        dtype: Dtype policy.

    Raises:
        ValueError: if `tie` is unknown, or does not fit the sizes.
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
        return keras.layers.ReversibleEmbedding(
            size, width, embeddings_initializer=initializer.clone(), dtype=dtype, name=name
        )

    target = embedding(target_size, "target_embedding")
    return target if tie in ("source", "all") else embedding(source_size, "source_embedding"), target


def make_first_layers(model, paper: Callable[[], Initializer], features: int, dtype=None) -> tuple[Initializer, dict]:
    """The first parts of a recurrent model: the initialiser of its kernels, and the two embeddings by name.

    The order in which a model makes its layers stays: it decides the initial weights that a seed gives.

    Args:
        model: Its arguments `initializer`, `embedding_size` and, if it has it, `tie_embeddings` are attributes.
        paper: See `make_initializers`.
        features: Width of the output projection's input.
        dtype: Dtype policy.
    """
    kernel, vectors = make_initializers(model.initializer, model.embedding_size, paper)
    sizes = model.source_vocabulary_size, model.target_vocabulary_size, model.embedding_size
    tie = getattr(model, "tie_embeddings", None)
    source, target = make_embeddings(*sizes, vectors, tie, features, dtype)
    return kernel, {"source_embedding": source, "target_embedding": target}


def make_output_projection(model, initializer: Initializer, dtype=None):
    """The layer from features to logits; None if the transposed target embedding takes its place."""
    if getattr(model, "tie_embeddings", None) in ("target", "all"):
        return None
    size = model.target_vocabulary_size
    return keras.layers.Dense(size, kernel_initializer=initializer.clone(), dtype=dtype, name="output")


def make_attention(attention, units: int, initializer: Initializer, dtype=None):
    """An attention layer from its name or itself; "additive" has a bias, and all its weights from the initialiser."""
    if attention != "additive":
        return get_attention(attention, units, dtype)
    initializers = {f"{part}_initializer": initializer.clone() for part in ("query", "key", "score")}
    return BahdanauAttention(units, use_bias=True, **initializers, dtype=dtype, name="attention")


def make_cell(
    kind: str,
    units: int,
    initializer: Initializer,
    name: str,
    dtype=None,
    *,
    num_layers: int = 1,
    residual: bool = True,
    transitions: int = 1,
    layer_normalization: bool = False,
    context_gate: str | None = None,
    **options,
):
    """A GRU or LSTM cell with orthogonal recurrent matrices, of one transition or several; or layers of these.

    Args:
        kind: "gru" or "lstm".
        num_layers, residual: How many layers, and whether they have skip connections.
        context_gate: The gate of `ContextGateCell`, which is returned instead; it has no dropout.
        options: As in Keras' cell.
    """
    kinds = {"gru": (keras.layers.GRUCell, LayerNormGRUCell), "lstm": (keras.layers.LSTMCell, LayerNormLSTMCell)}
    if kind not in kinds:
        raise ValueError(f'Expected `cell` "gru" or "lstm". Received: {kind!r}')
    check_size("num_layers", num_layers)
    check_size("transitions", transitions)
    if context_gate is not None:
        if dropout := options.get("recurrent_dropout"):
            raise ValueError(
                f"Expected no `recurrent_dropout` with a `context_gate`. Received: recurrent_dropout={dropout}, "
                f"context_gate={context_gate!r}"
            )
        return ContextGateCell(units, gate=context_gate, kernel_initializer=initializer.clone(), dtype=dtype, name=name)

    def plain(name):
        return kinds[kind][layer_normalization](
            units,
            kernel_initializer=initializer.clone(),
            recurrent_initializer=half_precision_safe("orthogonal", dtype),
            dtype=dtype,
            name=name,
            **options,
        )

    def deep(name):
        if transitions == 1:
            return plain(name)
        return DeepTransitionCell([plain(f"{name}_{k}") for k in range(transitions)], dtype=dtype, name=name)

    if num_layers == 1:
        return deep(name)
    stack = ResidualCells if residual else keras.layers.StackedRNNCells
    return stack([deep(f"{name}_{i}") for i in range(num_layers)], dtype=dtype, name=name)


def make_lstm_stack(units: int, num_layers: int, *, name: str, dtype=None, **options):
    """A stack of the cells of `make_lstm_layers`, whose arguments it takes."""
    check_size("num_layers", num_layers)
    cells = make_lstm_layers(units, num_layers, name=name, dtype=dtype, **options)
    return keras.layers.StackedRNNCells(cells, dtype=dtype, name=name)


def make_lstm_layers(
    units: int,
    num_layers: int,
    initializer,
    paper: Callable[[], Initializer],
    name: str,
    dtype=None,
    make: Callable = keras.layers.LSTMCell,
    **options,
) -> list:
    """LSTM cells, one a layer; `initializer` and `paper` as in `make_initializers`.

    Recurrent matrices have the paper's initialiser too, or else are orthogonal.

    Args:
        make: Keras' cell or another of the same arguments.
        options: As in that cell.
    """
    return [
        make(
            units,
            kernel_initializer=paper() if initializer is None else keras.initializers.get(initializer).clone(),
            recurrent_initializer=paper() if initializer is None else half_precision_safe("orthogonal", dtype),
            dtype=dtype,
            name=f"{name}_{i}",
            **options,
        )
        for i in range(num_layers)
    ]


def make_decoder_stack(cells: list, attention, attend: str, dropout: float, dtype=None) -> DecoderStack:
    """The decoder of GNMT and RNMT+: every layer reads the context of the bottom layer's attention.

    Layers from the third on have skip connections.

    Args:
        cells: One a layer, from below.
        attention: The bottom layer's.
        attend: "before": its query is the bottom layer's output of the step before, and every layer reads the context;
            "after": the query is its new output; the layers above read the context, and it reads the last one.
        dropout: As in `DecoderStack`.
    """
    if attend not in ("before", "after"):
        raise ValueError(f'Expected `attend` to be "before" or "after". Received: attend={attend!r}')
    fed = {"attentional": "context", "input_feeding": True, "output_attention": False} if attend == "after" else {}
    bottom = AttentionDecoder(cells[0], attention, attend=attend, **fed, dtype=dtype, name="decoder")
    options = {"read_context": True, "first_skip": 1, "dropout": dropout}
    return DecoderStack(bottom, cells[1:], **options, dtype=dtype, name="decoder_stack")
