"""AttentionDecoder against the papers written out, and its errors; tests/contracts has steps, masks and training."""

import numpy as np
import pytest
from keras import layers, ops

from keras_attn import AttentionalLayer, AttentionDecoder, BahdanauAttention, DeepOutput
from tests.oracles import additive_attention, gru_step

pytestmark = pytest.mark.by_turns

B, T, S, E, H, M, A, F = 2, 3, 5, 7, 11, 13, 17, 19


def plain():
    return AttentionDecoder(layers.GRUCell(H, reset_after=False), BahdanauAttention(A))


@pytest.fixture
def arrays(rng):
    inputs = rng.normal(size=(B, T, E)).astype("float32")
    values = rng.normal(size=(B, S, M)).astype("float32")
    mask = np.array([[True] * S, [True, True, False, True, False]])
    return inputs, values, mask


def test_attending_before_follows_the_paper(arrays):
    """s_i = GRU([E y_{i-1}; c_i], s_{i-1}) with c_i from s_{i-1}: Bahdanau 2015, A.2.2, written out."""
    inputs, values, mask = arrays
    decoder = plain()
    s = np.random.default_rng(1).normal(size=(B, H)).astype("float32")
    outputs, contexts, alignments = decoder(inputs, values, mask=mask, cell_state=[ops.convert_to_tensor(s)])
    cell, attention = decoder.cell, decoder.attentions[0]
    W, U, v = (ops.convert_to_numpy(w) for w in (attention.query_kernel, attention.key_kernel, attention.score_vector))
    weights = [ops.convert_to_numpy(w) for w in (cell.kernel, cell.recurrent_kernel, cell.bias)]
    for t in range(T):
        context, alignment = additive_attention(s, values, mask, W, U, v)
        x = np.concatenate([inputs[:, t], context], -1)
        s = np.stack([gru_step(row, h, *weights, False) for row, h in zip(x, s, strict=True)])
        np.testing.assert_allclose(ops.convert_to_numpy(outputs)[:, t], s, atol=1e-5)
        np.testing.assert_allclose(ops.convert_to_numpy(contexts)[:, t], context, atol=1e-5)
        np.testing.assert_allclose(ops.convert_to_numpy(alignments)[:, t], alignment, atol=1e-5)


def test_attending_between_follows_nematus(arrays, rng):
    """s'_i = GRU_1(y_{i-1}, s_{i-1}), c_i from s'_i, s_i = GRU_2(c_i, s'_i): Sennrich 2017, section 2, written out."""
    inputs, values, mask = arrays
    decoder = AttentionDecoder(
        layers.GRUCell(H), BahdanauAttention(A), attend="between", second_cell=layers.GRUCell(H, name="second")
    )
    s = rng.normal(size=(B, H)).astype("float32")
    state = [ops.convert_to_tensor(s)]
    decoder(inputs, values, mask=mask)
    for bias in (decoder.cell.bias, decoder.second_cell.bias):
        bias.assign(rng.normal(size=bias.shape))
    outputs, contexts, alignments = decoder(inputs, values, mask=mask, cell_state=state)
    attention = decoder.attention
    W, U, v = (ops.convert_to_numpy(w) for w in (attention.query_kernel, attention.key_kernel, attention.score_vector))
    cells = [
        [ops.convert_to_numpy(w) for w in (cell.kernel, cell.recurrent_kernel, cell.bias)]
        for cell in (decoder.cell, decoder.second_cell)
    ]

    def gru(x, s, weights):
        return np.stack([gru_step(row, h, *weights, True) for row, h in zip(x, s, strict=True)])

    for t in range(T):
        between = gru(inputs[:, t], s, cells[0])
        context, alignment = additive_attention(between, values, mask, W, U, v)
        s = gru(context, between, cells[1])
        np.testing.assert_allclose(ops.convert_to_numpy(outputs)[:, t], s, atol=1e-5)
        np.testing.assert_allclose(ops.convert_to_numpy(contexts)[:, t], context, atol=1e-5)
        np.testing.assert_allclose(ops.convert_to_numpy(alignments)[:, t], alignment, atol=1e-5)


CELLS = {
    "gru": lambda: layers.GRUCell(H, reset_after=False),
    "cudnn gru": lambda: layers.GRUCell(H, use_bias=False),
    "lstm": lambda: layers.LSTMCell(H),
    "simple": lambda: layers.SimpleRNNCell(H),
    "stacked": lambda: layers.StackedRNNCells([layers.LSTMCell(4), layers.GRUCell(6), layers.GRUCell(H)]),
}


