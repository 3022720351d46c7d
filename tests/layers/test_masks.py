"""Keras' implicit masks through several layers; of each layer by itself they are in tests/contracts."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka

B, T, S, H, V = 3, 3, 5, 6, 11
SOURCE = np.array([[2, 3, 4, 5, 6], [7, 8, 9, 0, 0], [0, 0, 3, 4, 5]])  # (B, S): full, padded right, padded left
TARGET = np.array([[2, 3, 4], [5, 6, 0], [7, 0, 0]])  # (B, T)
MASK = SOURCE != 0


def embedded(token_ids, mask_zero=True):
    keras.utils.set_random_seed(3)
    return layers.Embedding(V, H, mask_zero=mask_zero)(ops.convert_to_tensor(token_ids))


def same(found, expected):
    for x, y in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(x), ops.convert_to_numpy(y))


def test_an_attention_reads_the_mask_that_keras_own_encoder_hands_on():
    values = layers.Bidirectional(layers.GRU(H, return_sequences=True))(embedded(SOURCE))
    attention, query = ka.BahdanauAttention(7), embedded(TARGET)
    found = attention(query, values)
    same(found, attention(query, values, mask=MASK))
    assert not ops.convert_to_numpy(found[1])[np.broadcast_to(~MASK[:, None], (B, T, S))].any()


def test_several_memories_have_a_mask_each():
    decoder = ka.AttentionDecoder(layers.GRUCell(H), ["general", "additive"])
    values = [ka.BiGRUEncoder(H)(embedded(ids))[0] for ids in (SOURCE, SOURCE[:, ::-1].copy())]
    found = decoder(embedded(TARGET), values)
    same(found, decoder(embedded(TARGET), values, mask=[MASK, MASK[:, ::-1].copy()]))


def test_the_coverage_loss_leaves_padding_out():
    alignments = np.full((B, T, S), 1 / S, "float32")
    losses = []
    for inputs, mask in ((embedded(TARGET), None), (embedded(TARGET, mask_zero=False), TARGET != 0)):
        layer = ka.CoverageLoss()
        layer(inputs, alignments, mask=mask, training=True)
        losses.append(float(layer.losses[0]))
    assert losses[0] == losses[1]
    with pytest.raises(ValueError, match=r"Expected a mask of shape \(B, S\)"):
        ka.CoverageLoss()(embedded(TARGET), alignments, mask=np.array([3, 2, 1]), training=True)


def test_an_explicit_mask_wins():
    inputs, other = embedded(TARGET), np.roll(MASK, 1, axis=0)
    layer = ka.AttentionDecoder(layers.GRUCell(H), "additive")
    same(*(layer(inputs, embedded(SOURCE, mask_zero), mask=other) for mask_zero in (True, False)))
    encoder = ka.BiGRUEncoder(H)
    same(*(encoder(embedded(SOURCE, mask_zero), mask=other) for mask_zero in (True, False)))


def test_word_dropout_keeps_the_mask_in_training():
    dropped = ka.WordDropout(0.5, seed=1)(embedded(SOURCE), SOURCE, training=True)
    attention = ka.DotAttention()
    same(attention(embedded(TARGET), dropped), attention(embedded(TARGET), dropped, mask=MASK))


def test_a_functional_model_trains_as_if_there_were_no_padding(tmp_path):
    """Loss, gradients and predictions with padding are those without it; the saved model has them, too."""
    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    values, _, state = ka.BiGRUEncoder(H)(layers.Embedding(V, H, mask_zero=True)(source))
    inputs = layers.Embedding(V, H, mask_zero=True)(target)
    outputs, contexts, _ = ka.AttentionDecoder(layers.GRUCell(H), "additive")(inputs, values, cell_state=[state])
    logits = layers.Dense(V)(layers.Concatenate()([outputs, contexts]))
    model = keras.Model({"source": source, "target": target}, logits)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"))
    labels = np.where(TARGET != 0, (TARGET + 1) % V, 0)
    padded = model.evaluate({"source": SOURCE, "target": TARGET}, labels, verbose=0)
    rows = zip(SOURCE, TARGET, labels, strict=True)
    alone = [
        model.evaluate({"source": x[x != 0][None], "target": y[y != 0][None]}, z[y != 0][None], verbose=0)
        for x, y, z in rows
    ]
    np.testing.assert_allclose(padded, sum(alone), rtol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        *(m.predict({"source": SOURCE, "target": TARGET}, verbose=0) for m in (model, loaded)), rtol=1e-6
    )
