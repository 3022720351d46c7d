"""Keras' implicit masks: they flow through encoders, attention layers, decoders and stacks; wrong masks are refused."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka

B, T, S, H, V = 3, 3, 5, 6, 11
SOURCE = np.array([[2, 3, 4, 5, 6], [7, 8, 9, 0, 0], [0, 0, 3, 4, 5]])  # (B, S): full, padded right, padded left
TARGET = np.array([[2, 3, 4], [5, 6, 0], [7, 0, 0]])  # (B, T)
MASK = SOURCE != 0

ENCODERS = {
    "BiGRUEncoder": lambda: ka.BiGRUEncoder(H // 2),
    "RNNEncoder": lambda: ka.RNNEncoder(layers.LSTMCell(H)),
    "StackedEncoder": lambda: ka.layers.StackedEncoder([layers.GRUCell(H // 2)], [layers.GRUCell(H // 2)]),
    "Bidirectional": lambda: layers.Bidirectional(layers.GRU(H // 2, return_sequences=True)),
}
ATTENTIONS = {
    "additive": lambda: ka.BahdanauAttention(7),
    "dot": ka.DotAttention,
    "local_m": lambda: ka.LocalMonotonicAttention(window=1),
    "location_sensitive": lambda: ka.LocationSensitiveAttention(7, filters=2, kernel_size=3),
    "monotonic": lambda: ka.BahdanauMonotonicAttention(7),
    "multi_head": lambda: ka.MultiHeadAttention(2),
}


def cell():
    return layers.GRUCell(H)


def decoder(attention="additive"):
    return ka.AttentionDecoder(cell(), attention)


DECODERS = {
    "AttentionDecoder": decoder,
    "FixedContextDecoder": lambda: ka.FixedContextDecoder(cell()),
    "DecoderStack": lambda: ka.DecoderStack(decoder(), [cell()]),
    "two memories": lambda: decoder(["general", "additive"]),
}


def embedded(token_ids, mask_zero=True):
    keras.utils.set_random_seed(3)
    return layers.Embedding(V, H, mask_zero=mask_zero)(ops.convert_to_tensor(token_ids))


def encoded(encoder, token_ids, mask_zero=True):
    outputs = encoder(embedded(token_ids, mask_zero))
    return outputs if isinstance(encoder, layers.Bidirectional) else outputs[0]


def implicit_mask(x):
    """The mask that Keras gives to the next layer."""

    class Reader(layers.Layer):
        def __init__(self):
            super().__init__()
            self.supports_masking = True

        def call(self, x, mask=None):
            self.mask = mask
            return x

    reader = Reader()
    reader(x)
    return None if reader.mask is None else ops.convert_to_numpy(reader.mask)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_no_attention_falls_on_padding(encoder, attention):
    values, layer = encoded(ENCODERS[encoder](), SOURCE), ATTENTIONS[attention]()
    assert (implicit_mask(values) == MASK).all()
    query = embedded(TARGET)
    context, alignment, _ = layer(query, values)
    expected_context, expected, _ = layer(query, values, mask=MASK)
    np.testing.assert_array_equal(ops.convert_to_numpy(alignment), ops.convert_to_numpy(expected))
    np.testing.assert_array_equal(ops.convert_to_numpy(context), ops.convert_to_numpy(expected_context))
    padding = np.broadcast_to(~MASK[:, None] if attention != "multi_head" else ~MASK[:, None, None], alignment.shape)
    assert not ops.convert_to_numpy(alignment)[padding].any()
    assert (implicit_mask(context) == (TARGET != 0)).all()


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_reads_the_mask_of_its_source_and_hands_on_that_of_its_inputs(name):
    layer, values, inputs = DECODERS[name](), encoded(ENCODERS["BiGRUEncoder"](), SOURCE), embedded(TARGET)
    several = name == "two memories"
    outputs, contexts, alignments = layer(inputs, [values, values] if several else values)
    explicit = layer(inputs, [values, values] if several else values, mask=[MASK, MASK] if several else MASK)
    for got, expected in zip(
        keras.tree.flatten((outputs, contexts, alignments)), keras.tree.flatten(explicit), strict=True
    ):
        np.testing.assert_array_equal(ops.convert_to_numpy(got), ops.convert_to_numpy(expected))
    for alignment in keras.tree.flatten(alignments):
        assert not ops.convert_to_numpy(alignment)[np.broadcast_to(~MASK[:, None], (B, T, S))].any()
    for x in (outputs, contexts, explicit[0]):
        assert (implicit_mask(x) == (TARGET != 0)).all()


def test_the_transformer_decoder_too():
    pytest.importorskip("keras_hub")
    layer, values, inputs = ka.layers.TransformerDecoder(2, 7), embedded(SOURCE), embedded(TARGET)
    outputs, (_, alignment) = layer(inputs, values, return_alignments=True)
    assert not ops.convert_to_numpy(alignment)[np.broadcast_to(~MASK[:, None, None], (B, 2, T, S))].any()
    assert (implicit_mask(outputs) == (TARGET != 0)).all()


def test_self_attention_too():
    outputs, alignments = ka.SelfAttention(2)(embedded(SOURCE))
    assert not ops.convert_to_numpy(alignments)[np.broadcast_to(~MASK[:, None, None], (B, 2, S, S))].any()
    assert (implicit_mask(outputs) == MASK).all()


def test_hard_alignment_and_pointer_too():
    layer, values, states = ka.layers.HardAlignment(), embedded(SOURCE), embedded(TARGET)
    emissions = np.full((B, T, S, V), -np.log(V), "float32")
    log_probs, log_alignments = layer(states, values, emissions, TARGET)
    assert (np.exp(ops.convert_to_numpy(log_alignments))[np.broadcast_to(~MASK[:, None], (B, T, S))] == 0).all()
    assert (implicit_mask(log_probs) == (TARGET != 0)).all()
    pointer = ka.layers.PointerGenerator()
    alignment = np.full((B, T, S), 1 / S, "float32")
    mixed = pointer(embedded(TARGET), states, states, states, alignment, SOURCE, mask=MASK)
    assert (implicit_mask(mixed) == (TARGET != 0)).all()


@pytest.mark.parametrize("training", [False, True])
def test_word_dropout_keeps_the_mask(training):
    dropped = ka.WordDropout(0.5, seed=1)(embedded(SOURCE), SOURCE, training=training)
    assert (implicit_mask(dropped) == MASK).all()


def test_the_coverage_loss_leaves_padding_out():
    alignments = np.full((B, T, S), 1 / S, "float32")
    losses = []
    for inputs, mask in ((embedded(TARGET), None), (embedded(TARGET, mask_zero=False), TARGET != 0)):
        layer = ka.CoverageLoss()
        layer(inputs, alignments, mask=mask, training=True)
        losses.append(float(layer.losses[0]))
    assert losses[0] == losses[1]


def test_an_explicit_mask_wins():
    values, inputs, other = encoded(ENCODERS["BiGRUEncoder"](), SOURCE), embedded(TARGET), np.roll(MASK, 1, axis=0)
    plain = ops.convert_to_tensor(ops.convert_to_numpy(values))
    layer = decoder()
    for x, y in zip(layer(inputs, values, mask=other), layer(inputs, plain, mask=other), strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(x), ops.convert_to_numpy(y))
    encoder = ka.BiGRUEncoder(H)
    first = encoder(embedded(SOURCE), mask=other)[0]
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (first, encoder(embedded(SOURCE, False), mask=other)[0])))
    assert (implicit_mask(first) == other).all()


def test_a_functional_model_trains_as_if_there_were_no_padding(tmp_path):
    """Loss, gradients and predictions with padding are those without it; the saved model has them, too."""
    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    values, _, state = ka.BiGRUEncoder(H)(layers.Embedding(V, H, mask_zero=True)(source))
    inputs = layers.Embedding(V, H, mask_zero=True)(target)
    outputs, contexts, _ = decoder()(inputs, values, cell_state=[state])
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


LENGTHS = np.array([5, 3, 3])
READERS = {
    "attention": lambda mask: ka.BahdanauAttention(7)(embedded(TARGET), embedded(SOURCE), mask=mask),
    "monotonic": lambda mask: ka.BahdanauMonotonicAttention(7)(embedded(TARGET), embedded(SOURCE), mask=mask),
    "multi_head": lambda mask: ka.MultiHeadAttention(2)(embedded(TARGET), embedded(SOURCE), mask=mask),
    "self_attention": lambda mask: ka.SelfAttention(2)(embedded(SOURCE), mask=mask),
    "decoder": lambda mask: decoder()(embedded(TARGET), embedded(SOURCE), mask=mask),
    "fixed_context": lambda mask: ka.FixedContextDecoder(cell())(embedded(TARGET), embedded(SOURCE), mask=mask),
    "stack": lambda mask: ka.DecoderStack(decoder(), [cell()])(embedded(TARGET), embedded(SOURCE), mask=mask),
    "encoder": lambda mask: ka.BiGRUEncoder(H)(embedded(SOURCE), mask=mask),
    "stacked_encoder": lambda mask: ENCODERS["StackedEncoder"]()(embedded(SOURCE), mask=mask),
    "transformer": lambda mask: ka.layers.TransformerDecoder(2, 7)(embedded(TARGET), embedded(SOURCE), mask=mask),
}


@pytest.mark.parametrize("mask", [LENGTHS, MASK[:, :1], MASK[:1], MASK[:, :, None], MASK[:, :-1]], ids=str)
@pytest.mark.parametrize("reader", READERS)
def test_a_mask_of_another_shape_is_refused(reader, mask):
    with pytest.raises(ValueError, match=r"Expected a mask of shape \(B, S\)") as error:
        READERS[reader](mask)
    assert "ops.arange(S) < lengths[:, None]" in str(error.value)
