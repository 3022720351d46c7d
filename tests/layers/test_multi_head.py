"""Multi-head attention in plain sight: against NumPy, against Keras' own, and a relation that it must find."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import MultiHeadAttention, SelfAttention
from tests.oracles import multi_head

B, T, S, N, D, M = 2, 3, 5, 3, 7, 11
E = 13
MASK = np.array([[True] * S, [True, False, True, True, False]])


@pytest.fixture
def arrays(rng):
    return [rng.normal(size=shape).astype("float32") for shape in ((B, T, E), (B, S, M))]


def randomised(layer, *shapes):
    layer.build(*shapes)
    for i, weight in enumerate(layer.weights):
        weight.assign(0.5 * keras.random.normal(weight.shape, seed=i))
    return layer


def heads_of(layer):
    kernels = [ops.convert_to_numpy(w).astype("float64") for w in layer.weights]
    columns = [np.split(kernel, layer.num_heads, axis=1) for kernel in kernels[:3]]
    return list(zip(*columns, np.split(kernels[3], layer.num_heads), strict=True))


def test_follows_the_equations(arrays):
    layer = randomised(MultiHeadAttention(N, head_units=D), (B, T, E), (B, S, M))
    outputs, alignments = (ops.convert_to_numpy(x) for x in layer(*arrays, mask=MASK))
    assert (outputs.shape, alignments.shape) == ((B, T, E), (B, N, T, S))
    for b in range(B):
        expected = multi_head(arrays[0][b], arrays[1][b], np.tile(MASK[b], (T, 1)), heads_of(layer))
        np.testing.assert_allclose(outputs[b], expected[0], atol=1e-5)
        np.testing.assert_allclose(alignments[b], expected[1], atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_follows_the_equations(arrays, causal):
    words = arrays[1]
    layer = randomised(SelfAttention(N, head_units=D, causal=causal), (B, S, M))
    outputs, relations = (ops.convert_to_numpy(x) for x in layer(words, mask=MASK))
    for b in range(B):
        visible = np.tile(MASK[b], (S, 1)) & (np.tri(S, dtype="bool") if causal else True)
        expected = multi_head(words[b], words[b], visible, heads_of(layer))
        np.testing.assert_allclose(outputs[b], expected[0], atol=1e-5)
        np.testing.assert_allclose(relations[b], expected[1], atol=1e-6)


def test_agrees_with_keras(arrays):
    layer = randomised(MultiHeadAttention(N, head_units=D), (B, T, E), (B, S, M))
    peer = keras.layers.MultiHeadAttention(N, D, use_bias=False)
    peer.build((B, T, E), (B, S, M))
    query, key, value, output = (ops.convert_to_numpy(w) for w in layer.weights)
    kernels = query.reshape(E, N, D), key.reshape(M, N, D), value.reshape(M, N, D), output.reshape(N, D, E)
    peer.set_weights(kernels)
    expected = peer(*arrays, attention_mask=MASK[:, None], return_attention_scores=True)
    for got, other in zip(layer(*arrays, mask=MASK), expected, strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(got), ops.convert_to_numpy(other), atol=1e-5)


def test_a_case_solved_by_hand():
    """One head of width 1: scores 0 and ln 3, alignment (1/4, 3/4), output 2 * (0.25 * 8 + 0.75 * 4)."""
    layer = MultiHeadAttention(1, head_units=1)
    layer.build((1, 1, 1), (1, 2, 2))
    layer.set_weights([np.array([[1.0]]), np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]]), np.array([[2.0]])])
    query, values = np.ones((1, 1, 1), "float32"), np.array([[[0.0, 8.0], [np.log(3), 4.0]]], "float32")
    outputs, alignments = layer(query, values)
    np.testing.assert_allclose(ops.convert_to_numpy(alignments), [[[[0.25, 0.75]]]], atol=1e-6)
    np.testing.assert_allclose(ops.convert_to_numpy(outputs), [[[10.0]]], atol=1e-5)


def test_finds_which_word_belongs_to_which():
    """Taught to name each word's twin, the relation table becomes the pairing itself."""
    random = np.random.default_rng(0)
    count, pairs = 512, 3
    symbols = np.stack([random.permutation(7)[:pairs] for _ in range(count)])
    order = np.stack([random.permutation(2 * pairs) for _ in range(count)])
    symbols = np.take_along_axis(np.tile(symbols, 2), order, axis=1)  # (B, S), each symbol twice
    contents = random.normal(size=(*symbols.shape, 8))
    words = np.concatenate([np.eye(7)[symbols], contents], axis=-1).astype("float32")  # (B, S, 15)
    same = (symbols[:, :, None] == symbols[:, None]) & ~np.eye(2 * pairs, dtype="bool")
    target = np.einsum("bst,btc->bsc", same, contents).astype("float32")  # the twin's content
    inputs = keras.Input((2 * pairs, 15))
    layer = SelfAttention(1, head_units=16)
    outputs, _ = layer(inputs)
    model = keras.Model(inputs, keras.layers.Dense(8)(ops.concatenate([inputs, outputs], axis=-1)))
    model.compile(keras.optimizers.Adam(0.02), "mse")
    model.fit(words, target, batch_size=64, epochs=25, verbose=0)
    relations = ops.convert_to_numpy(layer(words)[1])[:, 0]  # (B, S, S)
    others = np.where(np.eye(2 * pairs, dtype="bool"), 0, relations)
    assert (others.argmax(-1) == same.argmax(-1)).mean() > 0.95
    assert others[same].mean() > 5 * others[~same].mean()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_and_a_row_without_words(arrays, policy):
    expected = randomised(MultiHeadAttention(N, head_units=D), (B, T, E), (B, S, M))(*arrays, mask=MASK)[1]
    keras.config.set_dtype_policy(policy)
    layer = randomised(MultiHeadAttention(N, head_units=D), (B, T, E), (B, S, M))
    outputs, alignments = layer(*arrays, mask=MASK)
    assert keras.backend.standardize_dtype(alignments.dtype) == "float32"
    assert keras.backend.standardize_dtype(outputs.dtype) == policy.removeprefix("mixed_")
    np.testing.assert_allclose(ops.convert_to_numpy(alignments), ops.convert_to_numpy(expected), atol=0.05)
    outputs, alignments = layer(*arrays, mask=MASK & np.array([[False], [True]]))
    np.testing.assert_array_equal(ops.convert_to_numpy(ops.cast(outputs, "float32"))[0], 0)
    np.testing.assert_array_equal(ops.convert_to_numpy(alignments)[0], 0)


def test_gradients_reach_every_weight_and_the_config_round_trips(arrays):
    words = keras.Input((None, M))
    layer = SelfAttention(N, head_units=D, causal=True)
    outputs, relations = layer(words)
    assert (outputs.shape, relations.shape) == ((None, None, M), (None, N, None, None))
    model = keras.Model(words, outputs)
    model.compile("sgd", "mse")
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    model.train_on_batch(arrays[1], np.ones((B, S, M), "float32"))
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert np.abs(old - ops.convert_to_numpy(new)).max() > 0, new.path
    assert SelfAttention.from_config(layer.get_config()).get_config() == layer.get_config()


def test_mistakes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="`num_heads` to be a positive whole number"):
        SelfAttention(0)
    with pytest.raises(ValueError, match="width 13, num_heads=3"):
        MultiHeadAttention(3).build((B, T, E), (B, S, M))
