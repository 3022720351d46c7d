"""AttentionDecoder: several memories, heads, noise, loops that XLA compiles; tests/contracts has the equations."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka
from keras_attn.search import beam_search
from tests.arrays import numpy_of, same

B, T, S, E, H, M, A, V, N, D = 2, 3, 5, 7, 11, 13, 17, 19, 3, 2
MASKS = [np.array([[True] * S, [True, False, True, True, False]]), np.arange(S + 1) < np.array([[S + 1], [3]])]


@pytest.fixture
def inputs(rng):
    return rng.normal(size=(B, T, E)).astype("float32")


@pytest.fixture
def memories(rng):
    return [rng.normal(size=(B, S + i, M - 2 * i)).astype("float32") for i in range(2)]


def tensors(*structure):
    return keras.tree.map_structure(ops.convert_to_tensor, structure)


def same_steps(decoder, inputs, values, mask, whole, **options):
    """That steps equal the whole sequence."""
    values, mask = tensors(values, mask)
    memory, state = decoder.memory(values, mask), decoder.initial_state(values)
    for t in range(T):
        *out, state = decoder.step(ops.convert_to_tensor(inputs[:, t]), memory, state, **options)
        same(out, [steps[:, t] for steps in numpy_of(whole)])


def several(**options):
    """Two memories, two attentional vectors, and heads."""
    heads = ka.MultiHeadAttention(N, score=ka.LocationSensitiveAttention(D, filters=2, kernel_size=3), head_units=D)
    vectors = [ka.AttentionalLayer(A), ka.AttentionalLayer(4)]
    cell = layers.StackedRNNCells([layers.GRUCell(4), layers.LSTMCell(H)])
    options = {"attend": "after", "input_feeding": True, "attentional": vectors, **options}
    return ka.AttentionDecoder(cell, [heads, ka.GeneralAttention()], **options)


def test_several_memories_have_masks_alignments_and_vectors_of_their_own(inputs, memories, tmp_path):
    decoder = several()
    outputs, contexts, alignments = whole = decoder(inputs, memories, mask=MASKS)
    assert (outputs.shape, contexts.shape) == ((B, T, A + 4), (B, T, H + M - 2))
    assert [x.shape for x in alignments] == [(B, T, S), (B, T, S + 1)]
    for alignment, mask in zip(numpy_of(alignments), MASKS, strict=True):
        np.testing.assert_allclose(alignment.sum(-1), 1, atol=1e-5)
        np.testing.assert_array_equal(alignment.swapaxes(1, 2)[~mask], 0)
    same_steps(decoder, inputs, memories, MASKS, whole)
    of_heads = decoder(inputs, memories, mask=MASKS, each_head=True)
    assert [x.shape for x in of_heads[2]] == [(B, T, N, S), (B, T, 1, S + 1)]
    same_steps(decoder, inputs, memories, MASKS, of_heads, each_head=True)
    given = [keras.Input(x.shape[1:], dtype=str(x.dtype)) for x in (inputs, *memories, *MASKS)]
    model = keras.Model(given, decoder(given[0], given[1:3], mask=given[3:])[0])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(*numpy_of([m([inputs, *memories, *MASKS]) for m in (again, model)]))


def test_a_decoder_gives_each_heads_alignment_or_their_mean(inputs, memories):
    """Of three heads and an attention without heads."""
    heads = ka.MultiHeadAttention(N, score="additive", head_units=D)
    decoder = ka.AttentionDecoder(layers.GRUCell(H), [heads, ka.BahdanauAttention(D)])
    *both, mean = decoder(inputs, memories[0], mask=MASKS[0])
    *again, each = whole = decoder(inputs, memories[0], mask=MASKS[0], each_head=True)
    assert each.shape == (B, T, N + 1, S)
    np.testing.assert_equal(numpy_of(both), numpy_of(again))
    same(mean, ops.mean(each, axis=2), atol=1e-6)
    same_steps(decoder, inputs, memories[0], MASKS[0], whole, each_head=True)
    symbols = keras.Input((T, E)), keras.Input((S, M))
    assert decoder(*symbols, each_head=True)[2].shape == (None, T, N + 1, S)


def test_beam_search_gathers_several_memories_and_all_their_states(inputs, memories):
    """One row alone gets what it gets in the batch."""
    decoder = several()
    embed, project = layers.Embedding(V, E), layers.Dense(V)
    outputs, *_ = decoder(inputs, memories, mask=MASKS)
    embed.build(None)
    project.build(outputs.shape)

    def step(token_ids, memory, state):
        output, _, alignments, state = decoder.step(embed(token_ids), memory, state)
        return project(output), state, alignments[0]

    def search(rows, step=step):
        values, masks = tensors([x[rows] for x in memories], [x[rows] for x in MASKS])
        first = decoder.memory(values, masks), decoder.initial_state(values)
        return beam_search(step, *first, beam_size=3, n_best=2, max_length=T + 2)

    together, alone = search(slice(None)), search(slice(1, 2))
    np.testing.assert_array_equal(*numpy_of([together.token_ids[1:], alone.token_ids]))
    same(together.scores[1:], alone.scores)
    assert tuple(together.alignments.shape) == (B, 2, T + 2, S)
    with pytest.raises(ValueError, match=r"one alignment .* Received: 2 of them"):
        search(slice(None), lambda *arguments: (*step(*arguments)[:2], [step(*arguments)[2]] * 2))


def test_gradients_reach_every_weight_inside_the_decoders_loop(inputs, memories):
    """All of the family in one decoder, which XLA compiles on TensorFlow, too."""
    attentions = [
        ka.BahdanauAttention(A, normalize=True),
        ka.CosineAttention(),
        ka.LocationAttention(17),
        ka.LocalMonotonicAttention(window=1),
        ka.LocalPredictiveAttention("concat", window=2),
        ka.BahdanauMonotonicAttention(A, chunk_size=2),
        ka.GeneralMonotonicAttention(mode="recursive"),
        ka.LocationSensitiveAttention(A, filters=3, kernel_size=3),
        ka.CoverageAttention(A, max_fertility=2.0),
        ka.NeuralCoverageAttention(A, coverage_units=3),
        ka.MultiHeadAttention(3, score="additive", head_units=5),
    ]
    symbols = keras.Input((T, E)), keras.Input((S, M))
    outputs, contexts, _ = ka.AttentionDecoder(layers.GRUCell(H), attentions)(*symbols)
    model = keras.Model(symbols, ops.concatenate([outputs, contexts], axis=-1))
    model.compile("sgd", "mse", jit_compile=keras.backend.backend() != "torch")
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:  # those of zeros hide others from the error
        weight.assign(random.normal(scale=0.5, size=weight.shape))
    before = numpy_of(model.trainable_weights)
    model.train_on_batch([inputs, memories[0]], np.ones((B, *model.output_shape[1:]), "float32"))
    for old, weight in zip(before, model.trainable_weights, strict=True):
        assert np.abs(old - ops.convert_to_numpy(weight)).max() > 0, weight.path


def test_layers_above_a_decoder_start_from_its_first_state(inputs, memories, rng):
    """Each state of theirs is the decoder's h, those of an LSTM both."""
    upper = layers.LSTMCell(H)
    stack = ka.DecoderStack(ka.AttentionDecoder(layers.GRUCell(H), "general"), [upper], read_context=True)
    s = ops.convert_to_tensor(rng.normal(size=(B, H)).astype("float32"))
    outputs, contexts, _ = stack(inputs, memories[0], cell_state=[s])
    below, *_ = stack.decoder(inputs, memories[0], cell_state=[s])
    states = [s, s]
    for t in range(T):
        output, states = upper(ops.concatenate([below[:, t], contexts[:, t]], axis=-1), states)
        same(outputs[:, t], output + below[:, t])
    np.testing.assert_equal(numpy_of(stack.initial_state(memories[0], [s])["upper"]), numpy_of([s, s]))


