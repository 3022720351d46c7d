"""Coverage: the attentions of See 2017 and Tu 2016 against the equations, and the loss that reaches training."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn.models import LSTMSeq2Seq, LuongSeq2Seq, RNNSearch
from tests import oracles

pytestmark = pytest.mark.by_turns

B, T, S, H, M, A = 2, 3, 5, 7, 11, 13
MASK = np.array([[True] * S, [True, True, False, True, False]])
SIZES = {"units": 5, "embedding_size": 7, "readout_size": 11}


@pytest.fixture
def arrays(rng):
    return [rng.normal(size=shape).astype("float32") for shape in ((B, T, H), (B, S, M))]


def built(layer):
    layer.build((B, H), (B, S, M))
    for i, weight in enumerate(layer.weights):  # zeros and ones would hide mistakes
        weight.assign(keras.random.normal(weight.shape, stddev=0.7, seed=i, dtype="float32"))
    return layer


def sum_of_alignments(w, coverage, alignment, s, h):
    return coverage + alignment


def gru(w, coverage, alignment, s, h):
    """The word's own GRU: inputs h_j, s_{i-1} and alpha_ij, in this order."""
    weights = [w[f"coverage_cell/{part}"] for part in ("kernel", "recurrent_kernel", "bias")]
    inputs = [np.concatenate([word, s, [share]]) for word, share in zip(h, alignment, strict=True)]
    return np.array([oracles.gru_step(x, c, *weights, False) for x, c in zip(inputs, coverage, strict=True)])


def fertility(w, coverage, h):
    return coverage / (2.0 * oracles.sigmoid(h @ w["fertility_vector"]))


