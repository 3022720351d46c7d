"""Keras' implicit masks through several layers; of each layer by itself they are in tests/contracts."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka
from tests.arrays import numpy_of, same
from tests.search.searching import compiled_tensors

B, T, S, H, V = 3, 3, 5, 6, 11
SOURCE = np.array([[2, 3, 4, 5, 6], [7, 8, 9, 0, 0], [0, 0, 3, 4, 5]])  # (B, S): full, padded right, padded left
TARGET = np.array([[2, 3, 4], [5, 6, 0], [7, 0, 0]])  # (B, T)


@pytest.mark.parametrize("reduce", [2, 3])
def test_a_pyramid_reads_a_row_as_it_stands_anywhere(rng, reduce):
    """Three layers, and one row with 0, 1, ... places of padding at its left."""
    row, places = rng.normal(size=(5, H)).astype("float32"), 5
    x = np.stack([np.pad(row, [(n, places - n), (0, 0)]) for n in range(places + 1)])
    mask = np.stack([np.pad(np.ones(5, bool), (n, places - n)) for n in range(places + 1)])
    stacks = [layers.StackedRNNCells([layers.GRUCell(4) for _ in range(3)]) for _ in range(2)]
    pyramid = ka.PyramidEncoder(stacks[0], backward_cell=stacks[1], reduce=reduce)
    values, *states = pyramid(x, mask=mask)
    alone, *its_states = numpy_of(pyramid(row[None]))
    real = ops.convert_to_numpy(pyramid.compute_mask(None, mask))
    np.testing.assert_array_equal(real.sum(1), alone.shape[1])
    np.testing.assert_allclose(ops.convert_to_numpy(values)[real], np.tile(alone[0], (len(x), 1)), atol=1e-6)
    same(states, [np.repeat(its, len(x), axis=0) for its in its_states], atol=1e-6)


def encoder():
    """A model within a model; a layer of Keras' and self-attention between encoder and decoder."""
    inputs = keras.Input((None, H))
    values, _, state = ka.BiGRUEncoder(H)(inputs)
    values = layers.Dropout(0.1)(layers.Dense(H)(values))
    return keras.Model(inputs, [ka.SelfAttention(2, return_attention_scores=False)(values), state])


def whole_model():
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    values, state = encoder()(layers.Embedding(V, H, mask_zero=True)(source))
    inputs = layers.Embedding(V, H, mask_zero=True)(target)
    decoder = ka.DecoderStack(ka.AttentionDecoder(layers.GRUCell(H), "additive"), [layers.GRUCell(H)])
    outputs, contexts, alignments = decoder(inputs, values, cell_state=[state])
    outputs = ka.layers.TransformerDecoder(2, H)(outputs, values)
    logits = layers.Dense(V)(layers.Concatenate()([outputs, contexts]))
    mask = ops.not_equal(source, 0)
    log_probs = ka.PointerGenerator()(logits, outputs, inputs, contexts, alignments, source, mask=mask)
    return keras.Model([source, target], log_probs)


@pytest.mark.filterwarnings("ignore:Layer 'functional:UserWarning")  # of Keras, of masks for any model within another
def test_a_functional_model_of_layers_has_the_loss_of_the_sentences_without_padding(tmp_path):
    """Keras' loss reads the mask that the layers hand on from the embeddings; so it does when the model is loaded."""
    model = whole_model()
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")

    def losses(whole, alone):
        def loss(batch, model=model):  # Keras leaves out what the implicit mask of the logits does
            labels, *ids = batch
            return crossentropy(labels, model(ids))

        return loss(whole), loss(whole, loaded), sum(map(loss, alone))

    whole = (TARGET + 1) % V, SOURCE, TARGET
    rows = zip(*whole, strict=True)
    alone = [(z[y != 0][None], x[x != 0][None], y[y != 0][None]) for z, x, y in rows]
    padded, again, by_itself = map(ops.convert_to_numpy, compiled_tensors(losses)(whole, alone))
    np.testing.assert_allclose(padded, by_itself, rtol=1e-5)
    np.testing.assert_allclose(again, padded, rtol=1e-6)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        model.export(tmp_path / "exported", verbose=False)
        exported = tf.saved_model.load(tmp_path / "exported")
        found = exported.serve([tf.constant(x, "int32") for x in (SOURCE, TARGET)])
        np.testing.assert_allclose(found, ops.convert_to_numpy(model([SOURCE, TARGET])), atol=1e-5)


