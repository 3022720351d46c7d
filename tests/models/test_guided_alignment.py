"""Guided alignment: the loss by hand, from words to tokens, in `fit`, and the attention that it trains."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import ParallelDataset, Tokenizer
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models.seq2seq import alignment_crossentropy
from tests.contracts.model_rows import make
from tests.search.searching import compiled_tensors

SOURCE = ["a b c", "b a", "c a b", "a"] * 4
TARGET = ["z y x", "x y", "y x z", "x"] * 4  # each word translated, from right to left
LINKS = [{(2, 0), (1, 1), (0, 2)}, {(1, 0), (0, 1)}, {(2, 0), (1, 1), (0, 2)}, {(0, 0)}] * 4
EAGER = {"run_eagerly": keras.backend.backend() == "tensorflow"}  # tracing takes longer; `fit` below is compiled
MODELS = ["rnnsearch", "luong, local-m, not fed", "hard_monotonic", "transformer"]


def test_the_loss_by_hand():
    """Three of four target words have links: one to one, two and two words of the source."""
    alignments = np.array([[[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]], [[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]], "float32")
    targets = np.array([[[1, 0, 0], [0.5, 0.5, 0]], [[0, 0, 0], [0.5, 0, 0.5]]], "float32")
    rows = [np.log(0.5), 0.5 * np.log(0.1) + 0.5 * np.log(0.9), 0.5 * np.log(1e-6)]
    total, count = alignment_crossentropy(ops.convert_to_tensor(alignments), ops.convert_to_tensor(0.3 * targets))
    assert float(total) == pytest.approx(-0.3 * sum(rows), rel=1e-5)
    assert float(count) == 3


def test_targets_of_a_batch_are_padded_or_cut_as_the_model_does_its_source():
    alignments = ops.convert_to_tensor(np.array([[[0.25, 0.75]], [[0.5, 0.5]]], "float32"))
    longer = np.array([[[0, 1, 0]], [[0, 0, 1]]], "float32")
    for targets, total, count in ((longer, -np.log(0.75), 1), (np.ones((2, 1, 1), "float32"), -np.log(0.125), 2)):
        found = alignment_crossentropy(alignments, ops.convert_to_tensor(targets))
        np.testing.assert_allclose([float(x) for x in found], [total, count], rtol=1e-5)


@pytest.fixture(scope="module")
def data():
    tokenizers = [Tokenizer.train(lines, level="word") for lines in (SOURCE, TARGET)]
    return ParallelDataset.from_text(
        SOURCE, TARGET, *tokenizers, batch_size=4, bucket_boundaries=[3, 4], seed=1, links=LINKS, alignment_weight=0.5
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_step_adds_the_loss_of_the_alignments_and_nothing_else_does(name, data):
    if name == "transformer":
        pytest.importorskip("keras_hub")
    model = make(name, **{key: 0.0 for key in ("dropout",) if name == "transformer"})
    model.compile(keras.optimizers.SGD(0.0), SmoothedCrossentropy(), **EAGER)
    inputs, labels, weights = data[1]
    assert set(inputs) == {"encoder_token_ids", "decoder_token_ids", "alignments"}
    plain = {side: ids for side, ids in inputs.items() if side != "alignments"}
    guided, unguided = (model.train_on_batch(batch, labels, weights) for batch in (inputs, plain))
    aligned = ops.convert_to_numpy(compiled_tensors(model.align)(*plain.values())[1])
    added = -(inputs["alignments"] * np.log(np.maximum(aligned, 1e-6))).sum()
    added /= (inputs["alignments"].sum(axis=-1) > 0).sum()
    np.testing.assert_allclose(guided - unguided, added, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.test_on_batch(inputs, labels, weights), unguided, rtol=1e-5)
    predictions = [model.predict_on_batch(batch) for batch in (inputs, plain)]
    np.testing.assert_array_equal(*predictions)


@pytest.mark.parametrize(
    "name", ["rnnsearch, current state, all tied, dropout", "transformer, normalised first, all tied, dropout"]
)
def test_dropout_acts_in_a_guided_step_too(name, data):
    """With the weights left as they are, two steps have another loss only if their dropout differs."""
    if name.startswith("transformer"):
        pytest.importorskip("keras_hub")
    model = make(name)
    model.compile(keras.optimizers.SGD(0.0), SmoothedCrossentropy(), **EAGER)
    first, second = (model.train_on_batch(*data[1]) for _ in range(2))
    assert abs(first - second) > 1e-4


def test_attention_follows_the_links(data):
    model = make("rnnsearch", dtype="mixed_bfloat16", scheduled_sampling="constant,k=0.9,seed=1")
    model.compile(keras.optimizers.Adam(0.05), SmoothedCrossentropy())
    model.fit(data, epochs=24, verbose=0)
    right = total = 0
    for inputs, _, _ in data:
        aligned = ops.convert_to_numpy(model.align(inputs["encoder_token_ids"], inputs["decoder_token_ids"])[1])
        linked = inputs["alignments"].any(axis=-1)  # (B, T)
        right += (aligned.argmax(axis=-1) == inputs["alignments"].argmax(axis=-1))[linked].sum()
        total += linked.sum()
    assert total == sum(map(len, LINKS))
    assert right / total > 0.8


@pytest.mark.parametrize("name", ["rnnencdec", "lstm_seq2seq"])
def test_a_model_without_attention_is_refused(name, data):
    model = make(name)
    model.compile("adam", SmoothedCrossentropy(), run_eagerly=True)
    with pytest.raises(ValueError, match="Expected a model with attention for guided alignment"):
        model.train_on_batch(*data[0])
