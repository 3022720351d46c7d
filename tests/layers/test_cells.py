"""Cells in Keras' own loop, and cells whose `call` is a user's own; tests/contracts has the equations."""

import pytest
from keras import layers, ops

import keras_attn as ka
from tests.arrays import same

B, T, S, E, H, M = 2, 3, 5, 7, 11, 13


def gru(**options):
    return layers.GRUCell(H, **options)


CELLS = {
    "normalised gru": lambda: ka.LayerNormGRUCell(H),
    "normalised lstm": lambda: ka.LayerNormLSTMCell(H),
    "deep": lambda: ka.DeepTransitionCell([gru(), gru(reset_after=False), gru(use_bias=False)]),
    "residual": lambda: ka.ResidualCells([gru(), layers.LSTMCell(H), ka.DeepTransitionCell([gru()])], first_skip=2),
}


@pytest.mark.parametrize("name", CELLS)
def test_keras_own_loop_runs_them_too(rng, name):
    cell = CELLS[name]()
    cell.build((B, E))
    for weight in cell.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.7))
    x = rng.normal(size=(B, S, E)).astype("float32")
    same(layers.RNN(cell, return_sequences=True)(x), ka.RNNEncoder(cell)(x)[0])


@pytest.mark.parametrize("kind", [layers.GRUCell, ka.LayerNormGRUCell])
def test_a_subclass_with_its_own_call_runs_by_it(rng, kind):
    class Halved(kind):
        """Another output and state than its parent's."""

        def call(self, inputs, states, training=False):
            h, (state,) = super().call(inputs, states, training=training)
            return h / 2, [state / 2]

    x = rng.normal(size=(B, S, E)).astype("float32")
    stack = layers.StackedRNNCells([Halved(H), Halved(H)])
    values, _, last = ka.RNNEncoder(stack)(x)
    expected = layers.RNN(stack, return_sequences=True)(x)
    same(values, expected)
    same(last, expected[:, -1])
    decoder = ka.AttentionDecoder(Halved(H), "general")
    values, y = rng.normal(size=(B, S, M)).astype("float32"), rng.normal(size=(B, T, E)).astype("float32")
    outputs, contexts, _ = decoder(y, values)
    (state,) = decoder.cell.get_initial_state(batch_size=B)
    for t in range(T):
        read = ops.concatenate([ops.convert_to_tensor(y[:, t]), contexts[:, t]], axis=-1)
        output, (state,) = decoder.cell(read, [state])
        same(outputs[:, t], output)