def test_a_memory_of_two_axes_is_refused_in_a_sentence():
    values, query = np.ones((B, 7, 7, H), "float32"), np.ones((B, T, H), "float32")
    decoder = ka.AttentionDecoder(layers.GRUCell(H), "general")
    stack = layers.StackedRNNCells([layers.GRUCell(H), layers.GRUCell(H)])
    encoders = ka.BiGRUEncoder(H), ka.PyramidEncoder(stack), ka.layers.StackedEncoder(stack.cells[:1], stack.cells[1:])
    readers = ka.DotAttention(), decoder, ka.DecoderStack(decoder, []), ka.layers.TransformerDecoder(2, H)
    for name, arguments, calls in (("values", (query, values), readers), ("inputs", (values,), encoders)):
        sentence = rf"Expected {name} of shape \(B, S, M\).* Received: .*7, 7, 6\)\. .*Reshape"
        for call in calls:
            with pytest.raises(ValueError, match=sentence):
                call(*arguments)
    decoder(query, values[:, 0])
    for call in (decoder.memory, partial(ka.layers.PairReadout(H), query)):
        with pytest.raises(ValueError, match=r"Received: values of shape \(3, 7, 7, 6\)"):
            call(values)
    flat = layers.Reshape((-1, H))(values)
    assert ka.DotAttention()(query, flat, mask=ops.reshape(np.ones((B, 7, 7), "bool"), (B, -1)))[1].shape == (B, T, 49)


def test_a_query_of_other_axes_and_inputs_of_two_are_refused():
    values = np.ones((B, S, H), "float32")
    attentions = (
        ka.DotAttention(),
        ka.BahdanauAttention(7),
        ka.layers.CoverageAttention(7),
        ka.layers.MultiHeadAttention(2),
    )
    for attention in attentions:
        for shape in ((H,), (B, T, 1, H), (1, H), (B + 1, T, H)):
            with pytest.raises(ValueError, match=r"Expected a query of shape \(B, H\) or \(B, T, H\), and values"):
                attention(np.ones(shape, "float32"), values)
    for shape in ((B, H), (B, T, 1, H)):
        with pytest.raises(ValueError, match=r"Expected inputs of shape \(B, S, M\)"):
            ka.AttentionDecoder(layers.GRUCell(H), ka.BahdanauAttention(7))(np.ones(shape, "float32"), values)


def test_masks_in_a_list_as_for_kerass_attention_are_refused():
    query, values, mask = np.ones((B, T, H), "float32"), np.ones((B, S, H), "float32"), SOURCE != 0
    for given in ([None, mask], [TARGET != 0, mask]):
        with pytest.raises(ValueError, match=r"Expected one mask of shape \(B, S\).* Received: a list of 2\."):
            ka.DotAttention()(query, values, mask=given)
    np.testing.assert_array_equal(ka.DotAttention()(query, values, mask=mask.tolist())[1].shape, (B, T, S))


OF_STEPS = {
    "additive": lambda: ka.BahdanauAttention(7),
    "location": lambda: ka.LocationAttention(11),
    "local_m": lambda: ka.LocalMonotonicAttention(window=1),
    "local_m, location": lambda: ka.LocalMonotonicAttention("location", window=1),
    "local_p": lambda: ka.LocalPredictiveAttention(window=2),
    "coverage": lambda: ka.CoverageAttention(7),
    "neural_coverage": lambda: ka.NeuralCoverageAttention(7),
    "location_sensitive": lambda: ka.LocationSensitiveAttention(7, filters=2, kernel_size=3),
    "additive_monotonic": lambda: ka.BahdanauMonotonicAttention(7),
    "heads, coverage": lambda: ka.MultiHeadAttention(2, score="coverage"),
}


@pytest.mark.parametrize("name", OF_STEPS)
def test_a_mask_of_each_step_is_that_of_one_step_at_a_time(name, rng):
    attention = OF_STEPS[name]()
    query, values = (rng.normal(size=shape).astype("float32") for shape in ((B, T, H), (B, S, H)))
    masks = (SOURCE != 0)[:, None] & np.tri(T, S, k=2, dtype="bool")  # (B, T, S)
    whole = attention(query, values, mask=masks)
    state, found = attention.initial_state(values), []
    for t in range(T):
        *out, state = attention(query[:, t], values, mask=masks[:, t], state=state)
        found.append(out)
    same(whole, [*(ops.stack(parts, axis=1) for parts in zip(*found, strict=True)), state])
    alignment = ops.convert_to_numpy(whole[1])  # (B, T, S), with heads (B, T, N, S)
    seen = masks if alignment.ndim == 3 else masks[:, :, None]
    np.testing.assert_array_equal(np.where(seen, 0, alignment), 0)


def test_a_mask_of_each_step_may_have_an_unknown_number_of_them(rng, tmp_path):
    x = rng.normal(size=(B, S, H)).astype("float32")
    inputs = keras.Input((None, H))
    model = keras.Model(inputs, ka.SelfAttention(2, causal=True, return_attention_scores=False)(inputs))
    expected = ops.convert_to_numpy(model(x))
    np.testing.assert_allclose(model.predict(x[:, :3], verbose=0), expected[:, :3], atol=1e-5)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        model.export(tmp_path / "exported", verbose=False)
        exported = tf.saved_model.load(tmp_path / "exported")
        np.testing.assert_allclose(exported.serve(tf.constant(x)), expected, atol=1e-5)
