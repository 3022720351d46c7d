"""What tensorflow_addons' AttentionWrapper can be asked for, in steps, compiled, saved and in half precision.

The figures are compared with its own in test_tfa_recorded.py.
"""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attn import (
    AttentionalLayer,
    AttentionDecoder,
    BahdanauAttention,
    BahdanauMonotonicAttention,
    DotAttention,
    FixedContextDecoder,
    GeneralAttention,
)
from keras_attn.layers import RNNEncoder
from keras_attn.search import beam_search
from tests.data_parallel import finish, start

pytestmark = pytest.mark.by_turns

B, T, S, E, H, M, A, F, V = 2, 3, 5, 7, 11, 13, 17, 19, 23
OPTIONS = {
    "context fed back": lambda: {"attentional": "context"},
    "state put out": lambda: {"attentional": AttentionalLayer(F), "output_attention": False},
    "context fed back, state put out": lambda: {"attentional": "context", "output_attention": False},
    "cell input": lambda: {"attentional": AttentionalLayer(F), "cell_input": layers.Dense(E, "tanh")},
    "before, cell input": lambda: {"attend": "before", "input_feeding": False, "cell_input": layers.Dense(E)},
    "several memories": lambda: {"attentional": "context", "several": True},
    "several memories, a layer each": lambda: {
        "attentional": [AttentionalLayer(F), AttentionalLayer(4)],
        "several": True,
        "dropout": 0.2,
    },
    "several memories, not fed": lambda: {"attentional": "context", "several": "global", "input_feeding": False},
}
CELLS = {
    "gru": lambda: layers.GRUCell(H, dropout=0.3),
    "lstm": lambda: layers.LSTMCell(H, recurrent_dropout=0.3),
    "stack": lambda: layers.StackedRNNCells(
        [
            layers.GRUCell(4, dropout=0.3, recurrent_dropout=0.3, reset_after=False),
            layers.SimpleRNNCell(5, dropout=0.2, recurrent_dropout=0.3),
            layers.LSTMCell(H),
        ]
    ),
}


def make(name, cell="gru"):
    options = {"attend": "after", "input_feeding": True, **OPTIONS[name]()}
    several = options.pop("several", False)
    second = GeneralAttention() if several == "global" else BahdanauMonotonicAttention(A, sigmoid_noise=1.0)
    attention = [BahdanauAttention(A), second] if several else BahdanauAttention(A)
    return AttentionDecoder(CELLS[cell](), attention, **options), bool(several)


@pytest.fixture
def arrays(rng):
    values = [rng.normal(size=(B, S + i, M - 2 * i)).astype("float32") for i in range(2)]
    masks = [np.arange(S + i) < np.array([[S + i], [3]]) for i in range(2)]
    return rng.normal(size=(B, T, E)).astype("float32"), values, masks


def given(arrays, several):
    inputs, values, masks = arrays
    return (inputs, values, masks) if several else (inputs, values[0], masks[0])


def numpy_of(structure):
    return [ops.convert_to_numpy(ops.cast(x, "float32")) for x in keras.tree.flatten(structure)]


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_equal_the_whole_sequence(arrays, name):
    decoder, several = make(name, "stack")
    inputs, values, masks = given(arrays, several)
    whole = decoder(inputs, values, mask=masks)
    assert len(whole) == 3
    assert isinstance(whole[2], list) == several
    values, masks = keras.tree.map_structure(ops.convert_to_tensor, (values, masks))
    memory, state = decoder.memory(values, masks), decoder.initial_state(values)
    for t in range(T):
        *out, state = decoder.step(ops.convert_to_tensor(inputs[:, t]), memory, state)
        for one, steps in zip(numpy_of(out), numpy_of(whole), strict=True):
            np.testing.assert_allclose(one, steps[:, t], atol=1e-5)


@pytest.mark.parametrize("name", ["state put out", "before, cell input", "several memories, a layer each"])
def test_it_trains_saves_and_loads(arrays, name, tmp_path):
    """Gradients reach every weight through the compiled loop, dropout of cells and noise included."""
    decoder, several = make(name, "stack")
    inputs, values, masks = given(arrays, several)
    shared = [keras.Input(x.shape[1:], dtype=x.dtype) for x in keras.tree.flatten((inputs, values, masks))]
    packed = keras.tree.pack_sequence_as((inputs, values, masks), shared)
    found = decoder(packed[0], packed[1], mask=packed[2])
    flat = [layers.Flatten()(x) for x in keras.tree.flatten(found)]
    model = keras.Model(shared, layers.Concatenate()(flat))
    model.compile("sgd", "mse", jit_compile=keras.backend.backend() == "jax")
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    arrays = keras.tree.flatten((inputs, values, masks))
    model.train_on_batch(arrays, np.ones((B, model.output_shape[-1]), "float32"))
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert np.abs(old - ops.convert_to_numpy(new)).max() > 0, new.path
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(*[ops.convert_to_numpy(m(arrays)) for m in (again, model)])


