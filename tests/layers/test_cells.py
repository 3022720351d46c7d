"""Cells with layer normalisation, several transitions and skips: NumPy, Keras' own loop, encoders and decoders."""

import re

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka
from tests.oracles import gru_step, lstm_step, normalized_gru_step, normalized_lstm_step

pytestmark = pytest.mark.by_turns

B, T, S, E, H, M, A = 2, 3, 5, 7, 11, 13, 17


def gru(**options):
    return layers.GRUCell(H, **options)


CELLS = {
    "gru": lambda **options: ka.LayerNormGRUCell(H, **options),
    "gru, together": lambda **options: ka.LayerNormGRUCell(H, per_gate=False, **options),
    "lstm": lambda **options: ka.LayerNormLSTMCell(H, **options),
    "lstm, linear": lambda **options: ka.LayerNormLSTMCell(H, output_nonlinearity=False, **options),
    "lstm, together": lambda **options: ka.LayerNormLSTMCell(H, per_gate=False, normalize_cell=False, **options),
    "deep": lambda **options: ka.DeepTransitionCell(
        [gru(**options), gru(**options), gru(reset_after=False), gru(use_bias=False)]
    ),
    "deep, normalised": lambda **options: ka.DeepTransitionCell(
        [layers.LSTMCell(H), ka.LayerNormLSTMCell(H, **options)]
    ),
    "residual": lambda **options: ka.ResidualCells([gru(**options), gru(), gru(**options)], first_skip=2),
    "residual, deep": lambda **options: ka.ResidualCells(
        [ka.DeepTransitionCell([ka.LayerNormGRUCell(H), gru(**options)]), ka.LayerNormLSTMCell(H)]
    ),
}


def make(name, rng, **options):
    """A built cell with random weights, biases and gains too."""
    cell = CELLS[name](**options)
    cell.build((B, E))
    for weight in cell.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.7))
    return cell


def weights_of(cell):
    return {w.name: ops.convert_to_numpy(w).astype("float64") for w in cell.weights if "seed" not in w.name}


def rows(step, x, *states):
    """A step of one row for all rows of a batch, the results side by side."""
    results = [step(*row) for row in zip(x, *states, strict=True)]
    return [np.stack(parts) for parts in zip(*results, strict=True)]


def oracle(name, cell, x, states):
    """One step in NumPy: the output and the states, in lists as the cell's."""
    if name.startswith("residual"):
        new = []
        for i, (layer, state) in enumerate(zip(cell.cells, states, strict=True)):
            output, state = oracle(kind_of(layer), layer, x, state)
            x = output + x if i >= cell.first_skip else output
            new.append(state)
        return x, new
    if name.startswith("deep"):
        for i, part in enumerate(cell.transitions):
            output, states = oracle(kind_of(part), part, x[:, : 0 if i else None], states)
        return output, states
    w = weights_of(cell)
    if name == "normalised gru":
        w.setdefault("inputs_gain", np.ones(3 * H))
        states = rows(lambda x, h: [normalized_gru_step(x, h, w, cell.per_gate)], x, *states)
    elif name == "normalised lstm":
        w.setdefault("inputs_gain", np.ones(4 * H))
        step = (w, cell.per_gate, cell.normalize_cell, cell.output_nonlinearity)
        states = rows(lambda x, h, c: normalized_lstm_step(x, h, c, *step), x, *states)
    elif name == "lstm":
        parts = [w[key] for key in ("kernel", "recurrent_kernel", "bias")]
        states = rows(lambda x, h, c: lstm_step(x, h, c, *parts), x, *states)
    else:
        w.setdefault("bias", np.zeros((2, 3 * H)))
        parts = [w[key] for key in ("kernel", "recurrent_kernel", "bias")]
        states = rows(lambda x, h: [gru_step(x, h, *parts, cell.reset_after)], x, *states)
    return states[0], states


def kind_of(cell):
    kinds = {
        ka.ResidualCells: "residual",
        ka.DeepTransitionCell: "deep",
        ka.LayerNormGRUCell: "normalised gru",
        ka.LayerNormLSTMCell: "normalised lstm",
        layers.LSTMCell: "lstm",
        layers.GRUCell: "gru",
    }
    return next(name for kind, name in kinds.items() if isinstance(cell, kind))


