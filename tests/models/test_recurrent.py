"""Recurrent models: the paper's defaults, what an argument changes, and what is refused.

What all models have in common is in `tests/contracts/test_models.py`.
"""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attn.layers import (
    AttentionalLayer,
    AttentionDecoder,
    BahdanauAttention,
    DecoderStack,
    DeepOutput,
    ResidualCells,
    RNNEncoder,
)
from keras_attn.losses import SmoothedCrossentropy
from keras_attn.models import RecurrentSeq2Seq, RNNSearch, Seq2Seq
from tests import oracles
from tests.contracts.model_rows import ONE_EACH, VS, VT, B, S, T, make, some_inputs, values_of

pytestmark = pytest.mark.by_turns

INPUTS = some_inputs()


def logits_of(model, inputs=INPUTS):
    return ops.convert_to_numpy(model(inputs))


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
    weights = values_of(model)
    np.testing.assert_allclose(weights["decoder/attention/query_kernel"].std(), 0.001, rtol=0.05)
    np.testing.assert_allclose(weights["decoder/cell/kernel"].std(), 0.01, rtol=0.05)
    np.testing.assert_array_equal(weights["decoder/attention/score_vector"], 0)
    gate = weights["decoder/cell/recurrent_kernel"]
    np.testing.assert_allclose(gate @ gate.T, np.eye(1000), atol=1e-4)


def test_scaled_embeddings_enter_times_the_root_of_their_width():
    model = make("rnnsearch", scale_embeddings=True)
    weights = values_of(model)
    for path in weights:
        if path.endswith("embedding/embeddings"):
            weights[path] = weights[path] * weights[path].shape[-1] ** 0.5
    np.testing.assert_allclose(logits_of(model), oracles.rnnsearch(weights, *INPUTS.values()), atol=1e-5)


