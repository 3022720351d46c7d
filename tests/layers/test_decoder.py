"""AttentionDecoder: one step = all steps for every cell, order and number of attentions; read-outs by hand."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attn import AttentionalLayer, AttentionDecoder, BahdanauAttention, DeepOutput
from tests.oracles import additive_attention, gru_step

pytestmark = pytest.mark.by_turns

B, T, S, E, H, M, A, F = 2, 3, 5, 7, 11, 13, 17, 19

CELLS = {
    "gru": lambda: layers.GRUCell(H, reset_after=False),
    "cudnn gru": lambda: layers.GRUCell(H, reset_after=True, use_bias=False),
    "lstm": lambda: layers.LSTMCell(H),
    "simple": lambda: layers.SimpleRNNCell(H),
    "stacked": lambda: layers.StackedRNNCells([layers.LSTMCell(4), layers.GRUCell(6), layers.GRUCell(H)]),
}
ORDERS = {
    "before": {},
    "between": {"attend": "between"},
    "after": {"attend": "after"},
    "after, attentional": {"attend": "after", "attentional": True},
    "after, fed": {"attend": "after", "attentional": True, "input_feeding": True},
    "after, output fed": {"attend": "after", "input_feeding": True},
}


def make(cell="gru", order="before", attentions=1, **options):
    options = {**ORDERS[order], **options}
    if options.pop("attentional", False):
        options["attentional"] = AttentionalLayer(F)
    if options.get("attend") == "between":
        options["second_cell"] = CELLS[cell]()
    attention = [BahdanauAttention(A) for _ in range(attentions)]
    return AttentionDecoder(CELLS[cell](), attention, **options)


@pytest.fixture
def arrays(rng):
    inputs = rng.normal(size=(B, T, E)).astype("float32")
    values = rng.normal(size=(B, S, M)).astype("float32")
    mask = np.array([[True] * S, [True, True, False, True, False]])
    return inputs, values, mask


def unrolled(decoder, inputs, values, mask, cell_state=None):
    values, mask = ops.convert_to_tensor(values), ops.convert_to_tensor(mask)
    memory, state = decoder.memory(values, mask), decoder.initial_state(values, cell_state)
    steps = []
    for t in range(inputs.shape[1]):
        *out, state = decoder.step(ops.convert_to_tensor(inputs[:, t]), memory, state)
        steps.append([ops.convert_to_numpy(x) for x in out])
    return [np.stack(column, axis=1) for column in zip(*steps, strict=True)]


STEPS = [
    (cell, order, attentions)
    for cell in CELLS
    for order in ORDERS
    for attentions in (1, 2)
    if order != "between" or (cell, attentions) in (("gru", 2), ("lstm", 1), ("stacked", 1))
]


@pytest.mark.parametrize(("cell", "order", "attentions"), STEPS)
def test_steps_equal_the_whole_sequence(arrays, cell, order, attentions):
    decoder = make(cell, order, attentions)
    whole = [ops.convert_to_numpy(x) for x in decoder(arrays[0], arrays[1], mask=arrays[2])]
    width = F if "attentional" in ORDERS[order] else H
    assert [x.shape for x in whole] == [(B, T, width), (B, T, M * attentions), (B, T, S)]
    for got, expected in zip(unrolled(decoder, *arrays), whole, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_attending_before_follows_the_paper(arrays):
    """s_i = GRU([E y_{i-1}; c_i], s_{i-1}) with c_i from s_{i-1}: Bahdanau 2015, A.2.2, written out."""
    inputs, values, mask = arrays
    decoder = make()
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


@pytest.mark.parametrize("cell", ["gru", "cudnn gru", "lstm"])
def test_cut_cells_equal_keras_own(arrays, cell):
    """The hoisted projection and the step in the loop give what Keras' cell gives for [y; fed]."""
    inputs, values, mask = arrays
    decoder = make(cell, "after, output fed")
    outputs, _contexts, _ = (ops.convert_to_numpy(x) for x in decoder(inputs, values, mask=mask))
    state = decoder.cell.get_initial_state(batch_size=B)
    fed = np.zeros((B, H), "float32")
    for t in range(T):
        output, state = decoder.cell(np.concatenate([inputs[:, t], fed], -1), state)
        fed = ops.convert_to_numpy(output)
        np.testing.assert_allclose(outputs[:, t], fed, atol=1e-5)


