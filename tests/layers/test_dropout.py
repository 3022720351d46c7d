"""Dropout: where it stands, and that a cell's masks are Keras' and the same at all steps."""

import inspect

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka
from keras_attn.layers import StackedEncoder
from keras_attn.layers.recurrence import Masks
from tests.arrays import numpy_of, same

B, T, S, H, M, A = 2, 3, 5, 7, 11, 13


def gru(**options):
    return layers.GRUCell(H, **options)


@pytest.fixture
def arrays(rng):
    return [rng.normal(size=shape).astype("float32") for shape in ((B, T, H), (B, S, M))]


@pytest.fixture
def doubling(monkeypatch):
    """Dropout doubles what it gets."""
    monkeypatch.setattr(keras.random, "dropout", lambda x, rate, seed=None: 2 * x)
    monkeypatch.setattr(layers.Dropout, "call", lambda self, x, training=False: 2 * x if training and self.rate else x)


def read(cell, x, reverse=False):
    return ka.RNNEncoder(cell, reverse=reverse)(x)[0]


def test_a_stack_drops_outputs_of_all_layers_but_the_last_before_the_skip(arrays, doubling):
    x, _ = arrays
    stack = ka.ResidualCells([gru(), gru(), gru()], first_skip=1)
    first = 2 * read(stack.cells[0], x)
    second = 2 * read(stack.cells[1], first) + first
    expected = read(stack.cells[2], second) + second
    same(ka.RNNEncoder(stack, dropout=0.5)(x, training=True)[0], expected)


def test_layers_above_a_decoder_drop_its_outputs_and_their_own_but_the_last_ones(arrays, doubling):
    below = ka.AttentionDecoder(gru(), ka.BahdanauAttention(A))
    stack = ka.DecoderStack(below, [gru(), gru()], dropout=0.5)
    found = stack(*arrays, training=True)[0]
    first = 2 * below(*arrays)[0]
    second = 2 * read(stack.cells[0], first) + first
    same(found, read(stack.cells[1], second) + second)


