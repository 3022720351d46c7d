"""Recurrent models: the paper's defaults, the cells that a dropout reaches; what they and the Transformer refuse."""

import numpy as np
import pytest
from keras import layers, ops

from keras_attn.layers import AttentionalLayer, AttentionDecoder, DecoderStack, ResidualCells
from keras_attn.models import RNNEncoderDecoder, RNNSearch
from tests.contracts.model_rows import ONE_EACH, make, some_inputs, values_of
from tests.models.test_recurrent import logits_of, reading_the_previous_state

INPUTS = some_inputs()


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
    no_attention = values_of(RNNEncoderDecoder(50, 60))  # Cho 2014, section 4.1
    np.testing.assert_allclose(no_attention["encoder/reader/kernel"].std(), 0.01, rtol=0.05)


RATES = [
    *((name, "recurrent_dropout") for name in ONE_EACH[:-1]),
    *(("rnnsearch", f"{part}_dropout") for part in ("embedding", "memory", "output")),
    ("gnmt", "layer_dropout"),
    ("rnmt_plus", "layer_dropout"),
]


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


def test_an_output_that_is_no_state_cannot_be_the_previous_state():
    attentional = AttentionalLayer(5)
    for decoder in (
        AttentionDecoder(layers.GRUCell(5), "general", attend="after", attentional=attentional),
        AttentionDecoder(ResidualCells([layers.GRUCell(5), layers.GRUCell(5)]), "general"),
        DecoderStack(AttentionDecoder(layers.GRUCell(5), "general"), [layers.GRUCell(5)]),
    ):
        with pytest.raises(ValueError, match="output is its cell's state with `read_previous_state=True`"):
            reading_the_previous_state(decoder)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("rnnsearch", {"tie_embeddings": "target", "readout_size": 7}, "as wide as the embeddings"),
        ("rnnsearch", {"tie_embeddings": "source"}, "one joint vocabulary"),
        ("rnnsearch", {"tie_embeddings": "both"}, "Expected `tie_embeddings`"),
        ("rnnsearch", {"embedding_size": 0}, "`embedding_size` to be a positive whole number"),
        ("rnnsearch", {"decoder_units": 0}, "units"),
        ("rnnsearch", {"recurrent_dropout": 1.5}, "Expected `recurrent_dropout` from 0 to below 1"),
        ("rnnsearch", {"readout_activation": "maxot"}, "maxot"),
        ("hard_monotonic", {"readout_size": 0}, "`units` to be a positive whole number"),
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
        ("hard_monotonic", {"order": 2}, r"Expected `order` 0 or 1\. Received: order=2"),
        ("hard_monotonic", {"window": 0}, "`window` to be a positive whole number"),
        ("hard_monotonic", {"scheduled_sampling": 0.5}, "Expected arguments among.*Received: scheduled_sampling"),
        ("hard_monotonic", {"coverage_loss": 0.5}, "Expected arguments among.*Received: coverage_loss"),
        ("hard_monotonic", {"pointer": True}, "Expected arguments among.*Received: pointer"),
        ("transformer", {"num_heads": 0}, "num_heads"),
        ("transformer", {"num_layers": 0}, "num_layers"),
        ("transformer", {"units": 6, "num_heads": 4}, "multiple of `num_heads`"),
        ("transformer", {"tie_embeddings": "all"}, "one joint vocabulary"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(name, wrong, message):
    with pytest.raises(ValueError, match=message):
        make(name, **wrong)


def test_the_class_of_an_attention_is_refused():
    with pytest.raises(ValueError, match="Expected an `Attention` layer, or one of"):
        RNNSearch(20, 20, units=6, attention=AttentionalLayer)
