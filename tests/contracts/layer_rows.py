"""The rows of the contract of layers: each public layer with the arguments that make further weights or sub-layers.

B batch, T target, S source, E embedding, H units, M memory, A attention, V vocabulary: primes, so that no axis hides
behind another.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

import keras_attn as ka
from keras_attn.layers import half_precision_safe
from tests import oracles
from tests.hard_attention_oracle import prefixes, transition

B, T, S, E, H, M, A, V = 4, 3, 5, 7, 11, 13, 17, 23
MASK = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]], "bool")  # (B, S)
LENGTH = 3  # of rows 0 and 1, which are padded at their left and their right


class Row(NamedTuple):
    """One layer of the contract.

    Attributes:
        cls: The class.
        arguments: Makes the constructor's arguments, layers among them, under the dtype policy of the layer.
        inputs: The shape of each input without the batch axis; those of an integer dtype end in "token_ids".
        masked: The inputs that have the axis of the mask; empty: the layer takes no mask.
        steps: How one step at a time is run: "attention", "decoder", "each" for a layer without a state, or None.
        oracle: `(weights by the ends of their paths, *inputs) -> outputs` in NumPy, of which the first ones are
            compared, and the first rows, where the last one, without a word, is not defined.
        random: Whether the layer draws random numbers in training.
        smooth: Whether outputs follow inputs and weights without jumps.
        tolerance: Of float64: more than rounding only where a layer of Keras or KerasHub computes in float32.
        padding: Whether outputs are exactly 0 at masked places.
        handed_on: The mask of the first output, from that of the first input.
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
    handed_on: Callable = np.asarray


def make_cell(cls, name="cell", units=H, **options):
    return cls(units, recurrent_initializer=half_precision_safe("orthogonal"), name=name, **options)


gru, lstm = partial(make_cell, keras.layers.GRUCell), partial(make_cell, keras.layers.LSTMCell)


def stack(name="cell"):
    return keras.layers.StackedRNNCells([lstm(f"{name}_0", 4), gru(f"{name}_1", 6, reset_after=False)])


def stack_in_numpy(w, name="cell"):
    return oracles.cell(w, f"{name}_0", "lstm"), oracles.cell(w, f"{name}_1", "paper's gru")


@keras.saving.register_keras_serializable(package="tests")
def smooth(scores):
    """Chorowski 2015, section 2.3: a sigmoid in the place of the exponential."""
    shares = keras.ops.sigmoid(scores)
    return shares / (keras.ops.sum(shares, axis=-1, keepdims=True) + 1e-9)


def smooth_in_numpy(scores):
    return oracles.sigmoid(scores) / (oracles.sigmoid(scores).sum() + 1e-9)


def stacked(rows):
    """The results of each sentence, side by side in a batch."""
    return [np.stack(parts) for parts in zip(*rows, strict=True)]


def sequence(mechanism, within=""):
    """An oracle of all steps of a mechanism, whose weights are those of an inner layer; states are compared, too."""

    def of_all(w, query, values):
        w, rows = oracles.part(w, within) if within else w, []
        for queries, h, real in zip(query, values, MASK, strict=True):
            steps, state = [], None
            for s in queries:
                *found, state = mechanism(w, s, h, real, state)
                steps.append(found)
            rows.append(stacked(steps) + ([] if state is None else [state]))
        return stacked(rows)

    return of_all


def scores(kind):
    return lambda w, s, h: np.array([oracles.score(kind, s, word, j, w) for j, word in enumerate(h)])


def score(kind, normalizer=oracles.softmax, within=""):
    return sequence(oracles.attends(scores(kind), normalizer), within)


def location(w, s, h, real, state):
    """Places are those among the real words."""
    found = [oracles.score("location", s, word, j, w) for j, word in zip(np.cumsum(real) - 1, h, strict=True)]
    return oracles.attends(lambda *_: found)(w, s, h, real, state)


