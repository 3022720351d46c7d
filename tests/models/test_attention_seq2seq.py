"""`AttentionSeq2Seq` beyond the contract of models: what an encoder may return, pointers, heads, and errors."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn import models
from tests.contracts.model_rows import VT, B, F, S, T, inputs_of, make, some_inputs

numpy = ops.convert_to_numpy
LABELS = np.roll(some_inputs()["decoder_token_ids"], -1, axis=1)


def parts(attention=None, **options):
    """A decoder, an embedding and a head."""
    decoder = ka.AttentionDecoder(keras.layers.GRUCell(5), attention or ka.BahdanauAttention(3), **options)
    return decoder, keras.layers.Embedding(VT, 7), keras.layers.Dense(VT)


class Returns(keras.layers.Layer):
    """An encoder that returns anything, made by a function of the frames."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def call(self, frames):
        return self.make(frames)


def model_of(make, attention=None):
    return models.AttentionSeq2Seq(Returns(make), *parts(attention), inputs=keras.Input((None, F)))


def test_an_encoder_may_return_a_tensor_a_tuple_or_a_dict():
    """All but the first state are the same; a mask of its own wins over none."""
    keras.utils.set_random_seed(3)
    inputs = inputs_of("attention, frames")

    def state(x):
        return ops.tile(ops.sum(x, axis=(1, 2))[:, None], (1, 5))  # (B, 5)

    of_values = [lambda x: x, lambda x: {"values": x}, lambda x: {"values": x[:, None]}]
    of_states = [
        lambda x: (x, state(x)),  # a GRU of Keras
        lambda x: (x, [state(x)], state(x)),  # `RNNEncoder`
        lambda x: {"values": x, "cell_state": state(x), "mask": ops.ones_like(x[:, :, 0], dtype="bool")},
    ]
    for group in (of_values, of_states):
        made = [model_of(make) for make in group]
        for model in made[1:]:
            model.set_weights(made[0].get_weights())
        found = [numpy(model(inputs)) for model in made]
        for other in found[1:]:
            np.testing.assert_allclose(other, found[0], atol=1e-6)


@pytest.mark.parametrize(
    ("make", "received"),
    [(lambda x: {"h": x}, r"\['h'\]"), (lambda x: x[:, 0], r"\[\(None, 2\)\]")],
    ids=["without values", "a vector"],
)
def test_an_encoder_that_returns_something_else_is_refused(make, received):
    with pytest.raises(ValueError, match=rf'Expected an encoder that returns values .*"values"\. Received: {received}'):
        model_of(make)


def test_the_inputs_of_an_encoder_must_be_known_and_ids_must_be_whole():
    with pytest.raises(ValueError, match=r"Expected `inputs`, such as .* unless the encoder is a functional model"):
        models.AttentionSeq2Seq(Returns(lambda x: x), *parts())
    series = np.ones((B, S), "float32")
    model = make("rnnsearch")
    with pytest.raises(ValueError, match=r"encoder_token_ids of dtype int32\. Received: dtype float32"):
        model(some_inputs() | {"encoder_token_ids": series})
    for call in (model.encode, lambda x: model.generate(x, max_length=3)):
        with pytest.raises(ValueError, match="Expected encoder_token_ids of dtype int32"):
            call(series)
    model = models.AttentionSeq2Seq(
        keras.Sequential([keras.Input((None,)), keras.layers.Reshape((-1, 1))]), *parts()
    )  # a series of numbers
    assert np.isfinite(numpy(model({"encoder_inputs": series, "decoder_token_ids": np.ones((B, T), "int32")}))).all()


