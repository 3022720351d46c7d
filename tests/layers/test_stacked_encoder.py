"""Two stacks of layers, and the layers that a deep translator takes besides; Marian's recordings test them, too."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.layers import StackedEncoder
from tests.oracles import gru_step

pytestmark = pytest.mark.by_turns

B, S, E, H = 2, 5, 3, 4


def cells(count):
    return [keras.layers.GRUCell(H) for _ in range(count)]


def weights_of(cell):
    return [ops.convert_to_numpy(w).astype("float64") for w in cell.weights]


def layer(cell, x, backwards):
    h, outputs = np.zeros(H), np.zeros((len(x), H))
    for j in range(len(x))[:: -1 if backwards else 1]:
        outputs[j] = h = gru_step(x[j], h, *weights_of(cell), True)
    return outputs


def stack(cells, x, directions, residual):
    for i, (cell, backwards) in enumerate(zip(cells, directions, strict=True)):
        x = layer(cell, x, backwards) + (x if residual and i else 0)
    return x


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("order", ["parallel", "alternating", "upwards"])
def test_each_stack_reads_its_own_layers(order, residual, rng):
    up = order == "upwards"
    encoder = StackedEncoder(cells(3), cells(1 if up else 3), order=order, residual=residual)
    inputs = rng.normal(size=(B, S, E)).astype("float32")
    mask = np.array([[True] * S, [True, True, True, False, False]])
    values, states, final = encoder(inputs, mask=mask)
    turns = [False, order == "alternating", False]
    for row, real, found in zip(inputs, mask.sum(1), ops.convert_to_numpy(values), strict=True):
        words = row[:real].astype("float64")
        if up:
            both = [stack(c[:1], words, [b], residual) for c, b in ((encoder.cells, 0), (encoder.backward_cells, 1))]
            expected = stack(encoder.cells[1:], np.concatenate(both, -1), [False, False], residual)
        else:
            both = [(encoder.cells, turns), (encoder.backward_cells, [not turn for turn in turns])]
            expected = np.concatenate([stack(c, words, t, residual) for c, t in both], -1)
        np.testing.assert_allclose(found[:real], expected, atol=1e-5)
        np.testing.assert_array_equal(found[real:], 0)
    assert len(states) == (4 if up else 6)
    np.testing.assert_array_equal(ops.convert_to_numpy(final), ops.convert_to_numpy(states[2][0]))


@pytest.mark.parametrize("order", ["parallel", "upwards"])
def test_dropout_is_of_every_layers_outputs_but_the_last_before_the_skip(order, rng, monkeypatch):
    """With a "dropout" that doubles what it gets in training, in the place of Keras'."""
    up = order == "upwards"
    encoder = StackedEncoder(cells(3), cells(1 if up else 3), order=order, residual=True, dropout=0.5)
    monkeypatch.setattr(encoder.dropout_layer, "call", lambda x, training: 2 * x if training else x)
    inputs = rng.normal(size=(1, S, E)).astype("float32")
    expected = []
    for backwards, row in enumerate([encoder.cells, encoder.backward_cells]):
        encoder(inputs)
        x = 2 * layer(row[0], inputs[0].astype("float64"), backwards)
        for cell in [] if up else row[1:]:
            x = x + (1 if cell is row[-1] else 2) * layer(cell, x, backwards)
        expected.append(x)
    x = np.concatenate(expected, -1)
    if up:
        x = 2 * layer(encoder.cells[1], x, False)
        x = x + layer(encoder.cells[2], x, False)
    np.testing.assert_allclose(ops.convert_to_numpy(encoder(inputs, training=True)[0])[0], x, atol=1e-5)


@pytest.mark.parametrize("wrong", [{"order": "sideways"}, {"order": "upwards"}, {"backward_cells": []}])
def test_mistakes_are_refused(wrong):
    arguments = {"cells": cells(2), "backward_cells": cells(2)} | wrong
    with pytest.raises(ValueError, match="Expected `order` to be one of parallel, alternating, upwards, and as many"):
        StackedEncoder(arguments.pop("cells"), arguments.pop("backward_cells"), **arguments)
