"""What Keras' own layers take and give: states, merge modes, attention scores, wrappers."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka
from keras_attn.backend import all_layers
from keras_attn.layers.layer import Layer
from tests.arrays import same

B, T, S, E, H = 2, 3, 5, 4, 6
MASK = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]], "bool")


@pytest.fixture
def arrays(rng):
    return [rng.normal(size=shape).astype("float32") for shape in ((B, T, H), (B, S, H))]


@pytest.mark.parametrize("name", ["dot", "coverage", "additive_monotonic", "local_m"])
def test_attention_scores_are_returned_as_by_kerass_attention(arrays, name):
    attention = ka.layers.get_attention(name, 7)
    context, alignment, _ = attention(*arrays)
    same(attention(*arrays, return_attention_scores=True), [context, alignment])
    same(attention(*arrays, return_attention_scores=False), context)
    inputs = [keras.Input(x.shape[1:]) for x in arrays]
    model = keras.Model(inputs, attention(*inputs, return_attention_scores=False))
    same(model(arrays), context)


@pytest.mark.parametrize("merge_mode", ["concat", "sum", "mul", "ave"])
def test_both_directions_merge_and_begin_as_in_kerass_bidirectional(rng, merge_mode):
    x, *states = (rng.normal(size=shape).astype("float32") for shape in ((B, S, E), *[(B, H)] * 4))
    cells = [layers.LSTMCell(H), layers.LSTMCell(H)]
    encoder = ka.RNNEncoder(cells[0], backward_cell=cells[1], merge_mode=merge_mode)
    values, (h, c), final = encoder(x, mask=MASK, initial_state=[states[:2], states[2:]])
    loops = [
        layers.RNN(cell, return_sequences=True, return_state=True, go_backwards=i == 1) for i, cell in enumerate(cells)
    ]
    keras_encoder = layers.Bidirectional(loops[0], backward_layer=loops[1], merge_mode=merge_mode)
    keras_encoder.build(x.shape)
    keras_encoder.forward_layer.set_weights(cells[0].get_weights())  # Keras makes a copy of this one
    expected, *finals = keras_encoder(x, mask=ops.convert_to_tensor(MASK), initial_state=states)
    real = MASK[..., None].astype("float32")  # Keras repeats the last output at padding
    same(values, ops.convert_to_numpy(expected) * real)
    merge = {
        "concat": lambda a, b: np.concatenate([a, b], -1),
        "sum": np.add,
        "mul": np.multiply,
        "ave": lambda a, b: (a + b) / 2,
    }[merge_mode]
    finals = [ops.convert_to_numpy(state) for state in finals]
    same([h, c, final], [merge(*finals[::2]), merge(*finals[1::2]), merge(*finals[::2])])


def test_a_stack_and_a_bidirectional_gru_begin_with_their_own_final_states(rng):
    """Reading on from the states after some words is reading all of them."""
    x = rng.normal(size=(B, S, E)).astype("float32")
    stack = layers.StackedRNNCells([layers.LSTMCell(H), layers.GRUCell(3)])
    encoder = ka.RNNEncoder(stack)
    _, states, _ = encoder(x[:, :2])
    same(encoder(x[:, 2:], initial_state=states)[1:], encoder(x)[1:])
    both = ka.BiGRUEncoder(H)
    _, forward, backward = both(x[:, :2])
    same(both(x[:, 2:], initial_state=[forward, backward])[1], both(x)[1])


@pytest.mark.parametrize(("order", "backward"), [("parallel", 2), ("alternating", 2), ("upwards", 1)])
def test_stacks_that_take_turns_begin_with_states_in_the_order_of_the_final_ones(rng, order, backward):
    """A layer that reads padding alone ends with the state that it began with."""
    x = rng.normal(size=(B, S, E)).astype("float32")
    cells = [layers.GRUCell(H), layers.LSTMCell(H)], [layers.GRUCell(H), layers.LSTMCell(H)][:backward]
    encoder = ka.layers.StackedEncoder(*cells, order=order)
    _, states, _ = encoder(x)
    _, kept, _ = encoder(x, mask=np.zeros((B, S), "bool"), initial_state=states)
    same(kept, states)
    values, zeros = encoder(x)[0], keras.tree.map_structure(ops.zeros_like, states)
    same(encoder(x, initial_state=zeros)[0], values)
    with pytest.raises(ValueError, match=rf"Expected `initial_state` to have {2 + backward} states"):
        encoder(x, initial_state=states[:-1])


def test_layers_of_one_output_stand_in_sequential_and_in_time_distributed(rng, tmp_path):
    """A document of sentences of words (Yang 2016), each sentence read by itself and with its own mask."""
    ids = np.array([[[2, 3, 0], [0, 4, 5]], [[6, 2, 0], [3, 3, 3]]])
    words = layers.Embedding(7, E, mask_zero=True)
    model = keras.Sequential(
        [
            words,
            layers.TimeDistributed(ka.BiGRUEncoder(H, return_state=False, merge_mode="sum")),
            layers.TimeDistributed(ka.SelfAttention(2, return_attention_scores=False)),
            layers.TimeDistributed(ka.AttentionPooling(5)),
        ]
    )
    found = model(ids)
    encoder, attention, pooling = (layer.layer for layer in model.layers[1:])
    for b, d in np.ndindex(2, 2):
        x = ops.convert_to_tensor(ops.convert_to_numpy(words(ids[b, d][ids[b, d] != 0][None])))
        same(found[b, d], pooling(attention(encoder(x)))[0])
    model.save(tmp_path / "model.keras")
    same(keras.saving.load_model(tmp_path / "model.keras")(ids), found)


def test_regularizers_of_a_bidirectional_gru_are_those_of_its_cells():
    encoder = ka.BiGRUEncoder(H, kernel_regularizer="l2", recurrent_constraint="unit_norm", bias_regularizer="l1")
    encoder = type(encoder).from_config(encoder.get_config())
    encoder.build((None, None, E))
    for cell in (*encoder.forward_cells, *encoder.backward_cells):
        assert isinstance(cell.kernel_regularizer, keras.regularizers.L2)
        assert isinstance(cell.recurrent_constraint, keras.constraints.UnitNorm)
        assert isinstance(cell.bias_regularizer, keras.regularizers.L1)
    assert len(encoder.losses) == 4


class Outer(Layer):
    """A user's layer with a `from_config` of its own and no `build`."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner, self.scale = inner, layers.Dense(3)

    def call(self, x):
        return self.scale(self.inner(x))

    @classmethod
    def from_config(cls, config):
        return cls(**config | {"inner": keras.saving.deserialize_keras_object(config["inner"])})


