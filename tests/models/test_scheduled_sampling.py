"""Scheduled sampling: the paper's schedules, the tokens that are read, and training with them."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import ScheduledSampling
from keras_attn.layers import get_scheduled_sampling
from keras_attn.losses import SmoothedCrossentropy
from recipes.rnnsearch import Config
from tests.contracts.model_rows import VT, make, values_of

pytestmark = pytest.mark.by_turns

B, S, T = 6, 5, 7
OWN = ScheduledSampling("constant", k=0.0, choose="argmax")  # always the model's own token
UPDATES = np.array([0, 1, 10, 900, 10**6])


@pytest.fixture
def inputs(rng):
    ids = {"encoder_token_ids": rng.integers(4, 31, (B, S)), "decoder_token_ids": rng.integers(4, VT, (B, T))}
    return {name: array.astype("int32") for name, array in ids.items()}


def tokens_read(model, inputs):
    """What the decoder reads in training, (B, T)."""
    memory, state = model.encode(inputs["encoder_token_ids"])
    return ops.convert_to_numpy(
        model._token_sampler.read(ops.convert_to_tensor(inputs["decoder_token_ids"]), memory, state, model.step)
    )


def logits_in_training(model, inputs):
    return ops.convert_to_numpy(model(inputs, training=True))


@pytest.mark.parametrize(
    ("text", "epsilon"),
    [
        ("inverse_sigmoid,k=90", lambda i: 90 / (90 + np.exp(np.minimum(i / 90, 700)))),
        ("exponential,k=0.99", lambda i: 0.99**i),
        ("linear,k=1,c=0.001,minimum=0.25", lambda i: np.maximum(0.25, 1 - 0.001 * i)),
        ("linear,k=1.5,c=0.01", lambda i: np.clip(1.5 - 0.01 * i, 0, 1)),
        ("0.25", lambda i: np.full(i.shape, 0.75)),
    ],
)
def test_schedules_follow_the_papers_formulas(text, epsilon):
    settings = get_scheduled_sampling(text)
    found = [float(settings.probability(i)) for i in UPDATES]
    np.testing.assert_allclose(found, 1 - epsilon(UPDATES.astype("float64")), atol=1e-5)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("sigmoid,k=9", r"Expected `decay` among: constant, linear, .* Received: decay='sigmoid'"),
        ("exponential", r"with k, such as 'exponential,k=\.\.\.'"),
        ("exponential,k=2", r"Expected `k` between 0 and 1"),
        ("inverse_sigmoid,k=0.5", r"Expected `k` of at least 1"),
        ("linear,k=1", r"Expected `c` above 0 with decay=\"linear\""),
        ("inverse_sigmoid,k=9,c=1", r"and only there"),
        ("inverse_sigmoid,k=9,rate=1", r"names among k, c, minimum"),
        ("inverse_sigmoid,k=nine", r"names among k, c, minimum"),
        ("inverse_sigmoid,k=9,choose=beam", r"Expected `choose` among: sample, argmax"),
        ("linear,k=1,c=1,minimum=2", r"Expected `minimum` from 0 to 1"),
        ("1.5", r"a probability from 0 to 1, .* Received: '1\.5'"),
        (True, r"a probability from 0 to 1, .* Received: True"),
        ([0.5], r"Expected `scheduled_sampling` to be None, a probability"),
    ],
)
def test_wrong_settings_get_a_sentence(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        get_scheduled_sampling(given)
    if isinstance(given, str):
        with pytest.raises(ValueError, match=sentence):
            Config(scheduled_sampling=given)


# The last two compile for long.
LOOPED = ["rnnsearch", "rnnencdec", "lstm_seq2seq", "luong", "gnmt", "rnmt_plus"]


@pytest.mark.parametrize("name", LOOPED if keras.backend.backend() == "torch" else LOOPED[:-2])
def test_its_own_tokens_are_those_of_a_loop_of_steps(inputs, name):
    """Without gradients through them: one update equals that of the plain model that is given these tokens."""
    model = make(name, scheduled_sampling=OWN)
    memory, state = model.encode(inputs["encoder_token_ids"])
    token_ids = inputs["decoder_token_ids"][:, 0]
    expected = [token_ids]
    for _ in range(T - 1):
        logits, state, _ = model.step(token_ids, memory, state)
        token_ids = ops.convert_to_numpy(ops.argmax(logits, axis=-1)).astype("int32")
        expected.append(token_ids)
    read = np.stack(expected, axis=1)
    np.testing.assert_array_equal(tokens_read(model, inputs), read)
    assert (read != inputs["decoder_token_ids"]).mean() > 0.5

    plain = make(name)
    np.testing.assert_array_equal(ops.convert_to_numpy(model(inputs)), ops.convert_to_numpy(plain(inputs)))
    for one, batch in ((model, inputs), (plain, inputs | {"decoder_token_ids": read})):
        one.compile(keras.optimizers.SGD(1.0), SmoothedCrossentropy())
        one.train_on_batch(batch, inputs["decoder_token_ids"])
    for (path, found), wanted in zip(values_of(model).items(), values_of(plain).values(), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=path)


@pytest.mark.parametrize("name", ["rnnsearch", "luong"])
def test_probability_zero_is_teacher_forcing_bit_for_bit(inputs, name):
    sampling = make(name, scheduled_sampling="linear,k=2,c=1e-9")
    np.testing.assert_array_equal(tokens_read(sampling, inputs), inputs["decoder_token_ids"])
    np.testing.assert_array_equal(logits_in_training(sampling, inputs), logits_in_training(make(name), inputs))


def test_tokens_are_drawn_from_the_models_distribution(inputs):
    """4,000 rows of the same sentence, three quarters of which read a token that was drawn."""
    rows, drawn = 4000, 0.75
    model = make("lstm_seq2seq", target_vocabulary_size=7, scheduled_sampling=drawn)
    same = {name: np.repeat(ids[:1, :3] % 7, rows, axis=0) for name, ids in inputs.items()}
    memory, state = model.encode(same["encoder_token_ids"][:1])
    logits = model.step(same["decoder_token_ids"][:1, 0], memory, state)[0]
    expected = drawn * ops.convert_to_numpy(ops.softmax(logits))[0]  # (V,)
    expected[same["decoder_token_ids"][0, 1]] += 1 - drawn
    assert expected.max() < 0.7
    read = tokens_read(model, same)
    again = tokens_read(model, same)
    found = np.bincount(read[:, 1], minlength=7) / rows
    np.testing.assert_allclose(found, expected, atol=0.035)  # four standard deviations, of a half
    assert (read != again).mean() > 0.2  # other draws in the next step of training
    # Which rows read their own token at a step does not depend on the step before.
    own = read[:, 1:] != same["decoder_token_ids"][:, 1:]
    assert abs(np.corrcoef(own[:, 0], own[:, 1])[0, 1]) < 0.3


FITTED = [
    ("rnnsearch, current state, all tied, dropout", {"policy": "mixed_float16"}),
    pytest.param("luong", {"policy": "mixed_bfloat16", "jit_compile": True}, marks=pytest.mark.slow),
    pytest.param(
        "rnnencdec, bare context, dropout",
        {"run_eagerly": True},
        marks=pytest.mark.skipif(keras.backend.backend() == "jax", reason="compiles each operation alone, for long"),
    ),
]


@pytest.mark.parametrize(("name", "options"), FITTED)
def test_fit_follows_the_optimizers_steps(inputs, name, options):
    """Five batches, two of them an update."""
    options = dict(options)
    keras.config.set_dtype_policy(options.pop("policy", "float32"))
    if keras.backend.backend() == "torch":
        options.pop("jit_compile", None)
    model = make(name, scheduled_sampling="inverse_sigmoid,k=2,seed=3")
    model.compile(keras.optimizers.Adam(1e-3, gradient_accumulation_steps=2), SmoothedCrossentropy(), **options)
    inputs["encoder_token_ids"] %= 31
    history = model.fit(inputs, inputs["decoder_token_ids"], batch_size=2, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert int(model._token_sampler.iterations) == 3
    model.compile("sgd", SmoothedCrossentropy(), **options)  # begins anew
    model.train_on_batch({k: v[:2] for k, v in inputs.items()}, inputs["decoder_token_ids"][:2])
    assert int(model._token_sampler.iterations) == 1


@pytest.mark.slow
def test_training_goes_on_after_loading_as_if_there_were_no_break(inputs, tmp_path):
    def fit(model, epochs):
        model.fit(inputs, inputs["decoder_token_ids"], batch_size=2, epochs=epochs, shuffle=False, verbose=0)
        return model

    def start():
        model = make("luong", scheduled_sampling=ScheduledSampling("linear", k=1.0, c=0.15, seed=5))
        model.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy())
        return model

    whole = fit(start(), 3)
    fit(start(), 1).save(tmp_path / "model.keras")
    again = fit(keras.saving.load_model(tmp_path / "model.keras"), 2)
    assert again.scheduled_sampling.get_config() == whole.scheduled_sampling.get_config()
    for (path, found), wanted in zip(values_of(again).items(), values_of(whole).values(), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6, err_msg=path)


def test_a_plain_models_weights_load_and_back(inputs, tmp_path):
    plain, sampling = make("rnnencdec"), make("rnnencdec", scheduled_sampling=0.5)
    assert [weight.path for weight in sampling.weights] == [weight.path for weight in plain.weights]
    for source, other in ((plain, sampling), (sampling, plain)):
        for weight in source.weights:
            weight.assign(1.1 * weight)
        source.save_weights(tmp_path / "model.weights.h5")
        other.load_weights(tmp_path / "model.weights.h5")
        np.testing.assert_array_equal(ops.convert_to_numpy(other(inputs)), ops.convert_to_numpy(source(inputs)))