# The others compile each search, for long.
SEARCHED = (
    list(OPTIONS)
    if keras.backend.backend() == "torch"
    else [pytest.param("several memories, a layer each", marks=pytest.mark.slow)]
)


@pytest.mark.parametrize("name", SEARCHED)
def test_beam_search_over_the_steps(arrays, name):
    """One row alone gets what it gets in the batch, whatever the memory and the state are made of."""
    decoder, several = make(name, "stack")
    _, values, masks = given(arrays, several)
    embed, project = layers.Embedding(V, E), layers.Dense(V)

    def step(token_ids, memory, state):
        output, _, alignment, state = decoder.step(embed(token_ids), memory, state)
        return project(output), state, alignment[0] if several else alignment

    def search(rows, step=step):
        ours = keras.tree.map_structure(lambda x: ops.convert_to_tensor(x[rows]), (values, masks))
        start = decoder.memory(*ours), decoder.initial_state(ours[0])
        return beam_search(step, *start, beam_size=3, n_best=2, max_length=T + 2)

    outputs, *_ = decoder(arrays[0], values, mask=masks)
    embed.build(None)
    project.build(outputs.shape)
    together, alone = search(slice(None)), [search(slice(i, i + 1)) for i in range(B)]
    for name, tolerance in (("token_ids", 0), ("scores", 1e-5)):
        (whole,), rows = (numpy_of([getattr(x, name) for x in found]) for found in ([together], alone))
        np.testing.assert_allclose(whole, np.concatenate(rows), atol=tolerance)
    assert tuple(together.alignments.shape) == (B, 2, T + 2, S)
    if several:
        with pytest.raises(ValueError, match=r"one alignment .* Received: 2 of them"):
            search(slice(None), lambda *arguments: (*step(*arguments)[:2], [step(*arguments)[2]] * 2))


def test_a_first_context_is_read_by_the_first_step(arrays, rng):
    decoder, _ = make("context fed back")
    inputs, values, masks = given(arrays, False)
    fed = rng.normal(size=(B, M)).astype("float32")
    given_one, none, zeros = (decoder(inputs, values, mask=masks, fed=f)[0] for f in (fed, None, 0 * fed))
    np.testing.assert_array_equal(*numpy_of([none, zeros]))
    assert np.abs(numpy_of(given_one)[0] - numpy_of(none)[0]).max() > 1e-3


