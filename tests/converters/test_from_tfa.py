"""Weights that users of tensorflow_addons and Keras 2 keep, written by them.

The program was `tests/fixtures/record_tfa_checkpoints.py` of commit 5fab01e.
"""

from pathlib import Path

import numpy as np
import pytest
from keras import layers, ops

import keras_attn as ka
from keras_attn.converters import from_tfa
from keras_attn.layers import RNNEncoder
from keras_attn.models import RecurrentSeq2Seq
from tests import fixtures

WHERE = Path(fixtures.__file__).with_name("tfa_checkpoints")
SOURCE, TARGET = 13, 17
with np.load(WHERE / "outputs.npz", allow_pickle=False) as file:
    RECORDED = dict(file)


def model(encoder, cell, attention, width, bridge=None, **options):
    return RecurrentSeq2Seq(
        source_embedding=layers.Embedding(SOURCE, width),
        target_embedding=layers.Embedding(TARGET, width),
        encoder=encoder,
        bridge=bridge,
        decoder=ka.AttentionDecoder(cell, attention, attend="after", input_feeding=True, **options),
        output_projection=layers.Dense(TARGET),
    )


def lstms(units=6):
    return layers.StackedRNNCells([layers.LSTMCell(units) for _ in range(2)])


MODELS = {
    "luong_lstm": lambda: model(
        RNNEncoder(layers.LSTMCell(6)),
        layers.LSTMCell(6),
        ka.GeneralAttention(),
        width=4,
        attentional=ka.AttentionalLayer(6, activation=None),
    ),
    "bahdanau_gru": lambda: model(
        RNNEncoder(layers.GRUCell(5), backward_cell=layers.GRUCell(5)),
        layers.GRUCell(10, reset_after=False),
        ka.BahdanauAttention(7, normalize=True),
        width=5,
        attentional="context",
    ),
    "pair": lambda: model(
        RNNEncoder(layers.LSTMCell(6)),
        layers.GRUCell(6),
        [ka.BahdanauMonotonicAttention(6, normalize=True), ka.GeneralMonotonicAttention(use_scale=True)],
        width=4,
        bridge=layers.Identity(),  # the GRU starts from h alone
        attentional=[ka.AttentionalLayer(5, activation=None) for _ in range(2)],
    ),
    "stacked": lambda: model(
        RNNEncoder(lstms()),
        lstms(),
        ka.LuongAttention(ka.GeneralAttention(use_scale=True)),
        width=6,
        attentional=ka.AttentionalLayer(8),
    ),
}
PATHS = {name: WHERE / name for name in MODELS} | {"pair": WHERE / "pair" / "weights", "stacked": WHERE / "stacked.h5"}


BAHDANAU = "bahdanau_decoder/attention_wrapper_1"
LUONG = "translator/decoder"
# What the error lists, by what their programs call it: "luong_lstm" has the tutorial's names.
MAPPINGS = {
    "luong_lstm": None,
    "bahdanau_gru": {
        "source_embedding": "bahdanau_encoder/embedding_2",
        "encoder/cell": "bahdanau_encoder/bidirectional/forward_gru/gru_cell",
        "encoder/backward_cell": "bahdanau_encoder/bidirectional/backward_gru/gru_cell",
        "target_embedding": "bahdanau_decoder/embedding_3",
        "decoder/cell": f"{BAHDANAU}/gru_cell",
        "decoder/attention": {
            "memory_layer/kernel": "bahdanau_decoder/BahdanauAttention/memory_layer/kernel",
            "query_layer/kernel": f"{BAHDANAU}/BahdanauAttention/kernel",
            **{f"attention_{name}": f"{BAHDANAU}/BahdanauAttention/attention_{name}" for name in "vgb"},
        },
        "output_projection": "bahdanau_decoder/dense_1",
    },
    "pair": {"target_embedding": "decoder/embed", "output_projection": "decoder/out"},
    "stacked": {
        "source_embedding": "translator/encoder_embedding",
        **{f"encoder/cell/{i}": f"translator/encoder/stacked_rnn_cells/encoder_cell_{i}" for i in range(2)},
        "target_embedding": "translator/decoder_embedding",
        **{f"decoder/cell/{i}": f"{LUONG}/stacked_rnn_cells_1/decoder_cell_{i}" for i in range(2)},
        "decoder/attention": {
            "memory_layer/kernel": "translator/LuongAttention/memory_layer/kernel",
            "attention_g": f"{LUONG}/LuongAttention/attention_g",
        },
        "decoder/attentional": f"{LUONG}/attention_layer",
        "output_projection": "translator/output",
    },
}


def logits(model):
    return ops.convert_to_numpy(
        model({"encoder_token_ids": RECORDED["source"], "decoder_token_ids": RECORDED["target"]})
    )


def weights(model):
    return [ops.convert_to_numpy(weight) for weight in model.weights]


@pytest.mark.parametrize("name", MODELS)
def test_the_outputs_are_those_of_the_recorded_model(name):
    ours = MODELS[name]()
    assert np.abs(logits(ours) - RECORDED[name]).max() > 0.1
    places = from_tfa(PATHS[name], ours, mapping=MAPPINGS[name])
    np.testing.assert_allclose(logits(ours), RECORDED[name], atol=1e-5)
    assert {place.split("/")[0] for place in places} == {
        "source_embedding", "encoder", "target_embedding", "decoder", "output_projection",
    }  # fmt: skip
