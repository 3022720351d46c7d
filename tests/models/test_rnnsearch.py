"""RNNSearch: the paper's defaults, and what is refused; the rest of its tests are in test_every_model."""

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
from keras_attn.models import RecurrentSeq2Seq, RNNSearch, Seq2Seq

VS, VT = 31, 37
SIZES = {"units": 5, "embedding_size": 11, "readout_size": 11, "attention_units": 13, "decoder_units": 17}


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
    weights = {w.path: ops.convert_to_numpy(w) for w in model.trainable_weights}
    np.testing.assert_allclose(weights["decoder/attention/query_kernel"].std(), 0.001, rtol=0.05)
    np.testing.assert_allclose(weights["decoder/cell/kernel"].std(), 0.01, rtol=0.05)
    np.testing.assert_array_equal(weights["decoder/attention/score_vector"], 0)
    gate = weights["decoder/cell/recurrent_kernel"]
    np.testing.assert_allclose(gate @ gate.T, np.eye(1000), atol=1e-4)


def test_mistakes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="as wide as the embeddings"):
        RNNSearch(VS, VT, tie_embeddings="target")
    with pytest.raises(ValueError, match="one joint vocabulary"):
        RNNSearch(VS, VT, tie_embeddings="source")
    with pytest.raises(ValueError, match="Expected `tie_embeddings`"):
        RNNSearch(VS, VT, tie_embeddings="both")
    with pytest.raises(ValueError, match="one width for DotAttention"):
        RNNSearch(VS, VT, **SIZES, attention="dot")
    with pytest.raises(ValueError, match="Expected an `Attention` layer, or one of"):
        RNNSearch(VS, VT, **SIZES, attention="addative")


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


def test_an_attention_of_another_dtype_policy(rng):
    attention = BahdanauAttention(13, dtype="float32")
    model = RNNSearch(VS, VT, **SIZES, attention=attention, dtype="mixed_bfloat16")
    ids = rng.integers(4, VS, (2, 3)).astype("int32")
    logits = model({"encoder_token_ids": ids, "decoder_token_ids": ids})
    assert np.isfinite(ops.convert_to_numpy(ops.cast(logits, "float32"))).all()


def test_without_a_bridge_the_previous_state_of_the_first_step_is_zero(rng):
    model = reading_the_previous_state(AttentionDecoder(layers.GRUCell(5), "general"))
    source, target = (ops.convert_to_tensor(rng.integers(4, VS, (2, n)).astype("int32")) for n in (3, 4))
    whole = ops.convert_to_numpy(model({"encoder_token_ids": source, "decoder_token_ids": target}))
    np.testing.assert_allclose(ops.convert_to_numpy(Seq2Seq.align(model, source, target)[0]), whole, atol=1e-5)