def test_source_padding_changes_nothing(arrays):
    inputs, values, mask = arrays
    decoder = make("gru", "after, fed")
    expected = decoder(inputs, values, mask=mask)
    wider = np.concatenate([values, np.full((B, 4, M), 9.0, "float32")], axis=1)
    wider_mask = np.concatenate([mask, np.zeros((B, 4), "bool")], axis=1)
    got = decoder(inputs, wider, mask=wider_mask)
    for a, b in zip(got[:2], expected[:2], strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(a), ops.convert_to_numpy(b), atol=1e-5)
    np.testing.assert_array_equal(ops.convert_to_numpy(got[2])[:, :, S:], 0)


@pytest.mark.parametrize("order", ["before", "between", "after, fed"])
def test_gradients_reach_every_weight_and_dropout_acts_in_training(arrays, order):
    inputs, values, _mask = arrays
    y, h = keras.Input((None, E)), keras.Input((None, M))
    decoder = make("gru", order, dropout=0.5 if order == "after, fed" else 0.0)
    outputs, contexts, _ = decoder(y, h)
    model = keras.Model([y, h], ops.concatenate([outputs, contexts], axis=-1))
    model.compile("sgd", "mse")
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    model.train_on_batch([inputs, values], np.ones((B, T, model.output_shape[-1]), "float32"))
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert np.abs(old - ops.convert_to_numpy(new)).max() > 0, new.path
    if order == "after, fed":
        drops = [ops.convert_to_numpy(decoder(inputs, values, training=True)[0]) for _ in range(2)]
        assert np.abs(drops[0] - drops[1]).max() > 1e-3
        assert 0.2 < (drops[0] == 0).mean() < 0.8


@pytest.mark.parametrize("order", ORDERS)
def test_config_round_trip_through_a_saved_model(arrays, order, tmp_path):
    y, h = keras.Input((None, E)), keras.Input((None, M))
    model = keras.Model([y, h], make("stacked", order, 2)(y, h))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for got, expected in zip(again(list(arrays[:2])), model(list(arrays[:2])), strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(got), ops.convert_to_numpy(expected))


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
        make()(np.ones((B, T, E), "float32"), [values, values])
    with pytest.raises(ValueError, match="`fed` only with `input_feeding=True`"):
        make()(np.ones((B, T, E), "float32"), values, fed=np.ones((B, F), "float32"))
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


def test_readout_without_maxout_and_config(rng):
    s, y, c = (rng.normal(size=(B, T, n)).astype("float32") for n in (H, E, M))
    readout = DeepOutput(F, activation="tanh")
    got = ops.convert_to_numpy(readout(s, y, c))
    kernels = [ops.convert_to_numpy(w) for w in readout.weights[:3]]
    expected = np.tanh(sum(x @ k for x, k in zip((s, y, c), kernels, strict=True)))
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert DeepOutput.from_config(readout.get_config()).get_config() == readout.get_config()
    assert readout.compute_output_shape(s.shape, y.shape, c.shape) == (B, T, F)


def test_attentional_layer_is_tanh_of_a_product(rng):
    both = rng.normal(size=(B, M + H)).astype("float32")
    layer = AttentionalLayer(F)
    got = ops.convert_to_numpy(layer(both))
    np.testing.assert_allclose(got, np.tanh(both @ ops.convert_to_numpy(layer.kernel)), atol=1e-5)
    assert layer.bias is None
    assert AttentionalLayer.from_config(layer.get_config()).get_config() == layer.get_config()


def test_attentions_given_by_name_have_weights_with_paths_of_their_own():
    """By which Keras clears gradients on torch; two memories may have the same mechanism."""
    decoder = AttentionDecoder(layers.GRUCell(H), ["general", "general", "concat"])
    decoder.build((B, T, E), (B, S, M))
    paths = [weight.path for weight in decoder.trainable_weights]
    assert len(set(paths)) == len(paths)
    assert AttentionDecoder(layers.GRUCell(H), "general").attention.name == "attention"
