"""Every score function by hand, by its name, and inside a compiled decoder; tests/contracts has the equations."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.layers import get_attention

pytestmark = pytest.mark.by_turns

B, T, S, H, M, A = 2, 3, 5, 7, 11, 13


def call(layer, *args, **kwargs):
    context, alignment, state = layer(*args, **kwargs)
    return ops.convert_to_numpy(context), ops.convert_to_numpy(alignment), state


def test_gradients_reach_every_weight_inside_the_decoders_loop(rng):
    """All of the family in one decoder, which XLA compiles on TensorFlow, too."""
    inputs, memory = keras.Input((T, A)), keras.Input((S, H))
    attentions = [
        ka.BahdanauAttention(A, normalize=True),
        ka.DotAttention(),
        ka.GeneralAttention(use_scale=True),
        ka.ConcatAttention(A),
        ka.CosineAttention(),
        ka.LocationAttention(17),
        ka.LocalMonotonicAttention("dot", window=1),
        ka.LocalPredictiveAttention("concat", window=2),
        ka.BahdanauMonotonicAttention(A, normalize=True),
        ka.GeneralMonotonicAttention(mode="recursive", chunk_size=2),
        ka.LocationSensitiveAttention(A, filters=3, kernel_size=3),
        ka.CoverageAttention(A, max_fertility=2.0),
        ka.NeuralCoverageAttention(A, coverage_units=3),
        ka.MultiHeadAttention(3, score="additive", head_units=5),
    ]
    decoder = ka.AttentionDecoder(keras.layers.GRUCell(H), attentions)
    outputs, contexts, _ = decoder(inputs, memory)
    model = keras.Model([inputs, memory], ops.concatenate([outputs, contexts], axis=-1))
    model.compile("sgd", "mse", jit_compile=keras.backend.backend() != "torch")
    for i, weight in enumerate(model.trainable_weights):  # those of zeros hide others from the error
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i))
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    arrays = [rng.normal(size=shape).astype("float32") for shape in ((B, T, A), (B, S, H))]
    model.train_on_batch(arrays, np.ones((B, *model.output_shape[1:]), "float32"))
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert np.abs(old - ops.convert_to_numpy(new)).max() > 0, new.path


def test_dot_by_hand():
    """Scores 0 and ln 3: the alignment is (1/4, 3/4)."""
    query, values = np.array([[1.0, 0.0]], "float32"), np.array([[[0.0, 8.0], [np.log(3), 4.0]]], "float32")
    context, alignment, _ = call(ka.DotAttention(), query, values)
    np.testing.assert_allclose(alignment, [[0.25, 0.75]], atol=1e-6)
    np.testing.assert_allclose(context, [[0.75 * np.log(3), 5.0]], atol=1e-5)


def test_scaled_dot_by_hand():
    """Four ones against four times ln 3 / 2: 2 ln 3, divided by sqrt(4)."""
    query, values = np.ones((1, 4), "float32"), np.stack([np.zeros((1, 4)), np.full((1, 4), np.log(3) / 2)], 1)
    alignment = call(ka.ScaledDotAttention(), query, values.astype("float32"))[1]
    np.testing.assert_allclose(alignment, [[0.25, 0.75]], atol=1e-6)


def test_general_by_hand():
    layer = ka.GeneralAttention()
    layer.build((1, 1), (1, 2, 2))
    layer.kernel.assign([[np.log(2)], [0.0]])  # looks at the first of two features alone
    alignment = call(layer, np.array([[1.0]], "float32"), np.array([[[0.0, 5.0], [2.0, -5.0]]], "float32"))[1]
    np.testing.assert_allclose(alignment, [[0.2, 0.8]], atol=1e-6)  # 1 : 4


def test_additive_and_concat_by_hand():
    """Scores tanh(0) = 0 and tanh(artanh(ln 3 / 2)) * 2 = ln 3."""
    additive, concat = ka.BahdanauAttention(1), ka.ConcatAttention(1)
    values = np.array([[[-1.0], [np.arctanh(np.log(3) / 2) - 1.0]]], "float32")
    for layer in (additive, concat):
        layer.build((1, 1), (1, 2, 1))
        for weight in layer.weights:
            weight.assign(np.full(weight.shape, 2.0 if weight.name == "score_vector" else 1.0))
        np.testing.assert_allclose(call(layer, np.array([[1.0]], "float32"), values)[1], [[0.25, 0.75]], atol=1e-6)


def test_cosine_by_hand_does_not_see_lengths_but_is_sharpened():
    """Cosines 1 and 0, whatever the lengths; beta = ln 3 gives 3 : 1."""
    layer = ka.CosineAttention(sharpness=float(np.log(3)))
    layer.build((1, 2), (1, 2, 2))
    layer.kernel.assign(np.eye(2))
    values = np.array([[[0.01, 0.0], [0.0, 50.0]]], "float32")
    np.testing.assert_allclose(call(layer, np.array([[7.0, 0.0]], "float32"), values)[1], [[0.75, 0.25]], atol=1e-6)


def test_location_by_hand_ignores_what_stands_there_and_what_lies_beyond():
    layer = ka.LocationAttention(max_length=2)
    layer.build((1, 1), (1, 3, 1))
    layer.kernel.assign([[0.0, np.log(3)]])
    values = np.random.default_rng(0).normal(size=(1, 3, 1)).astype("float32")
    np.testing.assert_allclose(call(layer, np.array([[1.0]], "float32"), values)[1], [[0.25, 0.75, 0.0]], atol=1e-6)


def test_local_p_by_hand():
    """p_t = 4 sigmoid(0) = 2 and sigma = 1: equal scores are left with exp(-d^2 / 2) within D = 2."""
    layer = ka.LocalPredictiveAttention("dot", window=2)
    layer.build((1, 1), (1, 6, 1))
    layer.position_vector.assign([0.0])
    mask = np.array([[True] * 4 + [False] * 2])
    alignment = call(layer, np.zeros((1, 1), "float32"), np.ones((1, 6, 1), "float32"), mask=mask)[1]
    expected = np.array([np.exp(-2.0), np.exp(-0.5), 1, np.exp(-0.5), 0, 0]) / 4
    np.testing.assert_allclose(alignment, [expected], atol=1e-6)


def test_local_m_walks_and_stays_at_the_last_word():
    layer = ka.LocalMonotonicAttention("dot", window=1)
    query, values = np.zeros((1, 1, 1), "float32"), np.ones((1, 3, 1), "float32")
    alignments = call(layer, np.repeat(query, 5, axis=1), values)[1]
    half, third = [0.5, 0.5, 0.0], [1 / 3] * 3
    np.testing.assert_allclose(alignments[0], [half, third, half[::-1], half[::-1], half[::-1]], atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "additive",
        "additive_monotonic",
        "concat",
        "cosine",
        "coverage",
        "dot",
        "general",
        "general_monotonic",
        "local_m",
        "local_p",
        "location",
        "location_sensitive",
        "neural_coverage",
        "scaled_dot",
    ],
)
def test_by_name_and_by_object(name):
    layer = get_attention(name, A)
    assert get_attention(layer) is layer
    again = get_attention(keras.saving.serialize_keras_object(layer))
    assert again.get_config() == layer.get_config()
    layer.build((B, H), (B, S, H))
    assert layer.built


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: get_attention("dott"), r"'concat', 'cosine', 'coverage', 'dot', .*Received: 'dott'"),
        (lambda: ka.LuongAttention(keras.layers.Dense(3)), "Expected an `Attention` layer"),
        (lambda: ka.LuongAttention(ka.LocalMonotonicAttention()), "not another global or local attention"),
        (lambda: ka.LuongAttention("general_monotonic"), "not another global or local attention"),
        (lambda: ka.LuongAttention(ka.DotAttention(normalizer="hardmax")), "of LuongAttention itself.*='hardmax'"),
        (lambda: ka.DotAttention(normalizer="softmin"), r"\['hardmax', 'softmax', 'sparsemax'\].*='softmin'"),
        (lambda: ka.layers.LayerNormAttention(A, normalizer="sparsemax"), "Expected arguments among: .*: normalizer"),
        (lambda: ka.ConcatAttention(0), "`units` to be a positive whole number"),
        (lambda: ka.BahdanauAttention(2.5), "`units` to be a positive whole number"),
        (lambda: ka.BahdanauAttention("many"), "`units` to be a positive whole number"),
        (lambda: ka.BahdanauAttention(A).keys(np.ones((B, S, M))), "Expected a built layer"),
        (lambda: ka.LocationAttention(2.5), "`max_length` to be a positive whole number"),
        (lambda: ka.LocalMonotonicAttention(window=0), "`window` to be a positive whole number"),
        (lambda: ka.CosineAttention(sharpness=-1.0), "`sharpness` above 0"),
        (lambda: ka.DotAttention().build((B, H), (B, S, M)), "DotAttention.*query 7, memory 11"),
        (lambda: ka.GeneralAttention().keys(np.ones((B, S, M))), "Expected a built layer"),
        (lambda: ka.ConcatAttention().keys(np.ones((B, S, M))), "Expected a built layer"),
    ],
)
def test_mistakes_are_refused_with_a_sentence(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()


def test_a_location_does_not_depend_on_the_format_of_images(rng):
    layer = ka.LocationSensitiveAttention(A, filters=3, kernel_size=3)
    arrays = rng.normal(size=(B, H)).astype("float32"), rng.normal(size=(B, S, M)).astype("float32")
    state = ops.ones((B, S)) / S
    expected, *_ = layer(*arrays, state=state)
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        found, *_ = layer(*arrays, state=state)
    finally:
        keras.config.set_image_data_format(before)
    np.testing.assert_array_equal(ops.convert_to_numpy(found), ops.convert_to_numpy(expected))