CASES = {
    "See": (lambda: ka.CoverageAttention(A), lambda w, c, h: np.outer(c, w["coverage_vector"]), sum_of_alignments, ()),
    "Tu, linguistic": (
        lambda: ka.CoverageAttention(A, max_fertility=2.0, use_bias=False),
        lambda w, c, h: np.outer(fertility(w, c, h), w["coverage_vector"]),
        sum_of_alignments,
        (),
    ),
    "Tu, neural": (
        lambda: ka.NeuralCoverageAttention(A, coverage_units=3),
        lambda w, c, h: c @ w["coverage_kernel"],
        gru,
        (3,),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_follows_the_equations(arrays, name):
    make, seen, update, width = CASES[name]
    queries, values = arrays
    layer = built(make())
    w = {x.path.split("/", 1)[-1]: ops.convert_to_numpy(x).astype("float64") for x in layer.weights}
    state, coverage = (), np.zeros((B, S, *width))
    contexts, alignments, last = (ops.convert_to_numpy(x) for x in layer(queries, values, mask=MASK))
    for t in range(T):
        context, alignment, state = layer(queries[:, t], values, mask=MASK, state=state)
        for b, (s, h) in enumerate(zip(queries[:, t], values, strict=True)):
            hidden = s @ w["query_kernel"] + h @ w["key_kernel"] + w.get("bias", 0) + seen(w, coverage[b], h)
            expected = np.zeros(S)
            expected[MASK[b]] = oracles.softmax((np.tanh(hidden) @ w["score_vector"])[MASK[b]])
            coverage[b] = update(w, coverage[b], expected, s, h)
            np.testing.assert_allclose(ops.convert_to_numpy(alignment)[b], expected, atol=1e-5)
            np.testing.assert_allclose(ops.convert_to_numpy(context)[b], expected @ h, atol=1e-5)
            np.testing.assert_allclose(alignments[b, t], expected, atol=1e-5)
            np.testing.assert_allclose(contexts[b, t], expected @ h, atol=1e-5)
        np.testing.assert_allclose(ops.convert_to_numpy(state), coverage, atol=1e-5)
    np.testing.assert_allclose(last, coverage, atol=1e-5)


def test_a_word_that_was_attended_to_is_left_by_hand():
    """Both words score 0 at first; each point of coverage then takes tanh(ln 3) from a word's score."""
    layer = ka.CoverageAttention(1, use_bias=False)
    layer.build((1, 1), (1, 2, 1))
    for weight, value in zip(layer.weights, ([[0.0]], [[1.0]], [-1.0], [1.0]), strict=True):
        weight.assign(value)  # W, U, v, w_c
    query, values = np.zeros((1, 1), "float32"), np.zeros((1, 2, 1), "float32")
    state = np.array([[np.log(3), 0.0]], "float32")
    alignment = ops.convert_to_numpy(layer(query, values, state=ops.convert_to_tensor(state))[1])
    odds = np.exp(-np.tanh(np.log(3)))
    np.testing.assert_allclose(alignment, [[odds / (1 + odds), 1 / (1 + odds)]], atol=1e-6)


def test_coverage_stays_float32_in_a_decoder_of_half_precision(arrays):
    policy = "mixed_float16"
    keras.config.set_dtype_policy(policy)
    attentions = [ka.CoverageAttention(A, max_fertility=2.0), ka.NeuralCoverageAttention(A)]
    decoder = ka.AttentionDecoder(keras.layers.GRUCell(H), attentions)
    inputs, values = (ops.cast(x, policy.removeprefix("mixed_")) for x in arrays)
    found = decoder(inputs, values, mask=MASK, training=True)
    assert all(np.isfinite(ops.convert_to_numpy(ops.cast(x, "float32"))).all() for x in found)
    *_, state = decoder.step(inputs[:, 0], decoder.memory(values), decoder.initial_state(values))
    assert [keras.backend.standardize_dtype(s.dtype) for s in state["attention"]] == ["float32"] * 2


def test_keras_does_not_round_the_state_of_an_attention_in_half_precision(rng):
    keras.config.set_dtype_policy("mixed_bfloat16")
    query, values = rng.normal(size=(B, H)).astype("float32"), rng.normal(size=(B, S, M)).astype("float32")
    state = ops.convert_to_tensor(np.full((B, S), 1.001, "float32"))  # of which bfloat16 makes 1
    coverage, monotonic = ka.CoverageAttention(A), ka.BahdanauMonotonicAttention(A, mode="recursive")
    heads = ka.MultiHeadAttention(1, score="coverage")
    _, alignment, after = heads(query, values, state=state[:, None])
    np.testing.assert_allclose(ops.convert_to_numpy(after - alignment), 1.001, atol=1e-5)
    context, alignment, after = coverage(query, values, state=state)
    assert keras.backend.standardize_dtype(context.dtype) == "bfloat16"
    np.testing.assert_allclose(ops.convert_to_numpy(after - alignment), 1.001, atol=1e-5)
    monotonic(query, values)
    seen = []
    monotonic.align = lambda query, keys, mask, state, *rest: (
        seen.append(state) or type(monotonic).align(monotonic, query, keys, mask, state, *rest)
    )
    monotonic(query, values, state=state)
    np.testing.assert_array_equal(ops.convert_to_numpy(seen[0]), ops.convert_to_numpy(state))


def coverage_loss(alignments, mask):
    """See 2017, eq. 12, step by step: the mean over real steps."""
    total, steps = 0.0, 0
    for alignment, real in zip(alignments.astype("float64"), mask, strict=True):
        covered = np.zeros(alignment.shape[-1])
        for row in alignment[real]:
            total += np.minimum(row, covered).sum()
            covered += row
            steps += 1
    return total / steps


def test_the_loss_follows_the_equation_and_is_added_in_training_alone(rng):
    alignments = rng.dirichlet(np.ones(S), (B, T)).astype("float32")
    mask = np.array([[True] * T, [True, True, False]])
    layer = ka.CoverageLoss(0.5)
    inputs = np.ones((B, T, 2), "float32")
    np.testing.assert_array_equal(ops.convert_to_numpy(layer(inputs, alignments, mask=mask, training=True)), inputs)
    (loss,) = layer.losses
    np.testing.assert_allclose(ops.convert_to_numpy(loss), 0.5 * coverage_loss(alignments, mask), rtol=1e-5)
    layer(inputs, alignments, mask=mask)
    assert layer.losses == []
    layer(inputs, alignments, training=True)
    expected = 0.5 * coverage_loss(alignments, np.ones_like(mask))
    np.testing.assert_allclose(ops.convert_to_numpy(layer.losses[0]), expected, rtol=1e-5)
    half = ka.CoverageLoss(0.5, dtype="mixed_bfloat16")  # alignments as they are
    assert keras.backend.standardize_dtype(half(inputs, alignments, training=True).dtype) == "bfloat16"
    np.testing.assert_allclose(ops.convert_to_numpy(half.losses[0]), expected, rtol=1e-5)
    assert ka.CoverageLoss.from_config(half.get_config()).get_config() == half.get_config()


@pytest.fixture
def batch(rng):
    """Three sentence pairs of different lengths, and a row that fills the batch: a start, no word, no weight."""
    source, labels = rng.integers(4, 31, (4, 6)).astype("int32"), rng.integers(4, 37, (4, 5)).astype("int32")
    for row, (s, t) in enumerate(((6, 5), (4, 3), (2, 4), (1, 0))):
        source[row, s:], labels[row, t:], labels[row, t - 1 : t] = 0, 0, 3
    target = np.concatenate([np.full((4, 1), 2), labels[:, :-1]], axis=1).astype("int32")
    return {"encoder_token_ids": source, "decoder_token_ids": target}, labels, (labels != 0).astype("float32")


def covered(weight, **options):
    return RNNSearch(31, 37, **SIZES, attention="coverage", coverage_loss=weight, **options)


def outside_the_loop(weight):
    heads = ka.MultiHeadAttention(1)
    return LuongSeq2Seq(31, 37, **SIZES, num_layers=1, attention=heads, input_feeding=False, coverage_loss=weight)


def compiled(model):
    for i, w in enumerate(model.trainable_weights):
        w.assign(keras.random.normal(w.shape, stddev=0.5, seed=i))
    jit_compile = keras.backend.backend() == "jax"  # XLA takes longer to compile than all else here
    model.compile(keras.optimizers.SGD(0.1), ka.losses.SmoothedCrossentropy(0.0), jit_compile=jit_compile)
    return model


def fitted(model, batch):
    inputs, labels, weights = batch
    return model.fit(inputs, labels, sample_weight=weights, batch_size=4, verbose=0).history["loss"][0]


@pytest.mark.parametrize("make", [covered, outside_the_loop])
def test_fit_adds_the_loss_over_real_target_tokens_to_the_crossentropy(batch, make):
    """Filled rows, padding of either side and `evaluate` have none of it; where no token counts, it alone is left."""
    inputs, labels, weights = batch
    model = compiled(make(2.0))
    alignments = model.align(*(ops.convert_to_tensor(x) for x in inputs.values()))[1]
    expected = coverage_loss(ops.convert_to_numpy(alignments), weights.astype("bool"))
    assert expected > 0.1
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    crossentropy = model.evaluate(inputs, labels, sample_weight=weights, batch_size=4, verbose=0)
    np.testing.assert_allclose(fitted(model, batch), crossentropy + 2.0 * expected, rtol=1e-4)
    for weight, value in zip(model.trainable_weights, before, strict=True):
        weight.assign(value)
    np.testing.assert_allclose(fitted(model, (inputs, labels, 0 * weights)), 2.0 * expected, rtol=1e-4)
    pairs = zip(model.trainable_weights, before, strict=True)
    moved = [new.path for new, old in pairs if np.abs(ops.convert_to_numpy(new) - old).max() > 0]
    assert any(path.endswith("query_kernel") for path in moved)


def test_with_scheduled_sampling_the_loss_is_added_and_dropout_acts(batch):
    """Then the model's layers are called one by one, which on JAX nothing but an argument tells that they train."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = compiled(covered(100.0, scheduled_sampling=0.0, output_dropout=0.5))
    model.optimizer.learning_rate = 0.0
    losses = [fitted(model, batch) for _ in range(2)]
    assert min(losses) > 15  # the cross-entropy is about 5
    assert losses[0] != losses[1]


def test_a_model_with_the_loss_is_saved_loaded_and_trained_on(batch, tmp_path):
    model = compiled(covered(1.0))
    fitted(model, batch)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert (again.coverage_loss, again.get_config()) == (1.0, model.get_config())
    np.testing.assert_allclose(fitted(again, batch), fitted(model, batch), rtol=1e-5)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: ka.CoverageAttention(A, max_fertility=0.0), r"`max_fertility` above 0, or None\. Received: .*=0\.0"),
        (lambda: ka.NeuralCoverageAttention(A, coverage_units=0), "`coverage_units` to be a positive whole number"),
        (lambda: ka.CoverageAttention(A).keys(np.ones((B, S, M))), "Expected a built layer"),
        (lambda: ka.CoverageLoss(-1.0), r"`weight` of at least 0\. Received: weight=-1\.0"),
        (
            lambda: LSTMSeq2Seq(31, 37, units=5, num_layers=1, embedding_size=7, coverage_loss=1.0),
            "Received: coverage_loss$",
        ),
        (lambda: RNNSearch(31, 37, **SIZES, coverage_los=1.0), r"among: .*coverage_loss.* Received: coverage_los"),
    ],
)
def test_mistakes_are_refused_with_a_sentence(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()
