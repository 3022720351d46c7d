"""RNNEncoder and FixedContextDecoder against cells written out row by row, and on the decoder's contract."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attn import FixedContextDecoder, RNNEncoder
from tests.layers.test_decoder import OwnCell
from tests.oracles import gru_step, lstm_step

pytestmark = pytest.mark.by_turns

B, S, T, E, H, M, C = 3, 5, 2, 7, 11, 13, 17
MASK = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]], "bool")  # an empty row too
CELLS = {
    "gru": lambda: layers.GRUCell(H, reset_after=False),
    "lstm": lambda: layers.LSTMCell(H),
    "simple": lambda: layers.SimpleRNNCell(H),
    "stacked": lambda: layers.StackedRNNCells([layers.LSTMCell(4), layers.GRUCell(6, reset_after=False)]),
}


def randomised(layer, *shapes):
    layer.build(*shapes)
    for i, weight in enumerate(layer.trainable_weights):
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i))
    return layer


def weights_of(cell):
    return [ops.convert_to_numpy(w).astype("float64") for w in (cell.kernel, cell.recurrent_kernel, cell.bias)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["gru", "lstm", "stacked"])
def test_reads_word_by_word_in_either_direction(rng, name, reverse):
    inputs = rng.normal(size=(B, S, E)).astype("float32")
    encoder = randomised(RNNEncoder(CELLS[name](), reverse=reverse), (B, S, E))
    values, states, final = encoder(inputs, mask=MASK)
    cells = getattr(encoder.cell, "cells", [encoder.cell])
    states = states if name == "stacked" else [states]
    sequences = [[(j, row[j]) for j in np.flatnonzero(real)] for row, real in zip(inputs, MASK, strict=True)]
    for cell, state in zip(cells, states, strict=True):
        w, finals, expected = weights_of(cell), [], np.zeros((B, S, cell.units))
        for b, sequence in enumerate(sequences):
            h = c = np.zeros(cell.units)
            for j, x in reversed(sequence) if reverse else sequence:
                h, c = lstm_step(x, h, c, *w) if len(state) == 2 else (gru_step(x, h, *w, False), c)
                expected[b, j] = h
            sequences[b] = [(j, expected[b, j]) for j, _ in sequence]
            finals.append([h, c])
        for part, oracle in zip(state, zip(*finals, strict=True), strict=False):
            np.testing.assert_allclose(ops.convert_to_numpy(part), oracle, atol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(values), expected, atol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(final), [h for h, _ in finals], atol=1e-5)


def test_reading_backwards_is_reading_the_reversed_sentence(rng):
    inputs = rng.normal(size=(B, S, E)).astype("float32")
    backwards = randomised(RNNEncoder(CELLS["stacked"](), reverse=True), (B, S, E))
    forwards = randomised(RNNEncoder(CELLS["stacked"]()), (B, S, E))
    got, expected = backwards(inputs), forwards(np.ascontiguousarray(inputs[:, ::-1]))
    np.testing.assert_allclose(ops.convert_to_numpy(got[0])[:, ::-1], ops.convert_to_numpy(expected[0]), atol=1e-6)
    np.testing.assert_allclose(ops.convert_to_numpy(got[2]), ops.convert_to_numpy(expected[2]), atol=1e-6)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_two_directions_are_two_encoders_side_by_side(rng, name):
    """Each layer both ways: what the next one reads, and every last state, are the two put side by side."""
    stacks = [layers.StackedRNNCells([CELLS[name](), CELLS[name]()]) for _ in range(2)]
    inputs = rng.normal(size=(B, S, E)).astype("float32")
    both = randomised(RNNEncoder(stacks[0], backward_cell=stacks[1]), (B, S, E))
    values, states, final = both(inputs, mask=MASK)
    expected = inputs
    for i in range(2):
        pair = [
            RNNEncoder(stack.cells[i], reverse=reverse)(expected, mask=MASK)
            for stack, reverse in zip(stacks, (False, True), strict=True)
        ]
        expected = ops.concatenate([outputs for outputs, _, _ in pair], axis=-1)
        for got, forward, backward in zip(states[i], *[state for _, state, _ in pair], strict=True):
            np.testing.assert_allclose(*map(ops.convert_to_numpy, (got[:, :H], forward)), atol=1e-6)
            np.testing.assert_allclose(*map(ops.convert_to_numpy, (got[:, H:], backward)), atol=1e-6)
    np.testing.assert_allclose(*map(ops.convert_to_numpy, (values, expected)), atol=1e-6)
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (final, states[1][0])))


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_fixed_context_is_read_at_every_step(rng, name, projected):
    """Cho 2014, A.1.2: s_i = cell([y_{i-1}; c], s_{i-1}), written out, and one step at a time."""
    inputs, values = (rng.normal(size=shape).astype("float32") for shape in ((B, T, E), (B, S, M)))
    projection = layers.Dense(C, "tanh") if projected else None
    decoder = randomised(FixedContextDecoder(CELLS[name](), projection=projection), (B, T, E), (B, S, M))
    outputs, contexts, alignments = (ops.convert_to_numpy(x) for x in decoder(inputs, values, mask=MASK))
    lasts = [real.nonzero()[0][-1:] for real in MASK]
    memory = decoder.memory(ops.convert_to_tensor(values), ops.convert_to_tensor(MASK))
    state = decoder.initial_state(ops.convert_to_tensor(values))
    steps = []
    for t in range(T):
        *step, state = decoder.step(ops.convert_to_tensor(inputs[:, t]), memory, state)
        steps.append([ops.convert_to_numpy(x) for x in step])
    for got, column in zip((outputs, contexts, alignments), zip(*steps, strict=True), strict=True):
        np.testing.assert_allclose(got, np.stack(column, 1), atol=1e-6)
    for b, last in enumerate(lasts):
        c = values[b, last].sum(0).astype("float64")
        if projected:
            kernel, bias = (ops.convert_to_numpy(w) for w in projection.weights)
            c = np.tanh(c @ kernel + bias)
        h = d = np.zeros(H)
        for t in range(T):
            x, w = np.concatenate([inputs[b, t], c]), weights_of(decoder.cell)
            h, d = lstm_step(x, h, d, *w) if name == "lstm" else (gru_step(x, h, *w, False), d)
            np.testing.assert_allclose(outputs[b, t], h, atol=1e-5)
            np.testing.assert_allclose(contexts[b, t], c, atol=1e-6)
            np.testing.assert_array_equal(alignments[b, t], np.isin(np.arange(S), last))


def test_a_config_without_a_second_cell_reads_one_way():
    config = RNNEncoder(layers.LSTMCell(H), reverse=True).get_config()
    assert config.pop("backward_cell") is None
    assert RNNEncoder.from_config(config).backward_cell is None


def test_mistakes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="cell without dropout"):
        RNNEncoder(OwnCell())
    with pytest.raises(ValueError, match="cell without dropout"):
        RNNEncoder(layers.LSTMCell(H), backward_cell=OwnCell())
    with pytest.raises(ValueError, match=r"as many layers and states as `cell`. Received: \[1\] and \[2\]"):
        RNNEncoder(layers.LSTMCell(H), backward_cell=layers.GRUCell(H))
    with pytest.raises(ValueError, match="reads backwards already"):
        RNNEncoder(layers.LSTMCell(H), backward_cell=layers.LSTMCell(H), reverse=True)
    with pytest.raises(ValueError, match="Expected a Keras RNN cell"):
        FixedContextDecoder(layers.Dense(H))
