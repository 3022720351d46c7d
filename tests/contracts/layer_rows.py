"""The rows of the contract of layers: each public layer with the arguments that make further weights or sub-layers.

B batch, T target, S source, E embedding, H units, M memory, A attention, V vocabulary: primes, so that no axis hides
behind another.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np

import keras_attn as ka
from keras_attn.layers import half_precision_safe
from tests import oracles

B, T, S, E, H, M, A, V = 4, 3, 5, 7, 11, 13, 17, 23
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]], "bool")  # (B, S)
LENGTH = 3  # of row 1, which is padded at its right


class Row(NamedTuple):
    """One layer of the contract.

    Attributes:
        cls: The class.
        arguments: Makes the constructor's arguments, layers among them, under the dtype policy of the layer.
        inputs: The shape of each input without the batch axis; those of an integer dtype end in "token_ids".
        masked: The inputs that have the axis of the mask; empty: the layer takes no mask.
        steps: How one step at a time is run: "attention", "decoder", "each" for a layer without a state, or None.
        oracle: `(weights by name, inputs by name) -> outputs` in NumPy, of which the first ones are compared.
        random: Whether the layer draws random numbers in training.
        smooth: Whether outputs follow inputs and weights without jumps.
        tolerance: Of float64: more than rounding only where a layer of Keras or KerasHub computes in float32.
        padding: Whether outputs are exactly 0 at masked places.
    """

    cls: type
    arguments: Callable[[], dict[str, Any]]
    inputs: dict[str, tuple[int, ...]]
    masked: tuple[str, ...] = ()
    steps: str | None = None
    oracle: Callable | None = None
    random: bool = False
    smooth: bool = True
    tolerance: float = 1e-9
    padding: bool = True


def gru(units=H, **options):
    return keras.layers.GRUCell(units, recurrent_initializer=half_precision_safe("orthogonal"), **options)


def lstm(units=H, **options):
    return keras.layers.LSTMCell(units, recurrent_initializer=half_precision_safe("orthogonal"), **options)


def stack():
    return keras.layers.StackedRNNCells([lstm(4), gru(6, reset_after=False)])


def normalized(cls, **options):
    return cls(H, recurrent_initializer=half_precision_safe("orthogonal"), **options)


def by_step(function):
    """An oracle of attention for one query, as one for all: stacks contexts and alignments over T."""

    def of_all(w, query, values):
        steps = [function(w, query[:, t], values) for t in range(T)]
        return [np.stack(parts, axis=1) for parts in zip(*steps, strict=True)]

    return of_all


def score(kind, **options):
    return by_step(lambda w, query, values: oracles.attention(kind, query, values, MASK, w, **options))


def additive(w, query, values):
    v = w["score_vector"]
    v = w["gain"] * v / np.linalg.norm(v) if "gain" in w else v
    return oracles.additive_attention(query, values, MASK, w["query_kernel"], w["key_kernel"], v, w.get("bias", 0.0))


def normalized_additive(w, query, values):
    """Each side's product normalised before the sum."""
    query = np.stack([oracles.layer_norm(row @ w["query_kernel"], w["query_norm/gamma"], 1, 1e-9) for row in query])
    keys = [oracles.layer_norm(word @ w["key_kernel"], w["key_norm/gamma"], 1, 1e-9) for row in values for word in row]
    keys = np.stack(keys).reshape(B, S, A) + w["key_norm/beta"]
    _, alignment = oracles.additive_attention(query, keys, MASK, np.eye(A), np.eye(A), w["score_vector"])
    return np.einsum("bs,bsm->bm", alignment, values), alignment


def local_m(kind):
    """Words at most one place from place t of the real ones."""

    def of_all(w, query, values):
        of = [
            oracles.attention(kind, query[:, t], values, MASK, w, 1, lambda s, length, t=t: min(t, length - 1))
            for t in range(T)
        ]
        return [np.stack(parts, axis=1) for parts in zip(*of, strict=True)]

    return of_all


def local_p(kind):
    def of_one(w, query, values):
        def centre(s, length):
            return length * oracles.sigmoid(w["position_vector"] @ np.tanh(w["position_kernel"].T @ s))

        return oracles.attention(kind, query, values, MASK, w, 2, centre, gaussian=True)

    return by_step(of_one)