RATES = [
    *((name, "recurrent_dropout") for name in ONE_EACH[:-1]),
    *(("rnnsearch", f"{part}_dropout") for part in ("embedding", "memory", "output")),
    ("gnmt", "layer_dropout"),
    ("rnmt_plus", "layer_dropout"),
]


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="compiles each operation of a call in training alone")
@pytest.mark.parametrize(("name", "rate"), RATES)
def test_dropout_is_that_of_every_cell_and_of_training_alone(name, rate):
    model = make(name, **{rate: 0.4})
    if rate == "recurrent_dropout":
        cells = [layer for layer in model._flatten_layers() if hasattr(layer, "recurrent_kernel")]
        assert len(cells) >= 2
        assert {cell.recurrent_dropout for cell in cells} == {0.4}
    elif rate == "layer_dropout":
        assert (model.encoder.dropout, model.decoder.dropout) == (0.4, 0.4)
    np.testing.assert_array_equal(logits_of(model), logits_of(make(name)))
    drawn = [ops.convert_to_numpy(model(INPUTS, training=True)) for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-3


def test_two_directions_read_alike_whatever_reverse_source_says():
    found = [logits_of(make("luong, both ways", reverse_source=reverse)) for reverse in (True, False)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("attend", ["before", "after"])
def test_the_query_of_gnmt_is_of_the_step_before_or_of_the_same(attend):
    """Which the second alignment shows: it depends on the second word of the target only if the query has read it."""
    model, others = make("gnmt", attend=attend), {**INPUTS, "decoder_token_ids": INPUTS["decoder_token_ids"].copy()}
    expected = oracles.gnmt(values_of(model), *INPUTS.values(), current=attend == "after")
    np.testing.assert_allclose(logits_of(model), expected, atol=1e-5)
    others["decoder_token_ids"][:, 1] = 4 + (INPUTS["decoder_token_ids"][:, 1] + 1) % (VT - 4)
    (_, one), (_, other) = (model.align(*batch.values()) for batch in (INPUTS, others))
    changes = np.abs(ops.convert_to_numpy(one) - ops.convert_to_numpy(other))[:2].max((0, 2))  # (T,)
    np.testing.assert_array_equal(changes > 0, np.arange(T) > (1 if attend == "before" else 0))


@pytest.mark.parametrize("name", ["rnmt_plus", "rnnsearch", "ensemble"])
def test_alignments_of_each_head_and_on_average(name):
    model = make(name)
    heads = ops.convert_to_numpy(model.align(*INPUTS.values(), each_head=True)[1])
    assert heads.shape == (B, T, 1 if name == "rnnsearch" else 2, S)
    assert name == "rnnsearch" or np.abs(heads[:, :, 0] - heads[:, :, 1]).max() > 0.01
    np.testing.assert_allclose(heads.mean(2), ops.convert_to_numpy(model.align(*INPUTS.values())[1]), atol=1e-6)


def test_an_attention_of_another_dtype_policy():
    model = make("rnnsearch", attention=BahdanauAttention(13, dtype="float32"), dtype="mixed_bfloat16")
    assert np.isfinite(ops.convert_to_numpy(ops.cast(model(INPUTS), "float32"))).all()


def reading_the_previous_state(decoder):
    return RecurrentSeq2Seq(
        source_embedding=layers.Embedding(VS, 7),
        target_embedding=layers.Embedding(VT, 7),
        encoder=RNNEncoder(layers.GRUCell(5)),
        bridge="zeros",
        decoder=decoder,
        readout=DeepOutput(11),
        output_projection=layers.Dense(VT),
        read_previous_state=True,
    )


def test_an_output_that_is_no_state_cannot_be_the_previous_state():
    attentional = AttentionalLayer(5)
    for decoder in (
        AttentionDecoder(layers.GRUCell(5), "general", attend="after", attentional=attentional),
        AttentionDecoder(ResidualCells([layers.GRUCell(5), layers.GRUCell(5)]), "general"),
        DecoderStack(AttentionDecoder(layers.GRUCell(5), "general"), [layers.GRUCell(5)]),
    ):
        with pytest.raises(ValueError, match="output is its cell's state with `read_previous_state=True`"):
            reading_the_previous_state(decoder)


def test_without_a_bridge_the_previous_state_of_the_first_step_is_zero():
    model = reading_the_previous_state(AttentionDecoder(layers.GRUCell(5), "general"))
    tensors = map(ops.convert_to_tensor, INPUTS.values())
    np.testing.assert_allclose(ops.convert_to_numpy(Seq2Seq.align(model, *tensors)[0]), logits_of(model), atol=1e-5)


def test_training_goes_on_with_its_dropout(tmp_path):
    """The states of seed generators are saved, too; on torch, dropout draws from torch's own generator."""
    rates = {"embedding_dropout": 0.4, "memory_dropout": 0.2, "word_dropout": 0.2, "recurrent_dropout": 0.2}
    whole = make("rnnsearch", **{} if keras.backend.backend() == "torch" else rates)
    whole.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy())
    fitted = {"batch_size": B, "shuffle": False, "verbose": 0}
    whole.fit(INPUTS, INPUTS["decoder_token_ids"], **fitted)
    whole.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for model in (whole, again):
        model.fit(INPUTS, INPUTS["decoder_token_ids"], **fitted)
    for a, b in zip(again.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("rnnsearch", {"tie_embeddings": "target", "readout_size": 7}, "as wide as the embeddings"),
        ("rnnsearch", {"tie_embeddings": "source"}, "one joint vocabulary"),
        ("rnnsearch", {"tie_embeddings": "both"}, "Expected `tie_embeddings`"),
        ("rnnsearch", {"attention": "dot", "decoder_units": 17}, "one width for DotAttention"),
        ("rnnsearch", {"attention": "addative"}, "Expected an `Attention` layer, or one of"),
        ("luong", {"num_layers": 0}, "`num_layers` to be a positive whole number"),
        ("luong, both ways", {"units": 5}, r"even number of units to read both ways\. Received: units=5"),
        ("nematus", {"cell": "rnn"}, '`cell` "gru" or "lstm". Received: \'rnn\''),
        ("nematus", {"decoder_transitions": 0}, "`decoder_transitions` to be a positive whole number"),
        ("nematus", {"decoder_layers": 0}, "`decoder_layers` to be a positive whole number"),
        ("nematus", {"encoder_layers": 2, "encoder_order": "sideways"}, "`order` to be one of parallel, alternating"),
        ("nematus", {"upper_transitions": 0, "decoder_layers": 2}, "`transitions` to be a positive whole number"),
        ("gnmt", {"attend": "between"}, r'`attend` to be "before" or "after"\. Received: attend=\'between\''),
        ("gnmt", {"encoder_layers": 0}, "`encoder_layers` to be a positive whole number"),
        ("gnmt", {"decoder_layers": 0}, "`decoder_layers` to be a positive whole number"),
        ("gnmt", {"tie_embeddings": "target"}, "5 features, embedding_size=7"),
        ("rnmt_plus", {"num_heads": 0}, "`num_heads` to be a positive whole number"),
        ("rnmt_plus", {"num_heads": 4}, "width 6, num_heads=4"),
        ("rnmt_plus", {"tie_embeddings": "target"}, "12 features, embedding_size=11"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, wrong, message):
    with pytest.raises(ValueError, match=message):
        make(name, **wrong)