def nested(state):
    return [nested(part) for part in state] if isinstance(state, (list, tuple)) else ops.convert_to_numpy(state)


def first_states(cell):
    states = cell.get_initial_state(batch_size=B)
    return nested(states if isinstance(states, (list, tuple)) else [states])


def numpy_of(tensors):
    return [ops.convert_to_numpy(ops.cast(x, "float32")) for x in keras.tree.flatten(tensors)]


@pytest.mark.parametrize("name", [name for name in CELLS if name not in ("deep, normalised", "residual, deep")])
def test_an_encoder_follows_the_equations_and_keras_own_loop(rng, name):
    cell = make(name, rng)
    x = rng.normal(size=(B, S, E)).astype("float32")
    values, states, _ = ka.RNNEncoder(cell)(x)
    expected, state = [], first_states(cell)
    for j in range(S):
        output, state = oracle(kind_of(cell), cell, x[:, j], state)
        expected.append(output)
    np.testing.assert_allclose(ops.convert_to_numpy(values), np.stack(expected, 1), atol=1e-5)
    for got, wanted in zip(numpy_of(states), keras.tree.flatten(state), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)
    theirs = layers.RNN(cell, return_sequences=True)(x)
    np.testing.assert_allclose(ops.convert_to_numpy(theirs), ops.convert_to_numpy(values), atol=1e-5)


ORDERS = {"before": {}, "between": {"attend": "between"}, "after": {"attend": "after", "input_feeding": True}}


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("gru", "before"),
        ("lstm", "between"),
        ("deep, normalised", "before"),
        ("residual, deep", "after"),
    ],
)
def test_decoder_steps_are_the_whole_sequence_and_the_cells_own_steps(rng, name, order):
    """With the part of the inputs that is only known in the loop: the norm is that of the sum."""
    decoder = ka.AttentionDecoder(
        CELLS[name](),
        ka.BahdanauAttention(A),
        **ORDERS[order],
        **({"second_cell": CELLS[name]()} if order == "between" else {}),
    )
    y, h = (rng.normal(size=shape).astype("float32") for shape in ((B, T, E), (B, S, M)))
    mask = np.array([[True] * S, [True, True, False, True, False]])
    decoder(y, h, mask=mask)
    for weight in decoder.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.7))
    outputs, contexts, alignments = numpy_of(decoder(y, h, mask=mask))
    memory, state = decoder.memory(ops.convert_to_tensor(h), ops.convert_to_tensor(mask)), decoder.initial_state(h)
    own, fed = first_states(decoder.cell), np.zeros((B, H))
    for t in range(T):
        output, context, alignment, state = decoder.step(ops.convert_to_tensor(y[:, t]), memory, state)
        for got, whole in zip((output, context, alignment), (outputs, contexts, alignments), strict=True):
            np.testing.assert_allclose(ops.convert_to_numpy(got), whole[:, t], atol=1e-5)
        added = {"before": [contexts[:, t]], "between": [], "after": [fed]}[order]
        fed, own = oracle(kind_of(decoder.cell), decoder.cell, np.concatenate([y[:, t], *added], -1), own)
        if order == "between":
            fed, own = oracle(kind_of(decoder.second_cell), decoder.second_cell, contexts[:, t], own)
        np.testing.assert_allclose(outputs[:, t], fed, atol=2e-5)


@pytest.mark.parametrize("name", ["lstm, together", "residual, deep"])
def test_dropout_has_one_mask_for_all_steps(rng, name):
    x = np.repeat(rng.normal(size=(B, 1, E)).astype("float32"), S, axis=1)
    cell = make(name, rng, recurrent_dropout=0.5, dropout=0.0 if "deep" in name else 0.3)
    encoder = ka.RNNEncoder(cell)
    still, again, *drawn = (numpy_of(encoder(x, training=flag)[0])[0] for flag in (False, False, True, True))
    np.testing.assert_array_equal(still, again)
    assert min(np.abs(drawn[0] - drawn[1]).max(), np.abs(drawn[0] - still).max()) > 1e-3
    if "deep" not in name:
        theirs = layers.RNN(cell, return_sequences=True)
        assert np.abs(numpy_of(theirs(x, training=True))[0] - still).max() > 1e-3