def heads(number, score=None, causal=False):
    """Vaswani's equations; with `causal` those of self-attention, whose alignments are (B, N, S, S)."""

    def of_all(w, query, values=None):
        alone = values is None
        values = query if alone else values
        columns = [np.split(w[f"{name}_kernel"], number, axis=1) for name in ("query", "key", "value")]
        parts = list(zip(*columns, np.split(w["output_kernel"], number), strict=True))
        options = {} if score is None else {"score": lambda q, k: score(w, q, k)}
        found = []
        for q, v, real in zip(query, values, MASK, strict=True):
            visible = np.tile(real, (len(q), 1)) & (np.tri(len(q), dtype="bool") if causal else True)
            found.append(oracles.multi_head(q, v, visible, parts, **options))
        outputs, alignments = (np.stack(x) for x in zip(*found, strict=True))  # (B, T, H), (B, N, T, S)
        return outputs, alignments if alone else alignments.swapaxes(1, 2)

    return of_all


def additive_head(w, q, k):
    return w["attention/score_vector"] @ np.tanh(q @ w["attention/query_kernel"] + k @ w["attention/key_kernel"])


def bidirectional(w, inputs):
    cells = [
        [w[f"{name}/{part}"] for part in ("kernel", "recurrent_kernel", "bias")] for name in ("forward_0", "backward_0")
    ]
    return oracles.bidirectional_gru(inputs, MASK, *cells, False)


def deep_output(activation):
    def of_all(w, state, embedding, context):
        both = zip((state, embedding, context), ("state", "embedding", "context"), strict=True)
        hidden = sum(x @ w[f"{name}_kernel"] for x, name in both) + w.get("bias", 0.0)
        return [np.tanh(hidden) if activation == "tanh" else hidden.reshape(*hidden.shape[:-1], -1, 2).max(-1)]

    return of_all


def normalized_output(w, state, embedding, context):
    hidden = w["bias"] * np.ones((B, T, 1))
    for x, name in zip((state, embedding, context), ("state", "embedding", "context"), strict=True):
        product = x @ w[f"{name}_kernel"]
        rows = [oracles.layer_norm(row, w[f"{name}_norm/gamma"], 1) for row in product.reshape(-1, A)]
        hidden = hidden + np.reshape(rows, product.shape)
    return [np.tanh(hidden)]


def pointer(w, logits, state, embedding, context, alignment, token_ids):
    p_gen = state @ w["state_kernel"] + embedding @ w["embedding_kernel"] + context @ w["context_kernel"] + w["bias"]
    rows = zip(logits, oracles.sigmoid(p_gen)[..., 0], alignment, token_ids, MASK, strict=True)
    with np.errstate(divide="ignore"):
        return [np.log([oracles.pointer_generator(*row) for row in rows])]


ATTENTION = {"query": (T, H), "values": (S, M)}
EQUAL = {"query": (T, H), "values": (S, H)}
DECODER = {"inputs": (T, E), "values": (S, M)}
ENCODER = {"inputs": (S, E)}
READOUT = {"state": (T, H), "embedding": (T, E), "context": (T, M)}
POINTER = {"logits": (T, V), **READOUT, "alignment": (T, S), "token_ids": (S,)}
HARD = {"states": (T, H), "values": (S, M), "log_emissions": (T, S, V), "token_ids": (T,)}


def attention(cls, oracle=None, inputs=ATTENTION, smooth=True, tolerance=1e-9, **arguments):
    return Row(cls, lambda: arguments, inputs, ("values",), "attention", oracle, smooth=smooth, tolerance=tolerance)


def decoder(cls, arguments, **options):
    return Row(cls, arguments, DECODER, ("values",), "decoder", **options)


def encoder(cls, arguments, oracle=None, **options):
    return Row(cls, arguments, ENCODER, ("inputs",), None, oracle, **options)


def reader(cell, **options):
    return encoder(ka.RNNEncoder, lambda: {"cell": cell()}, **options)