def test_parts_of_another_kind_and_masks_of_another_number_are_refused():
    encoder, (decoder, embedding, head) = keras.Sequential([keras.Input((None, F)), keras.layers.Dense(5)]), parts()
    for wrong, message in (
        (
            (keras.layers.GRU(5), embedding, head),
            r"Expected an `AttentionDecoder` or a `DecoderStack`\. Received: .*GRU",
        ),
        ((decoder, VT, head), f"Expected `target_embedding` to be a layer. Received: target_embedding={VT}"),
        ((decoder, embedding, VT), f"Expected `head` to be a layer. Received: head={VT}"),
    ):
        with pytest.raises(ValueError, match=message):
            models.AttentionSeq2Seq(encoder, *wrong)
    with pytest.raises(ValueError, match=r"Expected a mask for each of 2 memories, or None\. Received: 1"):
        model_of(lambda x: {"values": [x, x], "mask": [ops.any(x != 0, axis=-1)]}, ["additive", "additive"])


def test_a_layer_of_two_arguments_is_trained_but_not_saved(tmp_path):
    decoder, embedding, head = parts()
    ids = keras.Input((None,), dtype="int32", name="encoder_token_ids")
    encoder = keras.Model({ids.name: ids}, ka.RNNEncoder(keras.layers.GRUCell(5), return_state=False)(embedding(ids)))
    model = models.AttentionSeq2Seq(encoder, decoder, embedding, head)
    model.compile("sgd", ka.losses.SmoothedCrossentropy())
    model.fit(some_inputs(), LABELS, verbose=0)
    with pytest.raises(ValueError, match=r"Received: 'embedding\w*' in encoder and in target_embedding"):
        model.save(tmp_path / "model.keras")
    drop = keras.layers.Dropout(0.5)  # nothing to tie
    values = ka.RNNEncoder(keras.layers.GRUCell(5), return_state=False)(drop(keras.layers.Embedding(9, 5)(ids)))
    encoder = keras.Model({ids.name: ids}, values)
    models.AttentionSeq2Seq(encoder, decoder, embedding, keras.Sequential([drop, head])).save(tmp_path / "model.keras")


@pytest.mark.parametrize("value", [-1, 256, 2**32 + 5])
def test_whole_numbers_that_the_dtype_of_an_input_does_not_hold_are_refused(value):
    pixels = keras.Input((None, F), dtype="uint8")
    model = models.AttentionSeq2Seq(Returns(lambda x: ops.cast(x, "float32")), *parts(), inputs=pixels)
    with pytest.raises(ValueError, match=rf"Expected encoder_inputs of uint8, from 0 to 255\. Received: {value}$"):
        model.generate(np.full((B, 3, F), value), max_length=3)
    model.generate(np.full((B, 3, F), 255), max_length=3)


FRAMES, TWO = "attention, frames", "attention, two memories"
WRONG_SHAPE = rf"Expected encoder_inputs of shape \(None, None, {F}\), rows first"
WRONG_DICT = r"Expected a source as a dict of encoder_token_ids, frames\. Received: "
WRONG_SOURCES = [
    *((FRAMES, np.ones(shape, "float32"), WRONG_SHAPE) for shape in [(3, F), (B, 3, F + 1), (B, 3, F, 1, 1)]),
    (FRAMES, np.zeros((0, 3, F)), r"at least one, in each array\. Received: \[0\]"),
    (FRAMES, np.zeros((2, 0, F)), r"Expected a source with elements\. Received: shape \(2, 0, "),
    (FRAMES, [np.ones((n, F)) for n in (3, 2)], r"pad_sequences.*Received: rows of the shapes \[\(2, 2\), \(3, 2\)\]"),
    (FRAMES, ["a", "b"], r"a source of numbers; a `Translator` takes text\. Received: \['a', 'b'\]"),
    (TWO, [[1.0]], f"{WRONG_DICT}list$"),
    (TWO, np.ones((2, 3)), f"{WRONG_DICT}ndarray$"),
    (TWO, {"frames": [[1.0]]}, f"{WRONG_DICT}frames$"),
    # Before they are cast.
    ("rnnsearch", np.array([[2**32 + 5, 3]]), r"Expected encoder_token_ids from 0 to \d+, .* Received: 4294967301"),
]
built = functools.cache(make)


@pytest.mark.parametrize(("name", "source", "sentence"), WRONG_SOURCES)
def test_wrong_sources_are_refused(name, source, sentence):
    with pytest.raises(ValueError, match=sentence):
        built(name).generate(source, max_length=3)


