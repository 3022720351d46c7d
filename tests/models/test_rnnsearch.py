"""RNNSearch on the Seq2Seq contract: one step = teacher forcing, padding, saving, the paper's defaults."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RNNSearch

B, S, T, VS, VT = 3, 7, 5, 31, 37
SIZES = {"units": 5, "embedding_size": 11, "readout_size": 11, "attention_units": 13, "decoder_units": 17}
VARIANTS = {
    "paper": {},
    "current state, tanh": {"read_previous_state": False, "readout_activation": "tanh"},
    "tied target": {"tie_embeddings": "target"},
    "all tied": {"tie_embeddings": "all", "source_vocabulary_size": VT},
    "dropout": {"embedding_dropout": 0.3, "memory_dropout": 0.2, "output_dropout": 0.5},
}


def make(variant="paper", **options):
    options = {"source_vocabulary_size": VS, "target_vocabulary_size": VT, **SIZES, **VARIANTS[variant], **options}
    model = RNNSearch(initializer=keras.initializers.RandomNormal(stddev=0.5, seed=1), **options)
    for i, weight in enumerate(model.trainable_weights):  # biases too, and the same on every backend
        weight.assign(0.5 * keras.random.normal(weight.shape, seed=i))
    return model


@pytest.fixture
def inputs(rng):
    source = rng.integers(4, VS, (B, S)).astype("int32")
    target = rng.integers(4, VT, (B, T)).astype("int32")
    source[1, 4:] = 0
    source[2, 1:] = 0
    target[1, 3:] = 0
    return {"encoder_token_ids": source, "decoder_token_ids": target}


def logits_of(model, inputs):
    return ops.convert_to_numpy(model(inputs))


def stepwise(model, inputs):
    memory, state = model.encode(ops.convert_to_tensor(inputs["encoder_token_ids"]))
    logits, alignments = [], []
    for column in inputs["decoder_token_ids"].T:
        step_logits, state, alignment = model.step(ops.convert_to_tensor(column), memory, state)
        logits.append(ops.convert_to_numpy(step_logits))
        alignments.append(ops.convert_to_numpy(alignment))
    return np.stack(logits, 1), np.stack(alignments, 1), ops.convert_to_numpy(memory["mask"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_equal_teacher_forcing(inputs, variant):
    model = make(variant)
    logits, alignments, mask = stepwise(model, inputs)
    np.testing.assert_allclose(logits, logits_of(model, inputs), atol=1e-5)
    np.testing.assert_array_equal(mask, inputs["encoder_token_ids"] != 0)
    np.testing.assert_allclose(alignments.sum(-1), 1, atol=1e-5)
    np.testing.assert_array_equal(alignments[2, :, 1:], 0)


def test_padding_and_batch_mates_change_nothing(inputs):
    model = make()
    expected = logits_of(model, inputs)
    wider = {
        "encoder_token_ids": np.pad(inputs["encoder_token_ids"], ((0, 0), (0, 6))),
        "decoder_token_ids": np.pad(inputs["decoder_token_ids"], ((0, 0), (0, 2))),
    }
    np.testing.assert_allclose(logits_of(model, wider)[:, :T], expected, atol=1e-5)
    for b in range(B):
        alone = logits_of(model, {name: ids[b : b + 1] for name, ids in inputs.items()})
        np.testing.assert_allclose(alone[0], expected[b], atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_saves_and_loads_in_safe_mode(inputs, variant, tmp_path):
    model = make(variant)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(again, RNNSearch)
    np.testing.assert_array_equal(logits_of(again, inputs), logits_of(model, inputs))
    np.testing.assert_array_equal(stepwise(again, inputs)[0], stepwise(model, inputs)[0])


@pytest.mark.parametrize("variant", ["paper", "all tied"])
def test_gradients_reach_every_weight(inputs, variant):
    model = make(variant)
    model.compile("sgd", SmoothedCrossentropy())
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    model.train_on_batch(inputs, inputs["decoder_token_ids"], sample_weight=np.ones((B, T), "float32"))
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert np.abs(old - ops.convert_to_numpy(new)).max() > 0, new.path


def test_learns_to_reverse_a_sequence_by_looking_back():
    """Within a few hundred updates it copies backwards, and the alignment shows the anti-diagonal."""
    rng = np.random.default_rng(0)
    source = rng.integers(4, 14, (1500, 6)).astype("int32")
    target = source[:, ::-1]
    ids = {
        "encoder_token_ids": source,
        "decoder_token_ids": np.concatenate([np.full((1500, 1), 2), target[:, :-1]], 1).astype("int32"),
    }
    sizes = {"units": 24, "embedding_size": 16, "readout_size": 32, "attention_units": 24}
    model = RNNSearch(14, 14, **sizes, initializer="glorot_uniform")
    model.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy(0.0), weighted_metrics=["accuracy"])
    model.fit(ids, target, batch_size=50, epochs=12, verbose=0)
    test = {name: array[:50] for name, array in ids.items()}
    assert model.evaluate(ids, target, verbose=0, return_dict=True)["accuracy"] > 0.99
    alignments = stepwise(model, test)[1]  # (B, T, S)
    assert (alignments.argmax(-1) == np.arange(6)[::-1]).mean() > 0.8


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_trains_and_steps_without_nan(inputs, policy):
    keras.config.set_dtype_policy(policy)
    model = make("dropout")
    model.compile("adam", SmoothedCrossentropy())
    history = model.fit(inputs, inputs["decoder_token_ids"], epochs=3, verbose=0).history["loss"]
    assert np.isfinite(history).all()
    logits, alignments, _ = stepwise(model, inputs)
    assert np.isfinite(logits.astype("float32")).all()
    np.testing.assert_allclose(alignments.sum(-1), 1, atol=1e-3)


def test_a_seed_makes_training_repeatable(inputs):
    def weights():
        keras.utils.set_random_seed(3)
        model = RNNSearch(VS, VT, **SIZES, embedding_dropout=0.5, output_dropout=0.5, initializer="glorot_uniform")
        model.compile("adam", SmoothedCrossentropy())
        model.fit(inputs, inputs["decoder_token_ids"], epochs=2, verbose=0)
        return model.get_weights()

    for first, second in zip(weights(), weights(), strict=True):
        np.testing.assert_array_equal(first, second)


def test_defaults_are_the_papers():
    """Sizes and initialisers of appendix A, with small vocabularies."""
    model = RNNSearch(50, 60)
    shapes = {w.path: tuple(w.shape) for w in model.trainable_weights}
    assert shapes["source_embedding/embeddings"] == (50, 620)
    assert shapes["encoder/forward_0/recurrent_kernel"] == (1000, 3000)
    assert shapes["decoder/cell/kernel"] == (620 + 2000, 3000)
    assert shapes["decoder/attention/query_kernel"] == (1000, 1000)
    assert shapes["bridge/kernel"] == (1000, 1000)
    assert shapes["readout/state_kernel"] == (1000, 1000)
    assert shapes["output/kernel"] == (500, 60)
    weights = {w.path: ops.convert_to_numpy(w) for w in model.trainable_weights}
    np.testing.assert_allclose(weights["decoder/attention/query_kernel"].std(), 0.001, rtol=0.05)
    np.testing.assert_allclose(weights["decoder/cell/kernel"].std(), 0.01, rtol=0.05)
    np.testing.assert_array_equal(weights["decoder/attention/score_vector"], 0)
    gate = weights["decoder/cell/recurrent_kernel"]
    np.testing.assert_allclose(gate @ gate.T, np.eye(1000), atol=1e-4)


def test_mistakes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="`readout_size` to equal `embedding_size`"):
        RNNSearch(VS, VT, tie_embeddings="target")
    with pytest.raises(ValueError, match="one joint vocabulary"):
        RNNSearch(VS, VT, tie_embeddings="source")
    with pytest.raises(ValueError, match="Expected `tie_embeddings`"):
        RNNSearch(VS, VT, tie_embeddings="both")
