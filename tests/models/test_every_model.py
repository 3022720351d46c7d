"""Every model on the Seq2Seq contract: one step = teacher forcing, padding, saving, search, and a task to learn.

`tests/fixtures/weights.json` lists the names and shapes of each model's weights, by which a saved model is loaded.
`python -m tests.models.test_every_model` writes it anew when a model is meant to change.
"""

import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka
from keras_attn import models
from keras_attn.backend import scan
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.search import beam_search, greedy_search
from tests import hard_attention_oracle, oracles

pytestmark = pytest.mark.by_turns

B, S, T, VS, VT = 3, 7, 5, 31, 37
PATH = Path(__file__).parents[1] / "fixtures" / "weights.json"
DROPOUT = {"embedding_dropout": 0.3, "memory_dropout": 0.2, "output_dropout": 0.5}
RNNSEARCH = {"units": 5, "embedding_size": 11, "readout_size": 11, "attention_units": 13, "decoder_units": 10}
ENCDEC = {"units": 5, "embedding_size": 7, "readout_size": 11}
LSTM = {"units": 5, "num_layers": 2, "embedding_size": 7}
LUONG = {**LSTM, "readout_size": 11}
NEMATUS = {"units": 5, "embedding_size": 7}
GNMT = {"units": 5, "embedding_size": 7, "encoder_layers": 3, "decoder_layers": 3}
RNMT_PLUS = {**GNMT, "units": 6, "embedding_size": 11, "num_heads": 2}
HARD_MONOTONIC = {**LSTM, "readout_size": 11}
TRANSFORMER = {"units": 6, "num_layers": 2, "num_heads": 3, "feed_forward_units": 11, "dropout": 0.0}
MODELS = {
    "rnnsearch": (models.RNNSearch, RNNSEARCH),
    "rnnsearch, current state, all tied, dropout": (
        models.RNNSearch,
        {
            **RNNSEARCH,
            **DROPOUT,
            "read_previous_state": False,
            "readout_activation": "tanh",
            "tie_embeddings": "all",
            "scale_embeddings": True,
            "source_vocabulary_size": VT,
        },
    ),
    "rnnsearch, local-p": (
        models.RNNSearch,
        # Named, because another module may have made one before.
        {**RNNSEARCH, "attention": ka.LocalPredictiveAttention("concat", window=2, name="local_predictive_attention")},
    ),
    "rnnsearch, monotonic": (
        models.RNNSearch,
        {**RNNSEARCH, "attention": ka.BahdanauMonotonicAttention(13, sigmoid_noise=1.0, chunk_size=2)},
    ),
    "rnnsearch, additive heads": (
        models.RNNSearch,
        {**RNNSEARCH, "attention": ka.MultiHeadAttention(2, score="additive")},
    ),
    "rnnsearch, coverage": (
        models.RNNSearch,
        {**RNNSEARCH, "attention": ka.CoverageAttention(13, max_fertility=2.0), "coverage_loss": 1.0},
    ),
    "rnnsearch, context gate": (models.RNNSearch, {**RNNSEARCH, "context_gate": "both"}),
    "rnnencdec": (models.RNNEncoderDecoder, ENCDEC),
    "rnnencdec, bare context, dropout": (
        models.RNNEncoderDecoder,
        {**ENCDEC, **DROPOUT, "project_context": False},
    ),
    "lstm_seq2seq": (models.LSTMSeq2Seq, LSTM),
    "lstm_seq2seq, forwards, tied": (
        models.LSTMSeq2Seq,
        {
            "units": 11,
            "num_layers": 1,
            "embedding_size": 11,
            "reverse_source": False,
            "tie_embeddings": "target",
            "scale_embeddings": True,
        },
    ),
    "luong": (models.LuongSeq2Seq, LUONG),
    "luong, dot, not fed": (models.LuongSeq2Seq, {**LUONG, "input_feeding": False, "attention": "dot"}),
    "luong, local-m, not fed": (models.LuongSeq2Seq, {**LUONG, "attention": "local_m", "input_feeding": False}),
    "luong, location, forwards, dropout": (
        models.LuongSeq2Seq,
        {**LUONG, **DROPOUT, "attention": ka.LocationAttention(5), "layer_dropout": 0.2, "reverse_source": False},
    ),
    "luong, location-sensitive": (models.LuongSeq2Seq, {**LUONG, "attention": "location_sensitive"}),
    "luong, neural coverage": (models.LuongSeq2Seq, {**LUONG, "attention": "neural_coverage"}),
    "luong, pointer, scheduled sampling": (
        models.LuongSeq2Seq,
        {**LUONG, "source_vocabulary_size": VT, "pointer": True, "scheduled_sampling": "inverse_sigmoid,k=2"},
    ),
    "luong, both ways": (models.LuongSeq2Seq, {**LUONG, "units": 6, "bidirectional": True}),
    "nematus": (models.NematusSeq2Seq, NEMATUS),
    "nematus, lstm, one transition": (models.NematusSeq2Seq, {**NEMATUS, "cell": "lstm", "decoder_transitions": 1}),
    "nematus, general, all tied, dropout": (
        models.NematusSeq2Seq,
        {
            **NEMATUS,
            **DROPOUT,
            "attention": "general",
            "tie_embeddings": "all",
            "scale_embeddings": True,
            "source_vocabulary_size": VT,
        },
    ),
    "nematus, bideep": (
        models.NematusSeq2Seq,
        {
            **NEMATUS,
            "encoder_layers": 2,
            "encoder_transitions": 2,
            "decoder_layers": 2,
            "decoder_transitions": 3,
            "upper_transitions": 2,
            "layer_normalization": True,
            "recurrent_dropout": 0.2,
        },
    ),
    "nematus, lstm, two stacks, normalised": (
        models.NematusSeq2Seq,
        {
            **NEMATUS,
            "cell": "lstm",
            "encoder_layers": 2,
            "encoder_order": "alternating",
            "decoder_layers": 2,
            "residual": False,
            "layer_normalization": True,
            "recurrent_dropout": 0.2,
        },
    ),
    "gnmt": (models.GNMTSeq2Seq, GNMT),
    "gnmt, after, all tied, dropout": (
        models.GNMTSeq2Seq,
        {
            **GNMT,
            **DROPOUT,
            "units": 11,
            "embedding_size": 11,
            "attend": "after",
            "attention": "general",
            "layer_dropout": 0.2,
            "recurrent_dropout": 0.2,
            "tie_embeddings": "all",
            "source_vocabulary_size": VT,
        },
    ),
    "rnmt_plus": (models.RNMTPlusSeq2Seq, RNMT_PLUS),
    "rnmt_plus, one layer, dots, tied, dropout": (
        models.RNMTPlusSeq2Seq,
        {
            **RNMT_PLUS,
            **DROPOUT,
            "embedding_size": 12,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "attention": "scaled_dot",
            "layer_dropout": 0.2,
            "recurrent_dropout": 0.2,
            "tie_embeddings": "target",
        },
    ),
    "hard_monotonic": (models.HardMonotonicSeq2Seq, HARD_MONOTONIC),
    "hard_monotonic, order 1, dropout": (
        models.HardMonotonicSeq2Seq,
        {**HARD_MONOTONIC, **DROPOUT, "order": 1, "window": 2, "layer_dropout": 0.2, "decoder_units": 7},
    ),
    "hard_monotonic, order 1, both ways": (
        models.HardMonotonicSeq2Seq,
        {**HARD_MONOTONIC, "order": 1, "monotonic": False, "num_layers": 1},
    ),
    "transformer": (models.TransformerSeq2Seq, TRANSFORMER),
    "transformer, normalised first, all tied, dropout": (
        models.TransformerSeq2Seq,
        {
            **TRANSFORMER,
            "normalize_first": True,
            "dropout": 0.3,
            "max_length": T,
            "tie_embeddings": "all",
            "source_vocabulary_size": VT,
        },
    ),
}
ONE_EACH = [
    "rnnsearch",
    "rnnencdec",
    "lstm_seq2seq",
    "luong",
    "nematus",
    "gnmt",
    "rnmt_plus",
    "hard_monotonic",
    "transformer",
]