class Variadic(keras.layers.Layer):
    def call(self, outputs, *others, **named):
        assert not others
        return outputs


class Misnamed(keras.layers.Layer):
    def call(self, outputs, alignment):
        return outputs


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="the others raise errors of their own")
def test_ids_of_an_unknown_vocabulary_that_are_embedded_as_nan_are_refused():
    ids = keras.Input((None,), dtype="int32")
    model = models.AttentionSeq2Seq(keras.Model(ids, keras.layers.Embedding(20, 6)(ids)), *parts())
    with pytest.raises(ValueError, match="Expected a source with a finite encoding"):
        model.generate(np.array([[5, 66, 3]]), max_length=3)


def test_a_prefix_is_checked_before_it_is_cast_and_may_be_empty():
    """tests/models/test_generate.py has its other mistakes."""
    model, source = built("rnnsearch"), np.array([[4, 3], [5, 3]])
    with pytest.raises(ValueError, match=r"Expected forced_prefix from 0 to \d+, .* Received: 4294967301"):
        model.generate(source, max_length=3, forced_prefix=[[2**32 + 5]] * 2)
    inputs = {"encoder_token_ids": source, "decoder_token_ids": source}
    expected = model.generate(source, max_length=3, forced_prefix=[[], []])
    np.testing.assert_array_equal(model.generate(inputs, max_length=3).token_ids, expected.token_ids)


def test_what_a_head_asks_for_must_be_known():
    decoder, embedding, _ = parts()
    encoder = Returns(lambda x: x)
    models.AttentionSeq2Seq(encoder, decoder, embedding, Variadic(), inputs=keras.Input((None, F)))
    with pytest.raises(
        ValueError, match=r"Misnamed\.call` after its first among \['alignments', .*Received: alignment$"
    ):
        models.AttentionSeq2Seq(encoder, decoder, embedding, Misnamed(), inputs=keras.Input((None, F)))