@pytest.mark.parametrize("first_skip", [0, 1])
def test_layers_above_a_decoder_read_its_outputs_and_contexts(rng, first_skip):
    decoder = ka.AttentionDecoder(gru(), ka.BahdanauAttention(A), attend="between", second_cell=gru())
    stack = ka.DecoderStack(
        decoder, [gru(recurrent_dropout=0.4), CELLS["deep, normalised"]()], read_context=True, first_skip=first_skip
    )
    y, h = (rng.normal(size=shape).astype("float32") for shape in ((B, T, E), (B, S, M)))
    mask = np.array([[True] * S, [True, True, False, True, False]])
    s_0 = rng.normal(size=(B, H)).astype("float32")
    given = {"mask": mask, "cell_state": [ops.convert_to_tensor(s_0)]}
    outputs, contexts, alignments = numpy_of(stack(y, h, **given))
    below, *others = numpy_of(decoder(y, h, **given))
    for one, other in zip((contexts, alignments), others, strict=True):
        np.testing.assert_array_equal(one, other)
    memory = stack.memory(ops.convert_to_tensor(h), ops.convert_to_tensor(mask))
    state, states = stack.initial_state(h, given["cell_state"]), [[s_0], [s_0, s_0]]
    for t in range(T):
        output, _, _, state = stack.step(ops.convert_to_tensor(y[:, t]), memory, state)
        np.testing.assert_allclose(ops.convert_to_numpy(output), outputs[:, t], atol=1e-5)
        x = below[:, t]
        for i, cell in enumerate(stack.cells):
            above, states[i] = oracle(kind_of(cell), cell, np.concatenate([x, contexts[:, t]], -1), states[i])
            x = above + x if i >= first_skip else above
        np.testing.assert_allclose(outputs[:, t], x, atol=1e-5)
    drawn = [numpy_of(stack(y, h, training=True, **given))[0] for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-4
    with pytest.raises(ValueError, match=r"as wide as what they read, 11\. Received: 3 units in narrow"):
        ka.DecoderStack(decoder, [layers.GRUCell(3, name="narrow")])(y, h)
    with pytest.raises(ValueError, match=r"Expected arguments among: decoder, cells, .*Received: skip"):
        ka.DecoderStack(decoder, [], skip=True)


def test_dropout_of_stacks_is_before_the_skip_and_not_of_the_last_layer(rng, monkeypatch):
    """With a "dropout" that doubles what it gets in training, in the place of Keras'."""

    def doubling(layer):
        monkeypatch.setattr(layer.dropout_layer, "call", lambda x, training: 2 * x if training else x)
        return layer

    def read(cell, x):
        return numpy_of(ka.RNNEncoder(cell)(x))[0]

    x, h = (rng.normal(size=shape).astype("float32") for shape in ((B, T, H), (B, S, M)))
    stack = ka.ResidualCells([gru(), gru(), gru()], first_skip=1)
    values = numpy_of(doubling(ka.RNNEncoder(stack, dropout=0.5))(x, training=True)[0])[0]
    first = 2 * read(stack.cells[0], x)
    second = 2 * read(stack.cells[1], first) + first
    np.testing.assert_allclose(values, read(stack.cells[2], second) + second, atol=1e-5)

    decoder = ka.AttentionDecoder(gru(), ka.BahdanauAttention(A))
    above = doubling(ka.DecoderStack(decoder, [gru(), gru()], dropout=0.5))
    outputs = numpy_of(above(x, h, training=True)[0])[0]
    first = 2 * numpy_of(decoder(x, h)[0])[0]
    second = 2 * read(above.cells[0], first) + first
    np.testing.assert_allclose(outputs, read(above.cells[1], second) + second, atol=1e-5)


@pytest.mark.parametrize("name", CELLS)
def test_the_config_makes_the_same_cell(name):
    cell = CELLS[name](recurrent_dropout=0.25)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(cell))
    assert type(again) is type(cell)
    assert again.get_config() == cell.get_config()
    with pytest.raises(ValueError, match=r"Expected arguments among: .*dtype.* Received: rate") as error:
        type(cell)([gru()] if kind_of(cell) in ("deep", "residual") else H, rate=0.5)
    if kind_of(cell).startswith("normalised"):
        valid = re.search("among: (.*)[.] Received", str(error.value))[1].split(", ")
        assert {"units", "per_gate", "epsilon", "recurrent_dropout", "use_bias"} <= {*valid}