def local(kind, window, centre=None, normalizer=oracles.softmax):
    """Words at most `window` from `centre(w, s, number)` of the real ones, or without it from place t (Luong 2015)."""

    def of_all(w, query, values):
        w, rows = {**w, **oracles.part(w, "attention")}, []
        for queries, h, real in zip(query, values, MASK, strict=True):
            steps, places = [], np.cumsum(real) - 1
            for t, s in enumerate(queries):
                p = min(t, real.sum() - 1) if centre is None else centre(w, s, real.sum())
                found = [oracles.score(kind, s, word, j, w) for j, word in zip(places, h, strict=True)]
                alignment = oracles.aligned(found, real & (abs(places - p) <= window), normalizer)
                if centre is not None:
                    alignment = alignment * np.exp(-((places - p) ** 2) / (2 * (window / 2) ** 2))
                steps.append([alignment @ h, alignment])
            rows.append(stacked(steps))
        return stacked(rows)

    return of_all


def predicted(w, s, length):
    return length * oracles.sigmoid(w["position_vector"] @ np.tanh(w["position_kernel"].T @ s))


def self_attention(number, causal=False):
    def of_all(w, inputs):
        w, found = oracles.part(w, "attention"), []
        columns = [np.split(w[f"{name}_kernel"], number, axis=1) for name in ("query", "key", "value")]
        parts = list(zip(*columns, np.split(w["output_kernel"], number), strict=True))
        for x, real in zip(inputs, MASK, strict=True):
            visible = np.tile(real, (S, 1)) & (np.tri(S, dtype="bool") if causal else True)
            found.append(oracles.multi_head(x, x, visible, parts))
        return stacked(found)

    return of_all


def reads(layers, first_skip=None):
    """An oracle of an encoder whose layers are `layers(weights)`, as `read_layers` takes them."""

    def of_all(w, inputs):
        rows = []
        for x, real in zip(inputs, MASK, strict=True):
            values, states = oracles.read_layers(x, real, layers(w), first_skip)
            rows.append([values, *keras.tree.flatten(states), oracles.top(states[-1])])
        return stacked(rows)

    return of_all


def one_way(cell):
    return reads(lambda w: [[(cell(w), False)]])


def bidirectional(layers, kind):
    def of_all(w, inputs):
        cells = [[oracles.cell(w, f"{way}_{i}", kind) for way in ("forward", "backward")] for i in range(layers)]
        values, *_, final = reads(lambda _: [list(zip(layer, (False, True), strict=True)) for layer in cells])(
            w, inputs
        )
        return [values, final[:, :H], final[:, H:]]

    return of_all


def in_pairs(x):
    """Places side by side in twos, the last filled up with zeros."""
    return np.pad(x, [(0, len(x) % 2), (0, 0)]).reshape(-1, 2 * x.shape[1])


def pyramid(w, inputs):
    """Chan 2016, eq. 5: the second layer reads two outputs of the first at a time."""
    rows = []
    for x, real in zip(inputs, MASK, strict=True):
        first, second = ([(one, False)] for one in stack_in_numpy(w))
        x, states = oracles.read_layers(x, real, [first])
        values, above = oracles.read_layers(in_pairs(x), in_pairs(real[:, None]).any(1), [second])
        rows.append([values, *keras.tree.flatten([*states, *above]), oracles.top(above[-1])])
    return stacked(rows)


def pooled(w, inputs):
    """Yang 2016, eqs. 5 to 7."""
    rows = []
    for h, real in zip(inputs, MASK, strict=True):
        alignment = oracles.aligned(np.tanh(h @ w["kernel"] + w["bias"]) @ w["query"], real, oracles.softmax)
        rows.append([alignment @ h])
    return stacked(rows)


def two_stacks(w, inputs):
    """Miceli Barone 2017, section 2.1, with Zhou's turns and a sum from the second layer on."""
    rows = []
    for x, real in zip(inputs, MASK, strict=True):
        sides = []
        for name, turn in (("cell", False), ("backward", True)):
            layers = [[(oracles.cell(w, f"{name}_{i}"), turn ^ bool(i))] for i in range(2)]
            sides.append(oracles.read_layers(x, real, layers, first_skip=1))
        values = np.concatenate([values for values, _ in sides], -1)
        states = [state for _, states in sides for state in states]
        rows.append([values, *keras.tree.flatten(states), states[1][0]])
    return stacked(rows)