@pytest.mark.parametrize("part", ["inner", "scale"])
def test_a_part_of_a_users_layer_is_frozen_again(part):
    x = np.ones((B, E), "float32")
    outer = Outer(layers.Dense(2))
    outer(x)
    getattr(outer, part).trainable = False
    again = Outer.from_config(outer.get_config())
    again(x)
    assert [again.inner.trainable, again.scale.trainable] == [part != "inner", part != "scale"]


def test_parts_of_a_frozen_layer_that_are_trained_are_so_again(tmp_path):
    x = keras.Input((S, E))
    encoder = ka.BiGRUEncoder(H, return_state=False)
    model = keras.Model(x, encoder(x))
    encoder.trainable = False
    all_layers(encoder)[1].trainable = True
    flags = [weight.trainable for weight in model.weights]
    assert len(set(flags)) == 2
    model.save(tmp_path / "model.keras")
    assert [weight.trainable for weight in keras.saving.load_model(tmp_path / "model.keras").weights] == flags


def test_keys_may_be_of_any_structure_and_shape(arrays):
    class Transposed(ka.layers.Attention):
        def keys(self, values):
            return ops.swapaxes(values, 1, 2), None

        def scores(self, query, keys):
            return ops.matmul(query, keys[0])

    query, values = arrays
    assert Transposed()(query, values)[1].shape == (B, T, S)
    assert Transposed()(query, values[:, :T])[1].shape == (B, T, T)


def halves(shape, dtype=None):
    return 0.5 * ops.ones(shape, dtype)


INITIALIZED = {
    "local_p": (lambda f: ka.LocalPredictiveAttention(kernel_initializer=f), 2),
    "chunks": (lambda f: ka.GeneralMonotonicAttention(kernel_initializer=f, chunk_size=2), 2),
    "coverage": (lambda f: ka.NeuralCoverageAttention(7, coverage_initializer=f), 2),
    "heads": (lambda f: ka.MultiHeadAttention(2, kernel_initializer=f), 2),
    "encoder": (lambda f: ka.BiGRUEncoder(H, kernel_initializer=f), 1),
}


@pytest.mark.parametrize("name", INITIALIZED)
def test_a_function_is_an_initializer_as_in_keras(arrays, name):
    make, number = INITIALIZED[name]
    layer = make(halves)
    layer(*arrays[:number])
    assert any(np.all(ops.convert_to_numpy(weight) == 0.5) for weight in layer.trainable_weights)
