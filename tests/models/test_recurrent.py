"""Recurrent models: the paper's defaults, what an argument changes, and what is refused.

What all models have in common is in `tests/contracts/test_models.py`.
"""

import numpy as np
import pytest
from keras import layers, ops

from keras_attn.layers import (
    AttentionDecoder,
    BahdanauAttention,
    DeepOutput,
    RNNEncoder,
)
from keras_attn.models import RecurrentSeq2Seq, Seq2Seq
from tests import oracles
from tests.contracts.model_rows import VS, VT, B, S, T, make, some_inputs, values_of

INPUTS = some_inputs()


def logits_of(model, inputs=INPUTS):
    return ops.convert_to_numpy(model(inputs))


def test_scaled_embeddings_enter_times_the_root_of_their_width():
    model = make("rnnsearch", scale_embeddings=True)
    weights = values_of(model)
    for path in weights:
        if path.endswith("embedding/embeddings"):
            weights[path] = weights[path] * weights[path].shape[-1] ** 0.5
    np.testing.assert_allclose(logits_of(model), oracles.rnnsearch(weights, *INPUTS.values()), atol=1e-5)


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


def test_without_a_bridge_the_previous_state_of_the_first_step_is_zero():
    model = reading_the_previous_state(AttentionDecoder(layers.GRUCell(5), "general"))
    tensors = map(ops.convert_to_tensor, INPUTS.values())
    np.testing.assert_allclose(ops.convert_to_numpy(Seq2Seq.align(model, *tensors)[0]), logits_of(model), atol=1e-5)