ATTENTIONS = {
    "additive": lambda: ka.BahdanauAttention(A, dropout=0.5),
    "local": lambda: ka.LocalPredictiveAttention("general", dropout=0.5),
    "coverage": lambda: ka.CoverageAttention(A, dropout=0.5),
    "monotonic": lambda: ka.BahdanauMonotonicAttention(A, dropout=0.5),
    "heads": lambda: ka.MultiHeadAttention(2, head_units=3, dropout=0.5),
    "heads, coverage": lambda: ka.MultiHeadAttention(2, head_units=3, score=ka.CoverageAttention(A, dropout=0.5)),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_an_attention_drops_weights_of_its_context_and_returns_the_alignment_without(name, arrays, doubling):
    """By itself, for all steps and for one, and in a decoder, whose loop has numbers drawn beforehand."""
    attention = ATTENTIONS[name]()
    for query in (arrays[0], arrays[0][:, 0]):
        still, *others = numpy_of(attention(query, arrays[1]))
        found, *same_others = numpy_of(attention(query, arrays[1], training=True))
        same(found, 2 * still)
        same(same_others, others, atol=1e-6)
    for options in ({"attend": "after"}, {"attend": "before"}):
        decoder = ka.AttentionDecoder(gru(), ATTENTIONS[name](), **options)
        first = arrays[0][:, :1], arrays[1]
        still, found = (numpy_of(decoder(*first, training=training)) for training in (False, True))
        same(found[1], 2 * still[1])
        same(found[2], still[2], atol=1e-6)


@pytest.mark.parametrize("order", ["parallel", "upwards"])
def test_two_stacks_drop_outputs_of_all_layers_but_the_last(order, arrays, doubling):
    up, (x, _) = order == "upwards", arrays
    cells = [gru() for _ in range(3)], [gru() for _ in range(1 if up else 3)]
    found = StackedEncoder(*cells, order=order, residual=True, dropout=0.5)(x, training=True)[0]
    sides = []
    for row, reverse in zip(cells, (False, True), strict=True):
        side = 2 * read(row[0], x, reverse)
        for cell in [] if up else row[1:]:
            side = side + (1 if cell is row[-1] else 2) * read(cell, side, reverse)
        sides.append(side)
    expected = ops.concatenate(sides, axis=-1)
    if up:
        expected = 2 * read(cells[0][1], expected)
        expected = expected + read(cells[0][2], expected)
    same(found, expected)


@pytest.mark.parametrize("feeding", [True, False])
def test_an_attentional_vector_is_dropped_where_it_is_put_out_and_fed(feeding, arrays, doubling):
    """In the loop, and outside of it."""
    vector = ka.AttentionalLayer(A)
    options = {"attend": "after", "attentional": vector, "input_feeding": feeding}
    layer = decoder(gru(), **options, dropout=0.5)
    found = layer(*arrays, training=True)
    vector.activation = lambda x: 2 * ops.tanh(x)
    same(found, layer(*arrays))


def decoder(cell, attention="general", **options):
    return ka.AttentionDecoder(cell, attention, **options)


# Layers with one source of random numbers each.
SOURCES = {
    "an encoder's cell": lambda: ka.RNNEncoder(gru(recurrent_dropout=0.3)),
    "its backward cell": lambda: ka.RNNEncoder(gru(), backward_cell=layers.SimpleRNNCell(H, recurrent_dropout=0.3)),
    "a cell of two stacks": lambda: StackedEncoder([gru(dropout=0.3)], [gru()]),
    "a layer of a stack": lambda: ka.RNNEncoder(layers.StackedRNNCells([gru(), layers.LSTMCell(H, dropout=0.3)])),
    "a normalised cell in Keras' loop": lambda: layers.RNN(ka.LayerNormLSTMCell(H, recurrent_dropout=0.3)),
    "a decoder's cell": lambda: decoder(gru(dropout=0.3)),
    "the cell after": lambda: decoder(gru(), attend="between", second_cell=gru(recurrent_dropout=0.5)),
    "the cell outside of the loop": lambda: decoder(gru(dropout=0.3), attend="after"),
    "the cell of a fixed context": lambda: ka.FixedContextDecoder(gru(dropout=0.3)),
    "the cell of several series": lambda: ka.InputAttentionEncoder(gru(dropout=0.3), ka.BahdanauAttention(A)),
    "a cell above a decoder": lambda: ka.DecoderStack(decoder(gru()), [gru(recurrent_dropout=0.3)]),
    "the noise of an attention": lambda: decoder(gru(), ka.GeneralMonotonicAttention(sigmoid_noise=2.0)),
    "the noise in heads": lambda: decoder(
        gru(), ka.MultiHeadAttention(1, score=ka.GeneralMonotonicAttention(sigmoid_noise=2.0))
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_each_source_of_random_numbers_draws_in_training_alone(name, arrays):
    layer, (x, values) = SOURCES[name](), arrays
    given = (x, values) if "values" in inspect.signature(layer.call).parameters else (x,)
    still, again, *drawn = (numpy_of(layer(*given, training=mode))[0] for mode in (False, False, True, True))
    np.testing.assert_array_equal(still, again)
    assert min(np.abs(drawn[0] - drawn[1]).max(), np.abs(drawn[0] - still).max()) > 1e-4


@pytest.mark.parametrize("cell", ["inputs", "states", "own"])
def test_masks_of_a_cell_over_several_series_are_those_of_the_batch(cell, rng, monkeypatch):
    """Batches of other sizes in one model, compiled on each backend."""
    cells = {
        "inputs": lambda: layers.LSTMCell(H, dropout=0.5),
        "states": lambda: gru(recurrent_dropout=0.5),
        "own": lambda: ka.DeepTransitionCell([gru(dropout=0.5), gru()]),
    }
    encoder = ka.InputAttentionEncoder(cells[cell](), ka.BahdanauAttention(A, dropout=0.5))  # that of the context
    inputs = keras.Input((T, S))
    model = keras.Model(inputs, layers.Dense(1)(encoder(inputs)[0]))
    model.compile("sgd", "mse")
    x, y = (rng.normal(size=shape).astype("float32") for shape in ((6, T, S), (6, T, 1)))
    losses = model.fit(x, y, batch_size=4, epochs=2, verbose=0).history["loss"]  # of 4 rows and 2
    assert np.isfinite(losses).all()
    first, second = (numpy_of(encoder(x[:n], training=True))[0] for n in (4, 2))
    assert np.abs(first[:2] - second).max() > 1e-4
    monkeypatch.setattr(keras.random, "dropout", lambda x, rate, seed=None: x)
    same(encoder(x, training=True)[0], encoder(x)[0])


KERAS_CELLS = {
    "gru": lambda **rates: gru(implementation=1, **rates),
    "gru, reset before": lambda **rates: gru(implementation=1, reset_after=False, **rates),
    "lstm": lambda **rates: layers.LSTMCell(H, implementation=1, **rates),
    "simple": lambda **rates: layers.SimpleRNNCell(H, **rates),
}


@pytest.mark.parametrize("name", KERAS_CELLS)
def test_a_cell_in_a_loop_is_keras_own_with_the_same_masks_at_all_steps(name, rng, arrays, monkeypatch):
    """Each gate has a mask of the state of its own; the inputs, of which the loop knows a part, have one."""
    cell, (x, values) = KERAS_CELLS[name](dropout=0.5, recurrent_dropout=0.5), arrays
    gates = 1 if name == "simple" else 4 if name == "lstm" else 3
    inputs, *recurrent = (2.0 * rng.integers(0, 2, (B, n)).astype("float32") for n in (H + M, *[H] * gates))
    masks = keras.tree.map_structure(ops.convert_to_tensor, Masks(inputs, recurrent))
    monkeypatch.setattr("keras_attn.layers.decoder.draw_masks", lambda *_: masks)
    outputs, contexts, _ = decoder(cell, attend="before")(x, values, training=True)
    cell._dropout_mask = masks.inputs if gates == 1 else [masks.inputs] * gates
    cell._recurrent_dropout_mask = masks.recurrent[0] if gates == 1 else masks.recurrent
    states = cell.get_initial_state(batch_size=B)
    for t in range(T):
        output, states = cell(ops.concatenate([x[:, t], contexts[:, t]], axis=-1), states, training=True)
        same(outputs[:, t], output)