def make(name, **options):
    kind, sizes = MODELS[name]
    sizes = {"source_vocabulary_size": VS, "target_vocabulary_size": VT, **sizes, **options}
    if "attention" in sizes and not isinstance(sizes["attention"], str):  # a layer belongs to one model
        sizes["attention"] = type(sizes["attention"]).from_config(sizes["attention"].get_config())
    model = kind(**sizes, initializer="glorot_uniform")
    for i, weight in enumerate(model.trainable_weights):  # biases too, and the same on every backend
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i))
    return model


@pytest.fixture
def inputs(rng):
    source = rng.integers(4, VS, (B, S)).astype("int32")
    target = rng.integers(4, VT, (B, T)).astype("int32")
    source[1, 4:] = 0
    source[2, 1:] = 0
    target[1, 3:] = 0
    return {"encoder_token_ids": source, "decoder_token_ids": target}


class Views(keras.Model):
    """The logits and alignments of a model all at once, one step after the other, and by `align`; compiled as one."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.built = True
        self.compile(jit_compile="auto")

    def call(self, inputs):
        source, target = inputs["encoder_token_ids"], inputs["decoder_token_ids"]
        memory, state = self.model.encode(source)

        def step(state, token_ids):
            logits, state, alignment = self.model.step(token_ids, memory, state)
            return state, (logits, alignment)

        _, steps = scan(step, state, ops.transpose(target))  # in a loop, which compiles one step
        names = ("whole", "steps", "alignments", "aligned_logits", "aligned", "mask")
        stacked = [ops.transpose(x, (1, 0, 2)) for x in steps]  # (B, T, V), (B, T, S)
        values = self.model(inputs), *stacked, *self.model.align(source, target), memory["mask"]
        return dict(zip(names, values, strict=True))


def views_of(model, inputs):
    return Views(model).predict_on_batch(inputs)


def logits_of(model, inputs):
    return model.predict_on_batch(inputs)


def alignment_total(name):
    """What a row of the alignment sums to: nothing without attention; local-p and monotonic leave some of it out."""
    return 0.0 if "lstm_seq2seq" in name else None if "local-p" in name or "monotonic" in name else 1.0


STATEFUL = [
    "luong, local-m, not fed",
    "rnnsearch, monotonic",
    "luong, location-sensitive",
    "rnnsearch, coverage",
    "luong, neural coverage",
]


@pytest.mark.parametrize("name", MODELS)
def test_steps_equal_teacher_forcing(inputs, name):
    found = views_of(make(name), inputs)
    finite = found["whole"][np.isfinite(found["whole"])]  # a pointer's words that the source does not have are -inf
    assert finite.std() > 0.3  # large enough for a mistake to show
    np.testing.assert_allclose(found["steps"], found["whole"], atol=1e-5)
    np.testing.assert_allclose(found["aligned_logits"], found["whole"], atol=1e-5)
    np.testing.assert_allclose(found["aligned"], found["alignments"], atol=1e-5)
    np.testing.assert_array_equal(found["mask"], inputs["encoder_token_ids"] != 0)
    if alignment_total(name) is not None:
        np.testing.assert_allclose(found["alignments"].sum(-1), alignment_total(name), atol=1e-5)
    np.testing.assert_array_equal(found["alignments"][2, :, 1:], 0)


def oracle(name, weights, inputs):
    source, target = inputs["encoder_token_ids"], inputs["decoder_token_ids"]
    return {
        "rnnsearch": lambda: oracles.rnnsearch(weights, source, target),
        "rnnencdec": lambda: oracles.rnnencdec(weights, source, target),
        "lstm_seq2seq": lambda: oracles.luong(weights, source, target, layers=2, attend=False),
        "luong": lambda: oracles.luong(weights, source, target, layers=2),
        "nematus": lambda: oracles.nematus(weights, source, target),
        "gnmt": lambda: oracles.gnmt(weights, source, target),
        "rnmt_plus": lambda: oracles.rnmt_plus(weights, source, target, heads=2),
        "hard_monotonic": lambda: hard_attention_oracle.transducer(weights, source, target, layers=2)[0],
        "transformer": lambda: oracles.transformer(weights, source, target, layers=2),
    }[name]()


def values_of(model):
    return {weight.path: ops.convert_to_numpy(weight) for weight in model.trainable_weights}


@pytest.mark.parametrize("name", ONE_EACH)
def test_logits_follow_the_papers_equations(inputs, name):
    model = make(name)
    np.testing.assert_allclose(logits_of(model, inputs), oracle(name, values_of(model), inputs), atol=1e-5)


@pytest.mark.parametrize("name", ONE_EACH[:-1])
def test_scaled_embeddings_enter_times_the_root_of_their_width(inputs, name):
    model = make(name, scale_embeddings=True)
    weights = values_of(model)
    for path in weights:
        if path.endswith("embedding/embeddings"):
            weights[path] = weights[path] * weights[path].shape[-1] ** 0.5
    expected = oracle(name, weights, inputs)
    # The norms of RNMT+ undo a factor but for their epsilon.
    assert np.abs(expected - oracle(name, values_of(model), inputs)).max() > (1e-3 if name == "rnmt_plus" else 0.1)
    np.testing.assert_allclose(logits_of(model, inputs), expected, atol=1e-5)


@pytest.mark.parametrize("name", [*ONE_EACH, "rnnsearch, local-p", *STATEFUL])
def test_padding_and_batch_mates_change_nothing(inputs, name):
    """The second sentence alone, without its padding, against all of them with more of it."""
    model = make(name)
    wider = {
        "encoder_token_ids": np.pad(inputs["encoder_token_ids"], ((0, 0), (0, 6))),
        "decoder_token_ids": np.pad(inputs["decoder_token_ids"], ((0, 0), (0, 2))),
    }
    alone = {"encoder_token_ids": inputs["encoder_token_ids"][1:2, :4]}
    alone["decoder_token_ids"] = inputs["decoder_token_ids"][1:2]
    np.testing.assert_allclose(logits_of(model, wider)[1, :T], logits_of(model, alone)[0], atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_saves_and_loads_in_safe_mode(inputs, name, tmp_path):
    model = make(name)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is type(model)
    assert json.dumps(again.get_config()) == json.dumps(model.get_config())
    for got, expected in zip(again.weights, model.weights, strict=True):
        assert got.path == expected.path
        np.testing.assert_array_equal(ops.convert_to_numpy(got), ops.convert_to_numpy(expected))
    if name in ("rnnsearch", "transformer"):
        np.testing.assert_array_equal(logits_of(again, inputs), logits_of(model, inputs))


def weights_of(name):
    return {w.path: list(w.shape) for w in make(name).weights if not w.path.endswith("seed_generator_state")}


@pytest.mark.parametrize("name", MODELS)
def test_weights_have_the_committed_names_and_shapes(name):
    assert weights_of(name) == json.loads(PATH.read_text())[name]


@pytest.mark.parametrize("name", ONE_EACH)
def test_gradients_reach_every_weight(inputs, name):
    model = make(name)
    model.compile(keras.optimizers.SGD(10.0), SmoothedCrossentropy())
    before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
    model.train_on_batch(inputs, inputs["decoder_token_ids"], sample_weight=np.ones((B, T), "float32"))
    for old, new in zip(before, model.trainable_weights, strict=True):
        if not new.path.endswith("key/bias"):  # adds the same to every score of a query: the softmax does not see it
            assert np.abs(old - ops.convert_to_numpy(new)).max() > 0, new.path


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="masks of cells are tested everywhere; others compile")
@pytest.mark.parametrize("name", ONE_EACH[:-1])
def test_recurrent_dropout_is_that_of_every_cell_and_of_training_alone(inputs, name):
    model = make(name, recurrent_dropout=0.4)
    cells = [layer for layer in model._flatten_layers() if hasattr(layer, "recurrent_kernel")]
    assert len(cells) >= 2
    assert {cell.recurrent_dropout for cell in cells} == {0.4}
    np.testing.assert_array_equal(logits_of(model, inputs), logits_of(make(name), inputs))
    drawn = [ops.convert_to_numpy(model(inputs, training=True)) for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-3


class Search(keras.Model):
    """Beam search and greedy search as one compiled model, as the translator runs it."""

    def __init__(self, model, length):
        super().__init__()
        self.model, self.length = model, length
        self.built = True
        self.compile(jit_compile="auto")

    def call(self, encoder_token_ids):
        beam = beam_search(
            self.model.step,
            *self.model.encode(encoder_token_ids, max_length=self.length),
            beam_size=3,
            max_length=self.length,
        )
        greedy = greedy_search(
            self.model.step,
            *self.model.encode(encoder_token_ids, max_length=self.length),
            max_length=self.length,
        )
        return {"beam": beam.token_ids[:, 0], "log_probs": beam.log_probs[:, 0], "greedy": greedy.token_ids[:, 0]}


@pytest.mark.parametrize("name", [*ONE_EACH, *STATEFUL])
def test_search_finds_what_teacher_forcing_scores(inputs, name):
    model, source = make(name), inputs["encoder_token_ids"]
    found = Search(model, 6).predict(source, verbose=0)

    def log_probs(token_ids):
        """Of each token given those before it, (B, L, V)."""
        target = np.concatenate([np.full((B, 1), 2), token_ids[:, :-1]], axis=1).astype("int32")
        logits = logits_of(model, {"encoder_token_ids": source, "decoder_token_ids": target}).astype("float64")
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    of_tokens = np.take_along_axis(log_probs(found["beam"]), found["beam"][:, :, None], axis=-1)[:, :, 0]
    np.testing.assert_allclose(np.where(found["beam"] > 0, of_tokens, 0).sum(1), found["log_probs"], atol=1e-4)
    possible = log_probs(found["greedy"])
    possible[:, :, [0, 2]] = -np.inf  # neither pad nor start is ever chosen
    possible[:, -1, [i for i in range(VT) if i != 3]] = -np.inf  # at the longest length only the end is left
    np.testing.assert_array_equal(np.where(found["greedy"] > 0, possible.argmax(-1), 0), found["greedy"])


REVERSAL = {  # without what is monotonic, which reverses nothing; its task is in test_hard_monotonic.py
    "rnnsearch": {"units": 24, "embedding_size": 16, "readout_size": 32, "attention_units": 24, "decoder_units": 24},
    "rnnencdec": {"units": 64, "embedding_size": 24, "readout_size": 48},
    "lstm_seq2seq": {"units": 48, "num_layers": 2, "embedding_size": 32},
    "luong": {"units": 32, "num_layers": 1, "embedding_size": 24, "readout_size": 32},
    "nematus": {"units": 24, "embedding_size": 16, "attention_units": 24},
    # One layer: those above read forwards alone, so that h_j knows the words before j, and another h may serve as well.
    "gnmt": {"units": 32, "embedding_size": 24, "encoder_layers": 1, "decoder_layers": 2, "scale_embeddings": True},
    "rnmt_plus": {"units": 24, "embedding_size": 16, "encoder_layers": 1, "decoder_layers": 2, "num_heads": 2},
    "transformer": {"units": 32, "num_layers": 1, "num_heads": 1, "feed_forward_units": 64, "dropout": 0.0},
}
WITHOUT_ATTENTION = ("rnnencdec", "lstm_seq2seq")


# Training is slow on torch, which compiles nothing: every model learns on TensorFlow or on JAX.
@pytest.mark.parametrize("name", ["luong"] if keras.backend.backend() == "torch" else REVERSAL)
def test_learns_to_reverse_a_sequence(name):
    """Within 160 updates it copies backwards; with attention, the alignment shows the anti-diagonal."""
    length, symbols = (4, 6) if name in WITHOUT_ATTENTION else (6, 8)
    source = np.random.default_rng(0).integers(4, 4 + symbols, (1000, length)).astype("int32")
    target = source[:, ::-1]
    ids = {
        "encoder_token_ids": source,
        "decoder_token_ids": np.concatenate([np.full((1000, 1), 2), target[:, :-1]], 1).astype("int32"),
    }
    model = MODELS[name][0](4 + symbols, 4 + symbols, **REVERSAL[name], initializer="glorot_uniform")
    rate = keras.optimizers.schedules.CosineDecay(0.01, 160)
    optimizer = keras.optimizers.Adam(rate, global_clipnorm=1.0)
    model.compile(optimizer, SmoothedCrossentropy(0.0), weighted_metrics=["accuracy"])
    model.fit(ids, target, batch_size=50, epochs=8, verbose=0)
    assert model.evaluate(ids, target, batch_size=50, verbose=0, return_dict=True)["accuracy"] > 0.99
    if name not in WITHOUT_ATTENTION:
        alignments = views_of(model, {key: array[:50] for key, array in ids.items()})["alignments"]  # (B, T, S)
        assert (alignments.argmax(-1) == np.arange(length)[::-1]).mean() > 0.9


MIXED = [
    ("rnnsearch, current state, all tied, dropout", "mixed_float16"),
    ("lstm_seq2seq", "mixed_float16"),
    ("rnnencdec, bare context, dropout", "mixed_bfloat16"),
    ("luong, both ways", "mixed_float16"),
    ("luong", "mixed_bfloat16"),
    ("transformer, normalised first, all tied, dropout", "mixed_float16"),
    ("nematus", "mixed_float16"),
    ("gnmt, after, all tied, dropout", "mixed_bfloat16"),
]
if keras.backend.backend() == "torch":
    MIXED += [("nematus, bideep", "mixed_float16"), ("rnmt_plus", "mixed_float16")]  # which compile for long


@pytest.mark.parametrize(("name", "policy"), MIXED)
def test_mixed_precision_trains_and_steps_without_nan(inputs, name, policy):
    keras.config.set_dtype_policy(policy)
    model = make(name)
    model.compile("adam", SmoothedCrossentropy())
    history = model.fit(inputs, inputs["decoder_token_ids"], epochs=3, verbose=0).history["loss"]
    assert np.isfinite(history).all()
    found = views_of(model, inputs)
    assert np.isfinite(found["steps"].astype("float32")).all()
    np.testing.assert_allclose(found["alignments"].sum(-1), alignment_total(name), atol=1e-3)


def test_two_directions_read_alike_whatever_reverse_source_says(inputs):
    found = [views_of(make("luong, both ways", reverse_source=reverse), inputs)["whole"] for reverse in (True, False)]
    np.testing.assert_array_equal(*found)


def test_two_directions_need_an_even_number_of_units():
    with pytest.raises(ValueError, match=r"even number of units to read both ways\. Received: units=5"):
        make("luong, both ways", units=5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cell": "rnn"}, '`cell` "gru" or "lstm". Received: \'rnn\''),
        ({"decoder_transitions": 0}, "`decoder_transitions` to be a positive whole number"),
        ({"decoder_layers": 0}, "`decoder_layers` to be a positive whole number"),
        ({"encoder_layers": 2, "encoder_order": "sideways"}, "`order` to be one of parallel, alternating, upwards"),
        ({"upper_transitions": 0, "decoder_layers": 2}, "`transitions` to be a positive whole number"),
    ],
)
def test_nematus_refuses_other_cells(wrong, message):
    with pytest.raises(ValueError, match=message):
        make("nematus", **wrong)


@pytest.mark.parametrize("attend", ["before", "after"])
def test_the_query_of_gnmt_is_of_the_step_before_or_of_the_same(inputs, attend):
    """Which the second alignment shows: it depends on the second word of the target only if the query has read it."""
    model, others = make("gnmt", attend=attend), {**inputs, "decoder_token_ids": inputs["decoder_token_ids"].copy()}
    expected = oracles.gnmt(values_of(model), *inputs.values(), current=attend == "after")
    np.testing.assert_allclose(logits_of(model, inputs), expected, atol=1e-5)
    others["decoder_token_ids"][:, 1] = 4 + (inputs["decoder_token_ids"][:, 1] + 1) % (VT - 4)
    (_, one), (_, other) = (model.align(*batch.values()) for batch in (inputs, others))
    changes = np.abs(ops.convert_to_numpy(one) - ops.convert_to_numpy(other))[:2].max((0, 2))  # (T,)
    np.testing.assert_array_equal(changes > 0, np.arange(T) > (1 if attend == "before" else 0))


def test_heads_of_rnmt_plus_are_aligned_each_and_on_average(inputs):
    model = make("rnmt_plus")
    heads = ops.convert_to_numpy(model.align(*inputs.values(), each_head=True)[1])
    assert heads.shape == (B, T, 2, S)
    assert np.abs(heads[:, :, 0] - heads[:, :, 1]).max() > 0.01
    np.testing.assert_allclose(heads.mean(2), ops.convert_to_numpy(model.align(*inputs.values())[1]), atol=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="where layers drop is tested with the layers")
@pytest.mark.parametrize("name", ["gnmt", "rnmt_plus"])
def test_layer_dropout_is_that_of_encoder_and_decoder_in_training_alone(inputs, name):
    model, plain = make(name, layer_dropout=0.4), make(name)
    assert (model.encoder.dropout, model.decoder.dropout) == (0.4, 0.4)
    np.testing.assert_array_equal(logits_of(model, inputs), logits_of(plain, inputs))
    drawn = [ops.convert_to_numpy(model(inputs, training=True)) for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("gnmt", {"attend": "between"}, r'`attend` to be "before" or "after"\. Received: attend=\'between\''),
        ("gnmt", {"encoder_layers": 0}, "`encoder_layers` to be a positive whole number"),
        ("gnmt", {"decoder_layers": 0}, "`decoder_layers` to be a positive whole number"),
        ("gnmt", {"tie_embeddings": "target"}, "5 features, embedding_size=7"),
        ("rnmt_plus", {"num_heads": 0}, "`num_heads` to be a positive whole number"),
        ("rnmt_plus", {"num_heads": 4}, "width 6, num_heads=4"),
        ("rnmt_plus", {"tie_embeddings": "target"}, "12 features, embedding_size=11"),
        ("rnmt_plus", {"decoder_layers": 0}, "`decoder_layers` to be a positive whole number"),
    ],
)
def test_gnmt_and_rnmt_plus_refuse_sizes_that_do_not_fit(name, wrong, message):
    with pytest.raises(ValueError, match=message):
        make(name, **wrong)


if __name__ == "__main__":
    text = json.dumps({name: weights_of(name) for name in MODELS}, indent=1)
    PATH.write_text(re.sub(r"\[\s*([\d,\s]*?)\s*\]", lambda m: f"[{' '.join(m[1].split())}]", text) + "\n")