def one_stack_above(w, inputs):
    rows, names = [], ("cell_0", "backward_0")
    for x, real in zip(inputs, MASK, strict=True):
        lower = [[(oracles.cell(w, name), turn) for name, turn in zip(names, (False, True), strict=True)]]
        values, states = oracles.read_layers(x, real, [*lower, [(oracles.cell(w, "cell_1", "lstm"), False)]])
        first, backward = np.split(states[0][0], 2)
        rows.append([values, first, *states[1], backward, states[1][0]])
    return stacked(rows)


def decodes(parts):
    """An oracle of a decoder, whose arguments of `oracles.decode` are `parts(weights)`."""

    def of_all(w, inputs, values):
        options = parts(w)
        return stacked(oracles.decode(*row, **options) for row in zip(inputs, values, MASK, strict=True))

    return of_all


def attend(mechanism, w, name="attention"):
    """A mechanism with its weights."""
    own = oracles.part(w, name)
    return lambda s, h, real, state: mechanism(own, s, h, real, state)


def both(*attends):
    """Contexts side by side, and the mean of the alignments."""

    def of_all(s, h, real, states):
        found = [one(s, h, real, state) for one, state in zip(attends, states or [None] * len(attends), strict=True)]
        contexts, alignments, states = zip(*found, strict=True)
        return np.concatenate(contexts), np.mean(alignments, axis=0), states

    return of_all


def mean_of_heads(one):
    def of_all(s, h, real, state):
        context, alignments, state = one(s, h, real, state)
        return context, alignments.mean(0), state

    return of_all


def last_word(project=lambda c: c):
    """The context of `FixedContextDecoder`."""

    def of_all(s, h, real, state):
        last = np.isin(np.arange(len(h)), np.flatnonzero(real)[-1:])
        return project(last @ h), last.astype("float64"), None

    return of_all


additive, general = oracles.attends(oracles.additive_scores), oracles.attends(scores("general"))


def attentional(w, **options):
    return {"vector": lambda c, s: np.tanh(np.concatenate([c, s]) @ w["vector/kernel"]), "order": "after", **options}


def dense(w, name):
    return lambda x: x @ w[f"{name}/kernel"] + w[f"{name}/bias"]


def layers_above(w, inputs, values):
    """Wu 2016, section 3.1: the upper layer has a sum, and both read the context."""
    gate = oracles.cell(w, "cell", "gated gru", gate="target", context_width=M)
    found = decodes(lambda w: {"cell": gate, "attend": attend(additive, w)})(w, inputs, values)
    for b, (x, contexts) in enumerate(zip(*found[:2], strict=True)):
        for name, skip in (("upper_0", 0), ("upper_1", 1)):
            x = oracles.read(oracles.cell(w, name), np.concatenate([x, contexts], -1), range(T))[0] + skip * x
        found[0][b] = x
    return found


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


def every_path(order=0, monotonic=True, window=4):
    """The sum over all alignments, one after the other, of the sentences that have a word."""

    def of_all(w, states, values, log_emissions, token_ids):
        w, found = {f"alignment/{name}": array for name, array in w.items()}, []
        for s, h, emissions, ids, real in zip(states, values, np.exp(log_emissions), token_ids, MASK, strict=True):
            if real.any():
                transitions = np.zeros((T, S, S))
                for t, k in itertools.product(range(T), np.flatnonzero(real)):
                    transitions[t, k] = transition(w, s[t], h, k, order, monotonic, window, real)
                alignments = prefixes(emissions, transitions, ids, np.flatnonzero(real)[0])
                with np.errstate(divide="ignore"):
                    found.append([np.log(np.einsum("ts,tsv->tv", alignments, emissions)), np.log(alignments)])
        return stacked(found)

    return of_all


def gated(w, s, h, real, state=None):
    """Xu 2015, section 4.2.1."""
    context, alignment, _ = additive(w, s, h, real)
    return oracles.sigmoid(s @ w["gate_kernel"] + w["gate_bias"]) * context, alignment, None