def test_without_attention_the_steps_read_the_cell_input_too(inputs, memories):
    decoder = ka.AttentionDecoder(layers.GRUCell(H), [], cell_input=layers.Dense(9, "tanh"))
    whole = decoder(inputs, memories[0], mask=MASKS[0])
    same_steps(decoder, inputs, memories[0], MASKS[0], whole)
    np.testing.assert_array_equal(ops.convert_to_numpy(whole[2]), 0)


@pytest.mark.parametrize("attend", ["before", "after"])
def test_the_noise_of_an_attention_without_a_state_is_drawn_in_any_order(attend, inputs):
    seen = []

    class Noisy(ka.DotAttention):
        def noise(self, steps, values):
            return ops.ones((steps, *values.shape[:2]))

        def call(self, query, values, keys=None, mask=None, state=(), noise=None, values_mask=None):
            seen.append(noise)
            return super().call(query, values, keys, mask, state, values_mask)

    decoder = ka.AttentionDecoder(layers.GRUCell(H), Noisy(), attend=attend)
    values = np.ones((B, S, H), "float32")
    decoder(inputs, values, training=True)
    assert seen[-1] is not None
    decoder(inputs, values)
    assert seen[-1] is None


def test_a_location_does_not_depend_on_the_format_of_images(inputs, memories):
    layer = ka.LocationSensitiveAttention(A, filters=3, kernel_size=3)
    expected = layer(inputs, memories[0])[0]
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        found = layer(inputs, memories[0])[0]
    finally:
        keras.config.set_image_data_format(before)
    np.testing.assert_array_equal(*numpy_of([found, expected]))