ROWS = {
    "additive": attention(ka.BahdanauAttention, by_step(additive), units=A),
    "additive, bias": attention(ka.BahdanauAttention, by_step(additive), units=A, use_bias=True),
    "additive, normalize": attention(ka.BahdanauAttention, by_step(additive), units=A, normalize=True),
    "layer norm": attention(
        ka.layers.LayerNormAttention, by_step(normalized_additive), tolerance=1e-5, units=A, epsilon=1e-9
    ),
    "dot": attention(ka.DotAttention, score("dot"), EQUAL),
    "sparsemax": attention(ka.DotAttention, inputs=EQUAL, normalizer="sparsemax"),
    "hardmax": attention(ka.DotAttention, inputs=EQUAL, normalizer="hardmax", smooth=False),
    "scaled dot": attention(ka.ScaledDotAttention, score("scaled_dot"), EQUAL),
    "general": attention(ka.GeneralAttention, score("general")),
    "general, scale": attention(ka.GeneralAttention, score("general"), use_scale=True, kernel_initializer="he_normal"),
    "concat": attention(ka.ConcatAttention, score("concat")),
    "concat, units": attention(ka.ConcatAttention, score("concat"), units=A),
    "cosine": attention(ka.CosineAttention, score("cosine"), sharpness=3.0),
    "location": attention(ka.LocationAttention, score("location"), max_length=19),
    "location, short": attention(ka.LocationAttention, score("location"), max_length=3),
    "luong": attention(ka.LuongAttention, score("general")),
    "luong, concat": attention(ka.LuongAttention, score("concat"), score="concat"),
    "local-m": attention(ka.LocalMonotonicAttention, local_m("general"), window=1),
    "local-m, location": attention(ka.LocalMonotonicAttention, local_m("location"), score="location", window=1),
    "local-p": attention(ka.LocalPredictiveAttention, local_p("dot"), EQUAL, score="dot", window=2),
    "local-p, concat": attention(ka.LocalPredictiveAttention, local_p("concat"), score="concat", window=2),
    "monotonic": attention(ka.BahdanauMonotonicAttention, units=A, normalize=True, chunk_size=2),
    "monotonic, general": attention(ka.GeneralMonotonicAttention, use_scale=True, mode="recursive"),
    "monotonic, hard": attention(ka.BahdanauMonotonicAttention, units=A, mode="hard", chunk_size=3, smooth=False),
    "location-sensitive": attention(ka.LocationSensitiveAttention, units=A, filters=2, kernel_size=3),
    "location-sensitive, last": attention(
        ka.LocationSensitiveAttention, units=A, filters=2, kernel_size=3, cumulative=False, normalizer="sparsemax"
    ),
    "coverage": attention(ka.CoverageAttention, units=A),
    "coverage, fertility": attention(ka.CoverageAttention, units=A, max_fertility=2.0, use_bias=False, normalize=True),
    "coverage, neural": attention(ka.NeuralCoverageAttention, units=A, coverage_units=3),
    "heads": attention(ka.MultiHeadAttention, heads(3), num_heads=3, head_units=5),
    "heads, additive": attention(ka.MultiHeadAttention, heads(1, additive_head), num_heads=1, score="additive"),
    "heads with a state": attention(
        ka.MultiHeadAttention, num_heads=3, head_units=5, score="coverage", kernel_initializer="he_normal"
    ),
    "self-attention": encoder(ka.SelfAttention, lambda: {"num_heads": 3, "head_units": 5}, heads(3), padding=False),
    "self-attention, causal": encoder(
        ka.SelfAttention, lambda: {"num_heads": 1, "causal": True}, heads(1, causal=True), padding=False
    ),
    "BiGRU": encoder(ka.BiGRUEncoder, lambda: {"units": H}, bidirectional),
    "BiGRU, deep": encoder(
        ka.BiGRUEncoder,
        lambda: {"units": H, "num_layers": 2, "reset_after": True, "dropout": 0.3, "recurrent_dropout": 0.2},
        random=True,
    ),
    "encoder, backwards": encoder(ka.RNNEncoder, lambda: {"cell": gru(), "reverse": True}),
    "encoder, both ways": encoder(
        ka.RNNEncoder, lambda: {"cell": stack(), "backward_cell": stack(), "dropout": 0.3}, random=True
    ),
    "encoder, simple": reader(
        lambda: keras.layers.SimpleRNNCell(H, recurrent_initializer=half_precision_safe("orthogonal"))
    ),
    "layer norm GRU": reader(lambda: normalized(ka.LayerNormGRUCell, per_gate=False)),
    "layer norm LSTM": reader(lambda: normalized(ka.LayerNormLSTMCell, dropout=0.3), random=True),
    "deep transition": reader(lambda: ka.DeepTransitionCell([gru(), gru(use_bias=False), gru(reset_after=False)])),
    "residual": reader(
        lambda: ka.ResidualCells(
            [ka.DeepTransitionCell([gru(recurrent_dropout=0.2), gru()]), gru(), lstm()], first_skip=2
        ),
        random=True,
    ),
    "stacks": encoder(
        ka.layers.StackedEncoder,
        lambda: {"cells": [gru(), gru()], "backward_cells": [gru(), gru()], "order": "alternating", "residual": True},
    ),
    "stacks, upwards": encoder(
        ka.layers.StackedEncoder,
        lambda: {"cells": [gru(), lstm()], "backward_cells": [gru()], "order": "upwards", "dropout": 0.3},
        random=True,
    ),
    "decoder": decoder(ka.AttentionDecoder, lambda: {"cell": gru(), "attention": "additive"}),
    "decoder, stack fed": decoder(
        ka.AttentionDecoder,
        lambda: {
            "cell": stack(),
            "attention": ["general", ka.BahdanauMonotonicAttention(A, sigmoid_noise=1.0)],
            "attend": "after",
            "attentional": ka.AttentionalLayer(A),
            "input_feeding": True,
            "dropout": 0.3,
        },
        random=True,
    ),
    "decoder, after": decoder(
        ka.AttentionDecoder,
        lambda: {
            "cell": lstm(),
            "attention": "general",
            "attend": "after",
            "attentional": ka.AttentionalLayer(A),
            "dropout": 0.3,
        },
        random=True,
    ),
    "decoder, between": decoder(
        ka.AttentionDecoder,
        lambda: {
            "cell": gru(reset_after=False, dropout=0.2),
            "attention": "location_sensitive",
            "attend": "between",
            "second_cell": gru(),
        },
        random=True,
    ),
    "decoder, context fed": decoder(
        ka.AttentionDecoder,
        lambda: {
            "cell": gru(),
            "attention": ka.MultiHeadAttention(2, head_units=3),
            "attend": "after",
            "attentional": "context",
            "input_feeding": True,
            "output_attention": False,
            "cell_input": keras.layers.Dense(E),
        },
        tolerance=1e-5,
    ),
    "decoder, context gate": decoder(
        ka.AttentionDecoder, lambda: {"cell": ka.ContextGateCell(H), "attention": ka.BahdanauAttention(A)}
    ),
    "fixed context": decoder(ka.FixedContextDecoder, lambda: {"cell": gru()}),
    "fixed context, projected": decoder(
        ka.FixedContextDecoder, lambda: {"cell": stack(), "projection": keras.layers.Dense(A)}, tolerance=1e-5
    ),
    "decoder stack": decoder(
        ka.DecoderStack,
        lambda: {
            "decoder": ka.AttentionDecoder(gru(), "additive"),
            "cells": [gru(), gru()],
            "read_context": True,
            "first_skip": 1,
            "dropout": 0.3,
        },
        random=True,
    ),
    "hard alignment": Row(ka.layers.HardAlignment, dict, HARD, ("values", "log_emissions"), padding=False),
    "hard alignment, order 1": Row(
        ka.layers.HardAlignment,
        lambda: {"order": 1, "monotonic": False, "window": 2},
        HARD,
        ("values", "log_emissions"),
        padding=False,
    ),
    "pointer": Row(ka.PointerGenerator, dict, POINTER, ("alignment", "token_ids"), None, pointer, padding=False),
    "deep output": Row(ka.DeepOutput, lambda: {"units": A}, READOUT, (), "each", deep_output("maxout")),
    "deep output, tanh": Row(
        ka.DeepOutput,
        lambda: {"units": A, "activation": "tanh", "use_bias": False},
        READOUT,
        (),
        "each",
        deep_output("tanh"),
    ),
    "layer norm output": Row(
        ka.layers.LayerNormOutput,
        lambda: {"units": A, "activation": "tanh"},
        READOUT,
        (),
        "each",
        normalized_output,
        tolerance=1e-5,
    ),
    "concatenated output": Row(
        ka.layers.ConcatenatedOutput, dict, READOUT, (), "each", lambda w, s, y, c: [np.concatenate([s, c], -1)]
    ),
    "attentional": Row(
        ka.AttentionalLayer,
        lambda: {"units": A, "use_bias": True},
        {"inputs": (T, E)},
        (),
        "each",
        lambda w, x: [np.tanh(x @ w["kernel"] + w["bias"])],
    ),
    "output bias": Row(ka.layers.OutputBias, dict, {"inputs": (T, E)}, (), "each", lambda w, x: [x + w["bias"]]),
    "pairs": Row(
        ka.layers.PairReadout,
        lambda: {"units": A},
        {"states": (T, H), "values": (S, M)},
        oracle=lambda w, s, h: [
            np.tanh((s @ w["state_kernel"])[:, :, None] + (h @ w["memory_kernel"])[:, None] + w["bias"])
        ],
    ),
    "word dropout": Row(
        ka.WordDropout, lambda: {"rate": 0.3, "seed": 3}, {"inputs": (S, E), "token_ids": (S,)}, random=True
    ),
    "coverage loss": Row(ka.CoverageLoss, lambda: {"weight": 0.5}, {"inputs": (T, E), "alignments": (T, S)}),
    "Transformer": Row(
        ka.layers.TransformerDecoder,
        lambda: {"num_heads": 2, "feed_forward_units": A, "dropout": 0.2, "normalize_first": True},
        {"inputs": (T, 6), "values": (S, 6)},
        ("values",),
        random=True,
        tolerance=1e-5,
        padding=False,
    ),
}