def of_series(w, inputs):
    """Qin 2017, eqs. 8 to 11: the words of the attention are the series."""
    cell, own, rows = oracles.cell(w, "cell", "lstm"), oracles.part(w, "attention"), []
    for x in inputs:
        steps, states = [], cell.states
        for values in x:
            alpha = oracles.softmax(oracles.additive_scores(own, np.concatenate(states), x.T))
            output, states = cell.step(alpha * values, states)
            steps.append([output, alpha])
        rows.append(stacked(steps))
    return stacked(rows)


ATTENTION = {"query": (T, H), "values": (S, M)}
EQUAL = {"query": (T, H), "values": (S, H)}
DECODER = {"inputs": (T, E), "values": (S, M)}
ENCODER = {"inputs": (S, E)}
READOUT = {"state": (T, H), "embedding": (T, E), "context": (T, M)}
POINTER = {"logits": (T, V), **READOUT, "alignment": (T, S), "token_ids": (S,)}
HARD = {"states": (T, H), "values": (S, M), "log_emissions": (T, S, V), "token_ids": (T,)}


def attention(cls, oracle=None, inputs=ATTENTION, smooth=True, tolerance=1e-9, **arguments):
    return Row(cls, lambda: arguments, inputs, ("values",), "attention", oracle, smooth=smooth, tolerance=tolerance)


def decoder(cls, arguments, parts, **options):
    return Row(cls, arguments, DECODER, ("values",), "decoder", decodes(parts), **options)


def encoder(cls, arguments, oracle=None, **options):
    return Row(cls, arguments, ENCODER, ("inputs",), None, oracle, **options)


def reader(cell, in_numpy, **options):
    return encoder(ka.RNNEncoder, lambda: {"cell": cell()}, one_way(in_numpy), **options)


def hard_alignment(**arguments):
    oracle = every_path(**arguments)
    return Row(
        ka.layers.HardAlignment, lambda: arguments, HARD, ("values", "log_emissions"), oracle=oracle, padding=False
    )


def each(cls, oracle, inputs=READOUT, tolerance=1e-9, **arguments):
    """A layer of each place by itself."""
    return Row(cls, lambda: arguments, inputs, (), "each", oracle, tolerance=tolerance)