@pytest.mark.parametrize("cell", CELLS)
def test_a_cells_dropout_is_drawn_once_for_all_steps(rng, cell):
    """The same inputs at each step and rates near 1: a unit of the inputs is dropped at all steps or at none."""
    values = rng.normal(size=(B, S, M)).astype("float32")
    inputs = rng.normal(size=(B, T, E)).astype("float32")
    for layer in (AttentionDecoder(CELLS[cell](), BahdanauAttention(A)), FixedContextDecoder(CELLS[cell]())):
        still, again = (numpy_of(layer(inputs, values)[0])[0] for _ in range(2))
        np.testing.assert_array_equal(still, again)
        drawn = [numpy_of(layer(inputs, values, training=True)[0])[0] for _ in range(2)]
        assert np.abs(drawn[0] - drawn[1]).max() > 1e-4
    encoder = RNNEncoder(CELLS[cell](), backward_cell=CELLS[cell]())
    drawn = [numpy_of(encoder(inputs, training=training)[0])[0] for training in (True, True, False, False)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-4
    np.testing.assert_array_equal(drawn[2], drawn[3])


@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_each_of_two_cells_has_its_own_dropout(rng, first):
    """Contexts follow the second transition of the step before, so that either cell's masks change the outputs."""
    values, inputs = (rng.normal(size=shape).astype("float32") for shape in ((B, S, M), (B, T, E)))
    cells = [layers.GRUCell(H, recurrent_dropout=rate) for rate in ((0.5, 0.0) if first else (0.0, 0.5))]
    decoder = AttentionDecoder(cells[0], BahdanauAttention(A), attend="between", second_cell=cells[1])
    still, *drawn = (numpy_of(decoder(inputs, values, training=training)[0])[0] for training in (False, True, True))
    assert min(np.abs(drawn[0] - drawn[1]).max(), np.abs(drawn[0] - still).max()) > 1e-4


@pytest.mark.parametrize("cell", ["gru", "simple"])
def test_a_cells_dropout_is_keras_own(rng, cell):
    """With everything dropped but what Keras' cell keeps with the same masks."""
    from keras_attn.layers.recurrence import draw_masks, project, recurrence

    kind = {"gru": layers.GRUCell, "simple": layers.SimpleRNNCell}[cell]
    cell = kind(H, dropout=0.5, recurrent_dropout=0.5)
    cell.build((B, E))
    x, h = (ops.convert_to_tensor(rng.normal(size=(B, n)).astype("float32")) for n in (E, H))
    drops = draw_masks(cell, B, E)
    gates = len(drops.recurrent)
    cell._dropout_mask = [drops.inputs] * gates if gates > 1 else drops.inputs
    cell._recurrent_dropout_mask = drops.recurrent if gates > 1 else drops.recurrent[0]
    expected, _ = cell(x, [h], training=True)
    found, _ = recurrence(cell, 0, drops)(project(cell, x, drops), None, [h], drops)
    np.testing.assert_allclose(*numpy_of([found, expected]), atol=1e-6)


DIVIDED = """
import keras, numpy as np
from keras import layers
from keras_attn import AttentionDecoder, AttentionalLayer, BahdanauAttention, BahdanauMonotonicAttention
from keras_attn.layers import RNNEncoder

def losses():
    keras.utils.set_random_seed(3)
    dropout = {"dropout": 0.4, "recurrent_dropout": 0.3}
    x, y = keras.Input((5, 7)), keras.Input((3, 7))
    encoder = RNNEncoder(layers.GRUCell(6, **dropout), backward_cell=layers.SimpleRNNCell(6, **dropout))
    fed = AttentionDecoder(
        layers.StackedRNNCells([layers.LSTMCell(5, **dropout), layers.GRUCell(4, **dropout, reset_after=False)]),
        BahdanauMonotonicAttention(3, sigmoid_noise=1.0), attend="after", attentional=AttentionalLayer(9),
        input_feeding=True, dropout=0.2,
    )
    plain = AttentionDecoder(layers.GRUCell(4, **dropout), BahdanauAttention(3), attend="after", attentional="context")
    values, *_ = encoder(x)
    model = keras.Model([x, y], layers.Concatenate()([fed(y, values)[0], plain(y, values)[0]]))
    model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=True)
    random = np.random.default_rng(0)
    data = [random.normal(size=(4, n, 7)).astype("float32") for n in (5, 3)]
    history = model.fit(data, np.ones((4, 3, 21), "float32"), epochs=3, verbose=0, batch_size=4, shuffle=False).history
    return history["loss"], [np.asarray(w).ravel() for w in model.get_weights() if w.dtype == "float32"]

one = losses()
keras.distribution.set_distribution(keras.distribution.DataParallel())
two = losses()
assert len(set(one[0])) == 3
np.testing.assert_allclose(two[0], one[0], rtol=1e-5)
np.testing.assert_allclose(*map(np.concatenate, (two[1], one[1])), rtol=1e-4, atol=1e-5)
"""


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="Keras divides batches in one process on JAX alone")
def test_a_cells_dropout_on_two_devices_is_that_of_one():
    [(status, _, errors)] = finish(start("-c", DIVIDED))
    assert status == 0, errors


def test_without_attention_the_steps_read_the_cell_input_too():
    decoder = AttentionDecoder(layers.GRUCell(H), [], cell_input=layers.Dense(9, "tanh"))
    rng = np.random.default_rng(0)
    inputs, values = (rng.normal(size=size).astype("float32") for size in ((B, T, E), (B, S, M)))
    outputs, *_ = decoder(inputs, values)
    memory, state = decoder.memory(values), decoder.initial_state(values)
    for t in range(T):
        output, _, _, state = decoder.step(inputs[:, t], memory, state)
        np.testing.assert_allclose(*map(ops.convert_to_numpy, (output, outputs[:, t])), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attend", ["before", "after"])
def test_the_noise_of_an_attention_without_a_state_is_drawn_in_any_order(attend):
    seen = []

    class Noisy(DotAttention):
        def noise(self, steps, values):
            return ops.ones((steps, *values.shape[:2]))

        def call(self, query, values, keys=None, mask=None, state=(), noise=None, values_mask=None):
            seen.append(noise)
            return super().call(query, values, keys, mask, state, values_mask)

    decoder = AttentionDecoder(layers.GRUCell(H), Noisy(), attend=attend)
    inputs, values = np.ones((B, T, E), "float32"), np.ones((B, S, H), "float32")
    decoder(inputs, values, training=True)
    assert seen
    assert seen[-1] is not None
    decoder(inputs, values)
    assert seen[-1] is None