def test_mistakes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="Expected `reset_after=True`"):
        ka.LayerNormGRUCell(H, reset_after=False)
    with pytest.raises(ValueError, match=rf"states of the same sizes. Received: states of \[\[{H}\], \[{H}, {H}\]\]"):
        ka.DeepTransitionCell([gru(), layers.LSTMCell(H)])
    with pytest.raises(ValueError, match=r"states of the same sizes. Received: states of \[\]"):
        ka.DeepTransitionCell([])
    with pytest.raises(ValueError, match="Expected transitions to be Keras' GRUCell, LSTMCell or SimpleRNNCell"):
        ka.DeepTransitionCell([gru(), layers.StackedRNNCells([gru()])])
    deep = ka.DeepTransitionCell([gru(dropout=0.1), gru(use_bias=False)])
    with pytest.raises(ValueError, match="Expected a layer of this package, such as `RNNEncoder`, to draw"):
        layers.RNN(deep)(np.ones((B, S, E), "float32"), training=True)
    with pytest.raises(ValueError, match=r"one width .* Received: first_skip=1 and layers of \[11, 3\] units"):
        ka.ResidualCells([gru(), layers.GRUCell(3)])


class Halved(layers.GRUCell):
    """A user's cell: another output and state than its parent's."""

    def call(self, inputs, states, training=False):
        h, (state,) = super().call(inputs, states, training=training)
        return h / 2, [state / 2]


class HalvedNormalized(ka.LayerNormGRUCell):
    def call(self, inputs, states, training=False):
        h, (state,) = super().call(inputs, states, training=training)
        return h / 2, [state / 2]


class Plain(layers.GRUCell):
    """Its parent's equations."""


@pytest.mark.parametrize("kind", [Halved, HalvedNormalized, Plain])
def test_a_subclass_with_its_own_call_runs_by_it(rng, kind):
    def same(found, expected):
        np.testing.assert_allclose(ops.convert_to_numpy(found), ops.convert_to_numpy(expected), atol=1e-6)

    x = rng.normal(size=(B, S, E)).astype("float32")
    cell = layers.StackedRNNCells([kind(H), kind(H)])
    values, _, last = ka.RNNEncoder(cell)(x)
    expected = layers.RNN(cell, return_sequences=True)(x)
    same(values, expected)
    same(last, expected[:, -1])
    decoder = ka.AttentionDecoder(kind(H), "general")
    values, y = rng.normal(size=(B, S, M)).astype("float32"), rng.normal(size=(B, T, E)).astype("float32")
    outputs, contexts, _ = decoder(y, values)
    (state,) = decoder.cell.get_initial_state(batch_size=B)
    for i in range(T):
        read = ops.concatenate([ops.convert_to_tensor(y[:, i]), contexts[:, i]], axis=-1)
        output, (state,) = decoder.cell(read, [state])
        same(outputs[:, i], output)


def test_an_own_call_is_refused_where_it_cannot_be_kept():
    class Stack(layers.StackedRNNCells):
        def call(self, inputs, states, training=False):
            return super().call(inputs, states, training=training)

    with pytest.raises(ValueError, match=r"which run layer by layer. Received: Stack, whose `call` is its own"):
        ka.RNNEncoder(layers.StackedRNNCells([Stack([gru()])]))
    with pytest.raises(ValueError, match=r"Expected a cell without dropout of its own, .* a Halved with dropout"):
        ka.RNNEncoder(Halved(H, dropout=0.1))
    with pytest.raises(ValueError, match="Expected transitions to be Keras' GRUCell, LSTMCell or SimpleRNNCell"):
        ka.DeepTransitionCell([Halved(H)])