ROWS = {
    "additive": attention(ka.BahdanauAttention, sequence(additive), units=A),
    "additive, normalize": attention(ka.BahdanauAttention, sequence(additive), units=A, normalize=True),
    "additive, gated": attention(ka.GatedAttention, sequence(gated), units=A),
    "layer norm": attention(
        ka.layers.LayerNormAttention,
        sequence(oracles.attends(oracles.normalized_scores)),
        tolerance=1e-5,
        units=A,
        epsilon=1e-9,
    ),
    "dot": attention(ka.DotAttention, score("dot"), EQUAL),
    "sparsemax": attention(ka.DotAttention, score("dot", oracles.sparsemax), EQUAL, normalizer="sparsemax"),
    "hardmax": attention(ka.DotAttention, score("dot", oracles.hardmax), EQUAL, smooth=False, normalizer="hardmax"),
    "dot, dropout": attention(ka.DotAttention, None, EQUAL, dropout=0.4)._replace(random=True),
    "scaled dot": attention(ka.ScaledDotAttention, score("scaled_dot"), EQUAL),
    "general": attention(ka.GeneralAttention, score("general")),
    "general, scale": attention(ka.GeneralAttention, score("general"), use_scale=True, kernel_initializer="he_normal"),
    "concat": attention(ka.ConcatAttention, score("concat")),
    "concat, units": attention(ka.ConcatAttention, score("concat"), units=A),
    "cosine": attention(ka.CosineAttention, score("cosine"), sharpness=3.0),
    "location": attention(ka.LocationAttention, sequence(location), max_length=19),
    "location, short": attention(ka.LocationAttention, sequence(location), max_length=3),
    "luong": attention(ka.LuongAttention, score("general", smooth_in_numpy, "attention"), normalizer=smooth),
    "luong, concat": attention(ka.LuongAttention, score("concat", within="attention"), score="concat"),
    "local-m": attention(ka.LocalMonotonicAttention, local("general", 1), window=1),
    "local-m, location": attention(ka.LocalMonotonicAttention, local("location", 1), score="location", window=1),
    "local-p": attention(ka.LocalPredictiveAttention, local("dot", 2, predicted), EQUAL, score="dot", window=2),
    "local-p, concat": attention(
        ka.LocalPredictiveAttention,
        local("concat", 2, predicted, oracles.sparsemax),
        score="concat",
        window=2,
        normalizer="sparsemax",
    ),
    "monotonic": attention(
        ka.BahdanauMonotonicAttention,
        sequence(partial(oracles.monotonic, chunk_size=2)),
        units=A,
        normalize=True,
        chunk_size=2,
    ),
    "monotonic, general": attention(
        ka.GeneralMonotonicAttention,
        sequence(partial(oracles.monotonic, scores=scores("general"))),
        use_scale=True,
        mode="recursive",
    ),
    "monotonic, hard": attention(
        ka.BahdanauMonotonicAttention,
        sequence(partial(oracles.monotonic, hard=True, chunk_size=3)),
        smooth=False,
        units=A,
        mode="hard",
        chunk_size=3,
    ),
    "location-sensitive": attention(
        ka.LocationSensitiveAttention, sequence(oracles.location_sensitive), units=A, filters=2, kernel_size=3
    ),
    "location-sensitive, last": attention(
        ka.LocationSensitiveAttention,
        sequence(partial(oracles.location_sensitive, cumulative=False, normalizer=oracles.sparsemax)),
        units=A,
        filters=2,
        kernel_size=3,
        cumulative=False,
        normalizer="sparsemax",
    ),
    "coverage": attention(ka.CoverageAttention, sequence(oracles.coverage), units=A),
    "coverage, fertility": attention(
        ka.CoverageAttention,
        sequence(partial(oracles.coverage, max_fertility=2.0)),
        units=A,
        max_fertility=2.0,
        use_bias=False,
        normalize=True,
    ),
    "coverage, neural": attention(
        ka.NeuralCoverageAttention, sequence(oracles.neural_coverage), units=A, coverage_units=3, use_bias=True
    ),
    "heads": attention(
        ka.MultiHeadAttention,
        sequence(oracles.heads(3, oracles.attends(scores("scaled_dot")))),
        num_heads=3,
        head_units=5,
    ),
    "heads, additive": attention(
        ka.MultiHeadAttention, sequence(oracles.heads(1, additive)), num_heads=1, score="additive"
    ),
    "heads with a state": attention(
        ka.MultiHeadAttention,
        sequence(oracles.heads(3, oracles.coverage)),
        num_heads=3,
        head_units=5,
        score="coverage",
        kernel_initializer="he_normal",
    ),
    "self-attention": encoder(
        ka.SelfAttention, lambda: {"num_heads": 3, "head_units": 5}, self_attention(3), padding=False
    ),
    "self-attention, causal": encoder(
        ka.SelfAttention, lambda: {"num_heads": 1, "causal": True}, self_attention(1, causal=True), padding=False
    ),
    "BiGRU": encoder(ka.BiGRUEncoder, lambda: {"units": H}, bidirectional(1, "paper's gru")),
    "BiGRU, deep": encoder(
        ka.BiGRUEncoder,
        lambda: {"units": H, "num_layers": 2, "reset_after": True, "dropout": 0.3, "recurrent_dropout": 0.2},
        bidirectional(2, "gru"),
        random=True,
    ),
    "encoder, backwards": encoder(
        ka.RNNEncoder,
        lambda: {"cell": gru(), "reverse": True},
        reads(lambda w: [[(oracles.cell(w, "cell"), True)]]),
    ),
    "encoder, both ways": encoder(
        ka.RNNEncoder,
        lambda: {"cell": stack(), "backward_cell": stack("backward"), "dropout": 0.3},
        reads(
            lambda w: [
                [(one, False), (other, True)]
                for one, other in zip(stack_in_numpy(w), stack_in_numpy(w, "backward"), strict=True)
            ]
        ),
        random=True,
    ),
    "pyramid": encoder(
        ka.PyramidEncoder,
        lambda: {"cell": stack(), "dropout": 0.3},
        pyramid,
        random=True,
        handed_on=lambda mask: np.array([in_pairs(row[:, None]).any(1) for row in mask]),
    ),
    "series": Row(
        ka.InputAttentionEncoder,
        lambda: {"cell": lstm(), "attention": ka.BahdanauAttention(A, name="attention")},
        ENCODER,
        oracle=of_series,
        tolerance=1e-5,
    ),
    "pooling": encoder(ka.AttentionPooling, lambda: {"units": A}, pooled, handed_on=lambda mask: [0]),
    "encoder, simple": reader(
        lambda: make_cell(keras.layers.SimpleRNNCell), lambda w: oracles.cell(w, "cell", "simple")
    ),
    "layer norm GRU": reader(
        lambda: make_cell(ka.LayerNormGRUCell, per_gate=False),
        lambda w: oracles.cell(w, "cell", "normalized gru", per_gate=False),
    ),
    "layer norm LSTM": reader(
        lambda: make_cell(ka.LayerNormLSTMCell, dropout=0.3),
        lambda w: oracles.cell(w, "cell", "normalized lstm", per_gate=True, normalize_cell=True),
        random=True,
    ),
    "layer norm LSTM, together": reader(
        lambda: make_cell(ka.LayerNormLSTMCell, per_gate=False, normalize_cell=False, output_nonlinearity=False),
        lambda w: oracles.cell(
            w, "cell", "normalized lstm", per_gate=False, normalize_cell=False, output_nonlinearity=False
        ),
    ),
    "deep transition": reader(
        lambda: ka.DeepTransitionCell([gru("a"), gru("b", use_bias=False), gru("c", reset_after=False)]),
        lambda w: oracles.deep(oracles.cell(w, "a"), oracles.cell(w, "b"), oracles.cell(w, "c", "paper's gru")),
    ),
    "residual": reader(
        lambda: ka.ResidualCells(
            [ka.DeepTransitionCell([gru("a", recurrent_dropout=0.2), gru("b")]), gru("c"), lstm("d")], first_skip=2
        ),
        lambda w: oracles.stacked(
            oracles.deep(oracles.cell(w, "a"), oracles.cell(w, "b")),
            oracles.cell(w, "c"),
            oracles.cell(w, "d", "lstm"),
            first_skip=2,
        ),
        random=True,
    ),
    "stacks": encoder(
        ka.layers.StackedEncoder,
        lambda: {
            "cells": [gru("cell_0"), gru("cell_1")],
            "backward_cells": [gru("backward_0"), gru("backward_1")],
            "order": "alternating",
            "residual": True,
        },
        two_stacks,
    ),
    "stacks, upwards": encoder(
        ka.layers.StackedEncoder,
        lambda: {
            "cells": [gru("cell_0"), lstm("cell_1")],
            "backward_cells": [gru("backward_0")],
            "order": "upwards",
            "dropout": 0.3,
        },
        one_stack_above,
        random=True,
    ),
    "decoder": decoder(
        ka.AttentionDecoder,
        lambda: {"cell": make_cell(ka.LayerNormGRUCell), "attention": "additive"},
        lambda w: {"cell": oracles.cell(w, "cell", "normalized gru", per_gate=True), "attend": attend(additive, w)},
    ),
    "decoder, stack fed": decoder(
        ka.AttentionDecoder,
        lambda: {
            "cell": stack(),
            "attention": ["general", ka.BahdanauMonotonicAttention(A, sigmoid_noise=1.0, name="monotonic")],
            "attend": "after",
            "attentional": ka.AttentionalLayer(A, name="vector"),
            "input_feeding": True,
            "dropout": 0.3,
        },
        lambda w: attentional(
            w,
            cell=oracles.stacked(*stack_in_numpy(w)),
            attend=both(attend(general, w, "attention_0"), attend(oracles.monotonic, w, "monotonic")),
            fed=np.zeros(A),
        ),
        random=True,
    ),
    "decoder, after": decoder(
        ka.AttentionDecoder,
        lambda: {
            "cell": lstm(),
            "attention": "general",
            "attend": "after",
            "attentional": ka.AttentionalLayer(A, name="vector"),
            "dropout": 0.3,
        },
        lambda w: attentional(w, cell=oracles.cell(w, "cell", "lstm"), attend=attend(general, w)),
        random=True,
    ),
    "decoder, between": decoder(
        ka.AttentionDecoder,
        lambda: {
            "cell": gru(reset_after=False, dropout=0.2),
            "attention": "location_sensitive",
            "attend": "between",
            "second_cell": ka.ContextGateCell(H, gate="source", name="second"),
        },
        lambda w: {
            "cell": oracles.cell(w, "cell", "paper's gru"),
            "attend": attend(oracles.location_sensitive, w),
            "order": "between",
            "second": oracles.cell(w, "second", "gated gru", gate="source", context_width=M),
        },
        random=True,
    ),
    "decoder, context fed": decoder(
        ka.AttentionDecoder,
        lambda: {
            "cell": gru(),
            "attention": ka.MultiHeadAttention(2, head_units=3, name="heads"),
            "attend": "after",
            "attentional": "context",
            "input_feeding": True,
            "output_attention": False,
            "cell_input": keras.layers.Dense(E, name="behind"),
        },
        lambda w: {
            "cell": oracles.cell(w, "cell"),
            "attend": mean_of_heads(attend(oracles.heads(2, oracles.attends(scores("scaled_dot"))), w, "heads")),
            "order": "after",
            "vector": lambda c, s: c,
            "fed": np.zeros(H),
            "put_out": False,
            "behind": dense(w, "behind"),
        },
        tolerance=1e-5,
    ),
    "decoder, context gate": decoder(
        ka.AttentionDecoder,
        lambda: {"cell": ka.ContextGateCell(H, name="cell"), "attention": ka.BahdanauAttention(A, name="attention")},
        lambda w: {
            "cell": oracles.cell(w, "cell", "gated gru", gate="both", context_width=M),
            "attend": attend(additive, w),
        },
    ),
    "fixed context": decoder(
        ka.FixedContextDecoder,
        lambda: {"cell": gru()},
        lambda w: {"cell": oracles.cell(w, "cell"), "attend": last_word()},
    ),
    "fixed context, projected": decoder(
        ka.FixedContextDecoder,
        lambda: {"cell": stack(), "projection": keras.layers.Dense(A, name="projection")},
        lambda w: {"cell": oracles.stacked(*stack_in_numpy(w)), "attend": last_word(dense(w, "projection"))},
        tolerance=1e-5,
    ),
    "decoder stack": Row(
        ka.DecoderStack,
        lambda: {
            "decoder": ka.AttentionDecoder(ka.ContextGateCell(H, gate="target", name="cell"), "additive"),
            "cells": [gru("upper_0"), gru("upper_1")],
            "read_context": True,
            "first_skip": 1,
            "dropout": 0.3,
        },
        DECODER,
        ("values",),
        "decoder",
        layers_above,
        random=True,
    ),
    "hard alignment": hard_alignment(),
    "hard alignment, order 1": hard_alignment(order=1, monotonic=False, window=2),
    "pointer": Row(ka.PointerGenerator, dict, POINTER, ("alignment", "token_ids"), None, pointer, padding=False),
    "deep output": each(ka.DeepOutput, deep_output("maxout"), units=A),
    "deep output, tanh": each(ka.DeepOutput, deep_output("tanh"), units=A, activation="tanh", use_bias=False),
    "layer norm output": each(ka.layers.LayerNormOutput, normalized_output, tolerance=1e-5, units=A, activation="tanh"),
    "concatenated output": each(ka.layers.ConcatenatedOutput, lambda w, s, y, c: [np.concatenate([s, c], -1)]),
    "attentional": each(
        ka.AttentionalLayer,
        lambda w, x: [np.tanh(x @ w["kernel"] + w["bias"])],
        {"inputs": (T, E)},
        units=A,
        use_bias=True,
    ),
    "output bias": each(ka.layers.OutputBias, lambda w, x: [x + w["bias"]], {"inputs": (T, E)}),
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
    "doubly stochastic": Row(
        ka.DoublyStochasticLoss, lambda: {"weight": 0.5}, {"inputs": (T, E), "alignments": (T, S)}
    ),
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
