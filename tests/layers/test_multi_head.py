"""Multi-head attention over any score: against NumPy, against Keras' own, in a decoder, and a relation to find."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import (
    AttentionDecoder,
    BahdanauAttention,
    GeneralAttention,
    LocationSensitiveAttention,
    MultiHeadAttention,
    SelfAttention,
)

pytestmark = pytest.mark.by_turns

B, T, S, N, D, M = 2, 3, 5, 3, 7, 11
E = 13
MASK = np.array([[True] * S, [True, False, True, True, False]])


@pytest.fixture
def arrays(rng):
    return [rng.normal(size=shape).astype("float32") for shape in ((B, T, E), (B, S, M))]


def randomised(layer, *shapes):
    layer.build(*shapes)
    for i, weight in enumerate(layer.weights):
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i))
    return layer


def numpy(*tensors):
    return [ops.convert_to_numpy(x) for x in tensors]


@pytest.fixture(scope="module")
def decoder():
    """Three additive heads with a state, and an attention without heads: an alignment of four."""
    heads = MultiHeadAttention(N, score=LocationSensitiveAttention(D, filters=2, kernel_size=3), head_units=D)
    decoder = AttentionDecoder(keras.layers.GRUCell(6), [heads, BahdanauAttention(D)])
    return randomised(decoder, (B, T, E), (B, S, M))


def test_a_decoder_gives_each_heads_alignment_or_their_mean(arrays, decoder):
    outputs, contexts, mean = decoder(*arrays, mask=MASK)
    same, _, heads = decoder(*arrays, mask=MASK, each_head=True)
    assert (contexts.shape, mean.shape, heads.shape) == ((B, T, 6 + M), (B, T, S), (B, T, N + 1, S))
    np.testing.assert_array_equal(*numpy(outputs, same))
    mean, heads = numpy(mean, heads)
    np.testing.assert_allclose(mean, heads.mean(2), atol=1e-6)
    np.testing.assert_array_equal(heads[~np.broadcast_to(MASK[:, None, None], heads.shape)], 0)
    values, mask = (ops.convert_to_tensor(x) for x in (arrays[1], MASK))
    memory, state = decoder.memory(values, mask), decoder.initial_state(values)
    for t in range(T):
        inputs = ops.convert_to_tensor(arrays[0][:, t])
        np.testing.assert_allclose(*numpy(decoder.step(inputs, memory, state)[2], mean[:, t]), atol=1e-6)
        *_, alignment, state = decoder.step(inputs, memory, state, each_head=True)
        np.testing.assert_allclose(*numpy(alignment, heads[:, t]), atol=1e-6)


def test_with_a_memory_for_each_attention_the_alignments_are_a_list(arrays):
    attentions = [MultiHeadAttention(N, score="additive"), GeneralAttention()]
    decoder = AttentionDecoder(keras.layers.GRUCell(6), attentions, attend="after")  # outside the loop
    values = [arrays[1], np.ones((B, 4, 2), "float32")]
    symbols = [keras.Input(x.shape[1:]) for x in values]
    for first, second in (
        decoder(arrays[0], values, each_head=True)[2],
        decoder(keras.Input((T, E)), symbols, each_head=True)[2],
    ):
        assert (first.shape[1:], second.shape[1:]) == ((T, N, S), (T, 1, 4))
    assert [x.shape[1:] for x in decoder(arrays[0], values)[2]] == [(T, S), (T, 4)]


def test_agrees_with_keras(arrays):
    layer = randomised(MultiHeadAttention(N, head_units=D), (B, T, E), (B, S, M))
    peer = keras.layers.MultiHeadAttention(N, D, use_bias=False)
    peer.build((B, T, E), (B, S, M))
    query, key, value, output = (ops.convert_to_numpy(w) for w in layer.weights)
    kernels = query.reshape(E, N, D), key.reshape(M, N, D), value.reshape(M, N, D), output.reshape(N, D, E)
    peer.set_weights(kernels)
    outputs, alignments = peer(*arrays, attention_mask=MASK[:, None], return_attention_scores=True)
    found = layer(*arrays, mask=MASK)
    np.testing.assert_allclose(*numpy(found[0], outputs), atol=1e-5)
    np.testing.assert_allclose(*numpy(found[1], ops.swapaxes(alignments, 1, 2)), atol=1e-5)


def test_a_case_solved_by_hand():
    """One head of width 1: scores 0 and ln 3, alignment (1/4, 3/4), output 2 * (0.25 * 8 + 0.75 * 4)."""
    layer = MultiHeadAttention(1, head_units=1)
    layer.build((1, 1, 1), (1, 2, 2))
    layer.set_weights([np.array([[1.0]]), np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]]), np.array([[2.0]])])
    query, values = np.ones((1, 1, 1), "float32"), np.array([[[0.0, 8.0], [np.log(3), 4.0]]], "float32")
    outputs, alignments, _ = layer(query, values)
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


def test_mistakes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="`num_heads` to be a positive whole number"):
        SelfAttention(0)
    with pytest.raises(ValueError, match="width 13, num_heads=3"):
        MultiHeadAttention(3).build((B, T, E), (B, S, M))
    with pytest.raises(ValueError, match="without heads of its own"):
        MultiHeadAttention(3, score=MultiHeadAttention(2))
    with pytest.raises(ValueError, match=r"'additive', .*Received: 'additiv'"):
        MultiHeadAttention(3, score="additiv")
    with pytest.raises(ValueError, match=r"Expected arguments among: num_heads, .* Received: normalizer"):
        MultiHeadAttention(3, normalizer="sparsemax")
    with pytest.raises(ValueError, match="Expected a built layer"):
        MultiHeadAttention(3).keys(np.ones((B, S, M), "float32"))