def test_heads_of_several_memories_are_zero_in_the_others():
    attentions = [
        ka.BahdanauAttention(3, name="one"),
        ka.MultiHeadAttention(2, score="additive", head_units=3, name="two"),
    ]
    model = model_of(lambda x: [x, ops.concatenate([x[:, ::2], x[:, ::2]], axis=-1)], attentions)
    inputs = inputs_of("attention, frames")
    source, target = model.source_of(inputs), inputs["decoder_token_ids"]
    _, mean = model.align(source, target)
    logits, heads = model.align(source, target, each_head=True)
    assert heads.shape == (B, T, 3, S + S // 2 + 1)
    np.testing.assert_allclose(numpy(logits), numpy(model(inputs)), atol=1e-5)
    np.testing.assert_allclose(numpy(heads).mean(2), numpy(mean), atol=1e-6)
    assert not numpy(heads)[:, :, 0, S:].any()
    assert not numpy(heads)[:, :, 1:, :S].any()
    memory, _ = model.encode(source)
    first, second = model.split_alignments(mean, [mask.shape[1] for mask in memory["masks"]])
    np.testing.assert_allclose(numpy(first), numpy(heads)[:, :, 0, :S], atol=1e-6)
    np.testing.assert_allclose(numpy(second), numpy(heads)[:, :, 1:, S:].mean(2), atol=1e-6)


@keras.saving.register_keras_serializable(package="tests")
class PointedAt(keras.layers.Layer):
    """The element of the source that a token points at: token 4 + j is element j (Vinyals 2015)."""

    def call(self, token_ids, memory):
        values = memory["values"]
        values = ops.concatenate([ops.zeros_like(values[:, :4]), values], axis=1)  # for the special ids
        return ops.take_along_axis(values, ops.cast(token_ids, "int32")[:, :, None], axis=1)


@keras.saving.register_keras_serializable(package="tests")
class Pointer(keras.layers.Layer):
    """Logits of the special ids, of which the end alone is possible, and of the elements: log alpha."""

    def build(self, outputs_shape, **_):
        self.end = keras.layers.Dense(1)
        self.end.build(outputs_shape)

    def call(self, outputs, alignments):
        end, never = self.end(outputs), ops.full_like(outputs[..., :1], -1e9)
        return ops.concatenate([never, never, never, end, ops.log(alignments + 1e-9)], axis=-1)

    def compute_output_spec(self, outputs, alignments):
        size = alignments.shape[-1]
        return keras.KerasTensor((*outputs.shape[:-1], size and 4 + size), dtype=self.compute_dtype)


def test_a_pointer_network_finds_elements_of_its_source():
    """Search, teacher forcing and steps read the source through the memory; padding is never pointed at."""
    gru = keras.layers.GRU(5, return_sequences=True)
    encoder = keras.Sequential([keras.Input((None, F)), keras.layers.Masking(), gru])
    decoder, _, _ = parts()
    model = models.AttentionSeq2Seq(encoder, decoder, PointedAt(), Pointer(), coverage_loss=0.5, scheduled_sampling=0.5)
    assert model.target_vocabulary_size is None
    frames, ids = np.ones((2, 6, F), "float32"), np.array([[2, 6, 4], [2, 5, 7]])
    frames[1, 4:] = 0
    inputs = {"encoder_inputs": frames, "decoder_token_ids": ids}
    logits = numpy(model(inputs))
    assert logits.shape == (2, 3, 10)
    memory, state = model.encode(ops.convert_to_tensor(frames))
    for t in range(3):
        step, state, _ = model.step(ops.convert_to_tensor(ids[:, t]), memory, state)
        np.testing.assert_allclose(numpy(step), logits[:, t], atol=1e-5)
    found = model.generate(frames, max_length=5, beam_size=3, n_best=2)
    assert found.token_ids.shape == (2, 2, 5)
    assert found.token_ids[0].max() <= 9
    assert found.token_ids[1].max() <= 7
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert np.isfinite(model.train_on_batch(inputs, np.array([[6, 4, 3], [5, 7, 3]])))


def check_steps_and_file(model, inputs, path):
    """Steps, a search and the loaded model find what teacher forcing finds."""
    logits = numpy(model(inputs))
    memory, state = model.encode(model.source_of(inputs))
    for t in range(logits.shape[1]):
        step, state, _ = model.step(ops.convert_to_tensor(inputs["decoder_token_ids"][:, t]), memory, state)
        np.testing.assert_allclose(numpy(step), logits[:, t], atol=1e-5)
    model.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_allclose(numpy(loaded(inputs)), logits, atol=1e-6)
    assert loaded.generate(model.source_of(inputs), max_length=3, beam_size=2).token_ids.shape == (2, 1, 3)


def test_without_embedding_and_head_the_chosen_element_is_read_and_the_attention_is_the_output(tmp_path):
    elements = keras.Input((None, F))
    values = keras.layers.Dense(5)(keras.layers.Masking()(elements))
    encoder = keras.Model(elements, {"values": values, "elements": elements})
    model = models.AttentionSeq2Seq(encoder, parts()[0], None, None)
    frames = np.random.default_rng(3).normal(size=(2, 6, F)).astype("float32")
    frames[1, 4:] = 0
    ids = np.array([[2, 5, 4], [2, 3, 1]])
    inputs = {"encoder_inputs": frames, "decoder_token_ids": ids}
    logits, alignments = map(numpy, model.align(frames, ids))
    np.testing.assert_allclose(logits, np.log(np.maximum(alignments, 1e-9)), rtol=1e-5)
    chosen = np.take_along_axis(frames, ids[..., None], axis=1)  # (B, T, F)
    *_, of_chosen = model.decoder(chosen, encoder(frames)["values"], mask=frames.any(axis=-1))
    np.testing.assert_allclose(numpy(of_chosen), alignments, atol=1e-6)
    check_steps_and_file(model, inputs, tmp_path / "pointer.keras")
    if keras.backend.backend() != "tensorflow":  # whose one graph for all lengths raises TensorFlow's own error
        with pytest.raises(ValueError, match=r"Expected a source of at least 4 elements, because .*Received: 3"):
            model.generate(frames[:, :3], max_length=3)
    with pytest.raises(ValueError, match=r"Expected a `head`, or a decoder with an attention .*Received: neither"):
        models.AttentionSeq2Seq(encoder, ka.FixedContextDecoder(keras.layers.GRUCell(5)), None, None)


def test_the_head_reads_a_readout_and_coverage_may_be_a_layer(tmp_path):
    decoder, embedding, head = parts(ka.GatedAttention(3))
    frames, ids = np.ones((2, 4, F), "float32"), np.array([[2, 6, 5], [2, 7, 0]])
    encoder = keras.Sequential([keras.Input((None, F)), keras.layers.Dense(5)])
    readout, loss = ka.DeepOutput(11), ka.DoublyStochasticLoss(0.5)
    model = models.AttentionSeq2Seq(encoder, decoder, embedding, head, readout=readout, coverage_loss=loss)
    inputs = {"encoder_inputs": frames, "decoder_token_ids": ids}
    embedded = embedding(ids)
    outputs, contexts, alignments = decoder(embedded, encoder(frames))
    np.testing.assert_allclose(numpy(model(inputs)), numpy(head(readout(outputs, embedded, contexts))), atol=1e-5)
    model(inputs, training=True)
    seen = np.sum(numpy(alignments) * (ids != 0)[..., None], axis=1)  # (B, S)
    np.testing.assert_allclose(numpy(model.losses[0]), 0.5 * np.mean((1 - seen) ** 2), rtol=1e-5)
    check_steps_and_file(model, inputs, tmp_path / "readout.keras")


def test_static_axes_of_the_source_stay_static_in_a_search():
    seen = []

    def encode(x):
        seen.append(tuple(x.shape[2:]))
        return ops.reshape(x, (-1, 3 * 4, 5))

    model = models.AttentionSeq2Seq(Returns(encode), *parts(), inputs=keras.Input((3, 4, 5)))
    model.generate(np.ones((2, 3, 4, 5), "float32"), max_length=3)
    assert set(seen) == {(4, 5)}


@pytest.mark.parametrize("explicit", [False, True])
def test_places_of_a_grid_are_flattened_with_their_mask(explicit):
    """An image whose lower rows are padding: alignments 0, and what the image without them gives."""
    image = keras.Input((None, 3, F))
    values = keras.layers.Dense(5)(image if explicit else keras.layers.Masking()(image))  # (B, rows, 3, 5)
    mask = {"mask": ops.any(ops.not_equal(image, 0), axis=-1)} if explicit else {}  # (B, rows, 3)
    model = models.AttentionSeq2Seq(keras.Model(image, {"values": values, **mask}), *parts())
    images = np.random.default_rng(3).normal(size=(2, 4, 3, F)).astype("float32")
    images[:, 2:] = 0
    found, alone = (model.generate(x, max_length=4) for x in (images, images[:, :2]))
    np.testing.assert_allclose(found.scores, alone.scores, atol=1e-5)
    np.testing.assert_allclose(found.alignments[..., :6], alone.alignments, atol=1e-6)
    assert not found.alignments[..., 6:].any()
    assert model.encode(ops.convert_to_tensor(images))[0]["mask"].shape == (2, 12)
    assert all(layer.name[0].isalnum() for layer in model.layers), "a scope of TensorFlow cannot begin otherwise"
    inputs = {"encoder_inputs": images, "decoder_token_ids": np.array([[2, 5], [2, 6]])}
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    both = (ops.convert_to_numpy(one(inputs)) for one in (model, clone))
    np.testing.assert_allclose(*both, atol=1e-6)


def test_guided_alignment_of_any_source():
    model = make("attention, two memories")
    model.compile("adam", ka.losses.SmoothedCrossentropy())
    inputs = inputs_of("attention, two memories")
    plain = model.test_on_batch(inputs, LABELS)
    alignments = np.zeros((B, T, S + S // 2 + 1), "float32")
    alignments[:, :, 0] = 1
    guided = model.train_on_batch(inputs | {"alignments": alignments}, LABELS)
    assert guided > plain + 0.1