@pytest.mark.parametrize("cell", CELLS)
def test_cut_cells_equal_keras_own(arrays, cell):
    """The hoisted projection and the step in the loop give what Keras' cell gives for [y; fed]."""
    inputs, values, mask = arrays
    decoder = AttentionDecoder(CELLS[cell](), "additive", attend="after", input_feeding=True)
    outputs, _contexts, _ = (ops.convert_to_numpy(x) for x in decoder(inputs, values, mask=mask))
    state = decoder.cell.get_initial_state(batch_size=B)
    fed = np.zeros((B, H), "float32")
    for t in range(T):
        output, state = decoder.cell(np.concatenate([inputs[:, t], fed], -1), state)
        fed = ops.convert_to_numpy(output)
        np.testing.assert_allclose(outputs[:, t], fed, atol=1e-5)


class OwnCell(layers.Layer):
    state_size, dropout = H, 0.1

    def get_initial_state(self, batch_size=None):
        raise NotImplementedError


def test_mistakes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match='"before", "between" or "after"'):
        AttentionDecoder(layers.GRUCell(H), BahdanauAttention(A), attend="during")
    with pytest.raises(ValueError, match="only with attend='after'"):
        AttentionDecoder(layers.GRUCell(H), BahdanauAttention(A), input_feeding=True)
    with pytest.raises(ValueError, match=r"cell without dropout of its own, or Keras'.*Received: .* a OwnCell"):
        AttentionDecoder(OwnCell(), BahdanauAttention(A))
    for options, message in (
        ({"attentional": "state"}, "\"context\", or a list of layers, one for each of 1 .*'state'"),
        ({"attentional": [AttentionalLayer(F)] * 2}, "one for each of 1 attention"),
        ({"output_attention": False}, "`output_attention=False` with `attentional`"),
        ({"cell_input": layers.Dense(3)}, "`cell_input` with something to add"),
        ({"dropout": 20}, "`dropout` from 0 to below 1. Received: dropout=20"),
    ):
        with pytest.raises(ValueError, match=message):
            AttentionDecoder(layers.GRUCell(H), BahdanauAttention(A), attend="after", **options)
    for options, message in (
        ({"attend": "between"}, "Expected a `second_cell` with attend='between'"),
        ({"second_cell": layers.GRUCell(H)}, "Expected a `second_cell` with attend='between'"),
        (
            {"attend": "between", "second_cell": layers.LSTMCell(H)},
            rf"states of the same sizes .* Received: lstm_cell.* with \[\[{H}, {H}\]\] and .* with \[\[{H}\]\]",
        ),
        ({"attend": "between", "second_cell": layers.GRUCell(H), "dropout": 0.1}, "only with attend='after'"),
        ({"attend": "between", "second_cell": layers.GRUCell(H), "cell_input": layers.Dense(E)}, "something to add"),
        ({"attend": "between", "second_cell": layers.GRUCell(H), "attention": []}, "Expected an attention layer"),
    ):
        with pytest.raises(ValueError, match=message):
            AttentionDecoder(**{"cell": layers.GRUCell(H), "attention": BahdanauAttention(A), **options})
    values = np.ones((B, S, M), "float32")
    with pytest.raises(ValueError, match=r"`values` for each of 1 attention layers. Received: 2"):
        plain()(np.ones((B, T, E), "float32"), [values, values])
    with pytest.raises(ValueError, match="`fed` only with `input_feeding=True`"):
        plain()(np.ones((B, T, E), "float32"), values, fed=np.ones((B, F), "float32"))
    with pytest.raises(ValueError, match="Expected a Keras RNN cell"):
        AttentionDecoder(layers.Dense(H), BahdanauAttention(A))
    with pytest.raises(ValueError, match="only with attend='after'"):
        AttentionDecoder(layers.GRUCell(H), BahdanauAttention(A), dropout=0.1)


def test_maxout_takes_the_larger_of_each_pair():
    readout = DeepOutput(2, use_bias=False)
    one = np.ones((1, 1), "float32")
    readout.build((1, 1), (1, 1), (1, 1))
    for kernel, row in (
        (readout.state_kernel, [1.0, 2.0, -3.0, -4.0]),
        (readout.embedding_kernel, [10.0, 0.0, 0.0, 0.0]),
        (readout.context_kernel, [0.0, 0.0, 0.0, 100.0]),
    ):
        kernel.assign([row])
    np.testing.assert_allclose(ops.convert_to_numpy(readout(one, one, one)), [[11.0, 96.0]])


def test_attentions_given_by_name_have_weights_with_paths_of_their_own():
    """By which Keras clears gradients on torch; two memories may have the same mechanism."""
    decoder = AttentionDecoder(layers.GRUCell(H), ["general", "general", "concat"])
    decoder.build((B, T, E), (B, S, M))
    paths = [weight.path for weight in decoder.trainable_weights]
    assert len(set(paths)) == len(paths)
    assert AttentionDecoder(layers.GRUCell(H), "general").attention.name == "attention"
