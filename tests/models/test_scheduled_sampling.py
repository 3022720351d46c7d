"""Scheduled sampling: the tokens that are read, and training with them."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import ScheduledSampling
from keras_attn.losses import SmoothedCrossentropy
from tests.arrays import numpy_of, same
from tests.contracts.model_rows import VT, make, values_of

B, S, T = 6, 5, 7
OWN = ScheduledSampling("constant", k=0.0, choose="argmax")  # always the model's own token


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


@pytest.mark.parametrize("name", ["rnnsearch", "luong", "gnmt"])
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
        # Tracing takes longer on TensorFlow than running; `fit` below is compiled.
        eagerly = keras.backend.backend() == "tensorflow"
        one.compile(keras.optimizers.SGD(1.0), SmoothedCrossentropy(), run_eagerly=eagerly)
        one.train_on_batch(batch, inputs["decoder_token_ids"])
    same(values_of(model), values_of(plain))


@pytest.mark.parametrize("name", ["rnnsearch", "luong"])
def test_probability_zero_is_teacher_forcing_bit_for_bit(inputs, name):
    sampling = make(name, scheduled_sampling="linear,k=2,c=1e-9")
    np.testing.assert_array_equal(tokens_read(sampling, inputs), inputs["decoder_token_ids"])
    np.testing.assert_equal(*(numpy_of(model(inputs, training=True)) for model in (sampling, make(name))))


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


def test_fit_follows_the_optimizers_steps(inputs):
    """Five batches, two of them an update."""
    keras.config.set_dtype_policy("mixed_float16")
    model = make("rnnsearch, current state, all tied, dropout", scheduled_sampling="inverse_sigmoid,k=2,seed=3")
    model.compile(keras.optimizers.Adam(1e-3, gradient_accumulation_steps=2), SmoothedCrossentropy())
    history = model.fit(inputs, inputs["decoder_token_ids"], batch_size=2, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert int(model._token_sampler.iterations) == 3
    model.compile("sgd", SmoothedCrossentropy())  # begins anew
    model.train_on_batch({k: v[:2] for k, v in inputs.items()}, inputs["decoder_token_ids"][:2])
    assert int(model._token_sampler.iterations) == 1


def test_training_goes_on_after_loading_as_if_there_were_no_break(inputs, tmp_path):
    """The states of seed generators are saved, too; on torch, dropout draws from torch's own generator."""
    rates = {} if keras.backend.backend() == "torch" else {"embedding_dropout": 0.4, "recurrent_dropout": 0.2}
    whole = make("luong", scheduled_sampling=ScheduledSampling("linear", k=1.0, c=0.15, seed=5), **rates)
    whole.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy())
    fitted = {"batch_size": 2, "shuffle": False, "verbose": 0}
    whole.fit(inputs, inputs["decoder_token_ids"], **fitted)
    whole.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for model in (whole, again):
        model.fit(inputs, inputs["decoder_token_ids"], epochs=2, **fitted)
    same(values_of(again), values_of(whole), atol=1e-6)
