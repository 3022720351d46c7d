"""Every score function, global and local, against the equations written out word by word, and on the one contract."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.layers import get_attention
from tests.gradients import gradients
from tests.oracles import attention, sigmoid

pytestmark = pytest.mark.by_turns

B, T, S, H, M, A = 2, 3, 5, 7, 11, 13
SCORES = {
    "dot": lambda: ka.DotAttention(),
    "scaled_dot": lambda: ka.ScaledDotAttention(),
    "general": lambda: ka.GeneralAttention(use_scale=True, kernel_initializer="he_normal"),
    "concat": lambda: ka.ConcatAttention(A, kernel_initializer="he_normal"),
    "cosine": lambda: ka.CosineAttention(sharpness=3.0),
    "location": lambda: ka.LocationAttention(max_length=17),
    "location, short": lambda: ka.LocationAttention(max_length=3),
}
WINDOWS = {
    "global": ka.LuongAttention,
    "local-m": lambda score: ka.LocalMonotonicAttention(score, window=1),
    "local-p": lambda score: ka.LocalPredictiveAttention(score, window=2),
}
FAMILY = {
    **SCORES,
    "additive": lambda: ka.BahdanauAttention(A, normalize=True),
    "layer-norm additive": lambda: ka.layers.LayerNormAttention(A),
    **{f"{window} {name}": (window, name) for window in WINDOWS for name in ("dot", "concat", "location")},
    "monotonic additive": lambda: ka.BahdanauMonotonicAttention(A, normalize=True),
    "monotonic general, chunks": lambda: ka.GeneralMonotonicAttention(mode="recursive", chunk_size=2),
    "monotonic hard, chunks": lambda: ka.BahdanauMonotonicAttention(A, mode="hard", chunk_size=3),
    "location-sensitive": lambda: ka.LocationSensitiveAttention(A, filters=3, kernel_size=3),
    "coverage": lambda: ka.CoverageAttention(A),
    "coverage, fertility": lambda: ka.CoverageAttention(A, max_fertility=2.0, use_bias=False),
    "coverage, neural": lambda: ka.NeuralCoverageAttention(A, coverage_units=3),
    "sparsemax dot": lambda: ka.DotAttention(normalizer="sparsemax"),
}


def make(name):
    layer = FAMILY[name]
    return WINDOWS[layer[0]](SCORES[layer[1]]()) if isinstance(layer, tuple) else layer()


def width(name):
    """M: the dot products want the memory as wide as the query."""
    return H if name.endswith("dot") else M


def built(layer, memory_width):
    layer.build((B, H), (B, S, memory_width))
    for i, weight in enumerate(layer.weights):  # zeros and ones would hide mistakes
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i, dtype="float32"))
    return layer


@pytest.fixture
def arrays(rng):
    def draw(name):
        queries = rng.normal(size=(B, T, H)).astype("float32")
        values = rng.normal(size=(B, S, width(name))).astype("float32")
        return queries, values, np.array([[True] * S, [True, False, True, True, False]])

    return draw


def call(layer, *args, **kwargs):
    context, alignment, state = layer(*args, **kwargs)
    return ops.convert_to_numpy(context), ops.convert_to_numpy(alignment), state


def numpy_weights(layer):
    return {w.name: ops.convert_to_numpy(w).astype("float64") for w in layer.weights}


@pytest.mark.parametrize("name", SCORES)
def test_scores_follow_the_equations(arrays, name):
    queries, values, mask = arrays(name)
    layer = built(make(name), width(name))
    context, alignment, state = call(layer, queries[:, 0], values, mask=mask)
    kind = name.partition(",")[0]
    expected = attention(kind, queries[:, 0], values, mask, numpy_weights(layer))
    np.testing.assert_allclose(context, expected[0], atol=1e-5)
    np.testing.assert_allclose(alignment, expected[1], atol=1e-6)
    assert state == ()
    assert alignment.std() > 0.05  # sharp enough for a mistake to show


@pytest.mark.parametrize("name", ["dot", "concat", "location"])
@pytest.mark.parametrize("window", ["local-m", "local-p"])
def test_local_windows_follow_the_equations(arrays, window, name):
    queries, values, mask = arrays(name)
    layer = built(WINDOWS[window](SCORES[name]()), width(name))
    w = numpy_weights(layer)
    state = layer.initial_state(ops.convert_to_tensor(values))
    for t in range(T):
        context, alignment, state = call(layer, queries[:, t], values, mask=mask, state=state)
        centre, gaussian = (lambda s, length, t=t: min(t, length - 1)), False
        if window == "local-p":
            gaussian = True

            def centre(s, length):
                return length * sigmoid(w["position_vector"] @ np.tanh(w["position_kernel"].T @ s))

        expected = attention(name, queries[:, t], values, mask, w, layer.window, centre, gaussian)
        np.testing.assert_allclose(context, expected[0], atol=1e-5)
        np.testing.assert_allclose(alignment, expected[1], atol=1e-6)
        assert (alignment > 0).sum() < mask.sum(), "the window leaves words out"


@pytest.mark.parametrize("name", FAMILY)
def test_all_steps_at_once_equal_one_at_a_time_with_keys_projected_once(arrays, name):
    queries, values, mask = arrays(name)
    layer = built(make(name), width(name))
    keys = layer.keys(ops.convert_to_tensor(values))
    contexts, alignments, last = call(layer, queries, values, keys=keys, mask=mask)
    assert (contexts.shape, alignments.shape) == ((B, T, width(name)), (B, T, S))
    state = layer.initial_state(ops.convert_to_tensor(values))
    for t in range(T):
        context, alignment, state = call(layer, queries[:, t], values, keys=keys, mask=mask, state=state)
        np.testing.assert_allclose(contexts[:, t], context, atol=1e-6)
        np.testing.assert_allclose(alignments[:, t], alignment, atol=1e-6)
    for one, other in zip(keras.tree.flatten(state), keras.tree.flatten(last), strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(one), ops.convert_to_numpy(other), atol=1e-6)


@pytest.mark.parametrize("name", FAMILY)
def test_masked_positions_change_nothing_and_no_mask_is_all_real(arrays, name):
    queries, values, mask = arrays(name)
    layer = built(make(name), width(name))
    context, alignment, _ = call(layer, queries, values, mask=mask)
    noisy = np.where(mask[:, :, None], values, 1e3).astype("float32")
    again = call(layer, queries, noisy, mask=mask)
    np.testing.assert_array_equal(np.swapaxes(alignment, 1, 2)[~mask], 0)
    np.testing.assert_allclose(context, again[0], atol=1e-6)
    np.testing.assert_allclose(alignment, again[1], atol=1e-7)
    for got, expected in zip(call(layer, queries, values)[:2], (context, alignment), strict=True):
        np.testing.assert_allclose(got[0], expected[0], atol=1e-6)
    if "local-p" not in name and "monotonic" not in name:
        np.testing.assert_allclose(alignment.sum(-1), 1, atol=1e-6)
    wider = np.pad(values, ((0, 0), (0, 4), (0, 0)), constant_values=9.0)
    padded = call(layer, queries, wider, mask=np.pad(mask, ((0, 0), (0, 4))))
    np.testing.assert_allclose(padded[0], context, atol=1e-6)


@pytest.mark.parametrize("name", FAMILY)
def test_a_fully_masked_row_gives_zeros_and_finite_gradients(arrays, name):
    queries, values, mask = arrays(name)
    mask = np.array([[False] * S, mask[1]])
    values[0] = 0  # as the encoders leave it
    layer = built(make(name), width(name))
    context, alignment, _ = call(layer, queries[:, 0], values, mask=mask)
    np.testing.assert_array_equal(context[0], 0)
    np.testing.assert_array_equal(alignment[0], 0)
    tensor_mask = ops.convert_to_tensor(mask)
    for gradient in gradients(
        lambda q, v: ops.sum(ops.square(layer(q, v, mask=tensor_mask)[0])), queries[:, 0], values
    ):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", [name for name in FAMILY if "hard" not in name])  # a step, where rounding decides
def test_scores_stay_float32_under_mixed_precision(arrays, policy, name):
    queries, values, mask = arrays(name)
    expected = call(built(make(name), width(name)), queries, values, mask=mask)
    keras.config.set_dtype_policy(policy)
    context, alignment, _ = built(make(name), width(name))(queries, values, mask=mask)
    assert keras.backend.standardize_dtype(alignment.dtype) == "float32"
    assert keras.backend.standardize_dtype(context.dtype) == policy.removeprefix("mixed_")
    np.testing.assert_allclose(ops.convert_to_numpy(alignment), expected[1], atol=0.05)


def test_gradients_reach_every_weight_inside_the_decoders_loop(rng):
    """All of the family in one decoder, which is compiled once."""
    inputs, memory = keras.Input((T, A)), keras.Input((S, H))
    layers = [make(name) for name in (*SCORES, "additive", "global concat", "local-m dot", "local-p concat")]
    layers += [make(name) for name in ("monotonic additive", "monotonic general, chunks", "location-sensitive")]
    layers += [make(name) for name in ("coverage, fertility", "coverage, neural")]
    decoder = ka.AttentionDecoder(keras.layers.GRUCell(H), layers)
    outputs, contexts, _ = decoder(inputs, memory)
    model = keras.Model([inputs, memory], ops.concatenate([outputs, contexts], axis=-1))
    model.compile("sgd", "mse", jit_compile=keras.backend.backend() != "torch")
    for weight in model.trainable_weights:  # those of zeros hide others from the error
        if weight.name in ("sharpness_vector", "bias"):
            weight.assign(keras.random.normal(weight.shape, seed=1))
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    arrays = [rng.normal(size=shape).astype("float32") for shape in ((B, T, A), (B, S, H))]
    model.train_on_batch(arrays, np.ones((B, T, H + H * len(layers)), "float32"))
    assert len(before) == 3 + sum(len(layer.weights) for layer in layers) == 3 + 20 + 6 + 3 + 6 + 12
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert np.abs(old - ops.convert_to_numpy(new)).max() > 0, new.path


@pytest.mark.parametrize("name", FAMILY)
def test_config_round_trip(arrays, name):
    layer = make(name)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


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


def test_concat_by_hand():
    layer = ka.ConcatAttention(1)
    layer.build((1, 1), (1, 2, 1))
    layer.kernel.assign([[1.0], [1.0]])
    layer.score_vector.assign([2.0])
    values = np.array([[[-1.0], [np.arctanh(np.log(3) / 2) - 1.0]]], "float32")
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
    layer = FAMILY["location-sensitive"]()
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
