"""Keras' implicit masks through several layers; of each layer by itself they are in tests/contracts."""

import keras
import numpy as np
from keras import layers, ops

import keras_attn as ka

B, T, S, H, V = 3, 3, 5, 6, 11
SOURCE = np.array([[2, 3, 4, 5, 6], [7, 8, 9, 0, 0], [0, 0, 3, 4, 5]])  # (B, S): full, padded right, padded left
TARGET = np.array([[2, 3, 4], [5, 6, 0], [7, 0, 0]])  # (B, T)
MASK = SOURCE != 0


def embedded(token_ids):
    keras.utils.set_random_seed(3)
    return layers.Embedding(V, H, mask_zero=True)(ops.convert_to_tensor(token_ids))


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


def test_word_dropout_keeps_the_mask_in_training():
    dropped = ka.WordDropout(0.5, seed=1)(embedded(SOURCE), SOURCE, training=True)
    attention = ka.DotAttention()
    same(attention(embedded(TARGET), dropped), attention(embedded(TARGET), dropped, mask=MASK))


def test_a_functional_model_of_layers_has_the_loss_of_the_sentences_without_padding():
    """Keras' loss reads the mask that the layers hand on from the embeddings."""
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    values, _, state = ka.BiGRUEncoder(H)(layers.Embedding(V, H, mask_zero=True)(source))
    inputs = layers.Embedding(V, H, mask_zero=True)(target)
    outputs, contexts, _ = ka.AttentionDecoder(layers.GRUCell(H), "additive")(inputs, values, cell_state=[state])
    model = keras.Model([source, target], layers.Dense(V)(layers.Concatenate()([outputs, contexts])))
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def loss(labels, *ids):  # Keras leaves out what the implicit mask of the logits does
        return ops.convert_to_numpy(crossentropy(labels, model([*ids])))

    labels = (TARGET + 1) % V
    padded = loss(labels, SOURCE, TARGET)
    rows = zip(SOURCE, TARGET, labels, strict=True)
    alone = [loss(z[y != 0][None], x[x != 0][None], y[y != 0][None]) for x, y, z in rows]
    np.testing.assert_allclose(padded, sum(alone), rtol=1e-5)
