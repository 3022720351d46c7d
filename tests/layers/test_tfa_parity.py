"""The figures that tensorflow_addons' own tests expect of its AttentionWrapper, from the same inputs and weights.

Figures: tensorflow/addons, tensorflow_addons/seq2seq/tests/attention_wrapper_test.py, `_test_with_attention`. Every
weight is one, but for the attention layer's kernel, which TensorFlow once drew from its seed and `tests/data` keeps.
"""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_attn as ka

KERNEL = Path(__file__).parents[1] / "fixtures" / "tfa_attention_kernel_19x6.json"
B, S, M, E, H = 5, 8, 10, 7, 9
STEPS = 3
# outputs (5, 3, 6), their argmax, cell h, cell c, last output
ROWS = {
    "bahdanau_not_normalized": (-0.003204414, 3.2, 0.40868404, 0.89017969, 0.041453815),
    "bahdanau_normalized": (-0.008089137, 2.8, 0.49166861, 1.01068615, 0.042427111),
    "luong_not_normalized": (-0.06124732, 2.73333333, 0.52021580, 1.0964939, -0.0318060),
    "luong_scaled": (-0.06124732, 2.73333333, 0.52021580, 1.0964939, -0.0318060),
    "not_use_attention_layer": (0.078317143, 4.2, 0.89382392, 1.722382, 0.026356646),
}
ATTENTION = {
    "bahdanau_not_normalized": lambda: ka.BahdanauAttention(3),
    "bahdanau_normalized": lambda: ka.BahdanauAttention(3, normalize=True),
    "luong_not_normalized": lambda: ka.LuongAttention("general"),
    "luong_scaled": lambda: ka.LuongAttention(ka.GeneralAttention(use_scale=True)),
    "not_use_attention_layer": lambda: ka.BahdanauAttention(3),
}


def draw():
    """As the test draws them: one `DummyData2` is drawn before and thrown away."""
    random = np.random.RandomState(87654321)
    random.randn(64, 10, 256)
    random.randint(1, high=10, size=(64,))
    random.randn(64, 12, 128)
    random.randint(12, size=(64,))
    inputs = random.randn(B, 4, E).astype("float32")
    values = random.randn(B, S, M).astype("float32")
    return inputs[:, :STEPS], values, np.arange(S) < np.array([3, 2, 3, 1, 1])[:, None]


def decoder_of(name):
    cell = keras.layers.LSTMCell(H, kernel_initializer="ones", recurrent_initializer="ones")
    kernel = np.array(json.loads(KERNEL.read_text())["kernel"], "float32")  # (H + M, O), ours is (M + H, O)
    kernel = np.concatenate([kernel[H:], kernel[:H]])
    if name == "not_use_attention_layer":  # the context itself is put out and fed back
        kernel = np.eye(M + H, M, dtype="float32")
    attentional = ka.AttentionalLayer(kernel.shape[1], activation=None)
    decoder = ka.AttentionDecoder(cell, ATTENTION[name](), attend="after", attentional=attentional, input_feeding=True)
    decoder.build((B, STEPS, E), (B, S, M))
    for weight in decoder.attentions[0].trainable_weights:
        if weight.name not in ("gain", "bias"):
            weight.assign(np.ones(weight.shape, "float32"))
    attentional.kernel.assign(kernel)
    return decoder


@pytest.mark.parametrize("name", ROWS)
def test_the_figures_of_tfa(name):
    inputs, values, mask = draw()
    decoder = decoder_of(name)
    outputs, _, alignments = (ops.convert_to_numpy(x) for x in decoder(inputs, values, mask=mask))
    memory = decoder.memory(ops.convert_to_tensor(values), ops.convert_to_tensor(mask))
    state = decoder.initial_state(ops.convert_to_tensor(values))
    for t in range(STEPS):
        *_, state = decoder.step(ops.convert_to_tensor(inputs[:, t]), memory, state)
    h, c = (ops.convert_to_numpy(x) for x in state["cell"])
    found = outputs.mean(), outputs.argmax(-1).mean(), h.mean(), c.mean(), outputs[:, -1].mean()
    np.testing.assert_allclose(found, ROWS[name], atol=1e-6)
    np.testing.assert_allclose(alignments.mean(), 1 / S, atol=1e-7)


@pytest.mark.parametrize("name", ["bahdanau_not_normalized", "luong_not_normalized"])
def test_the_figures_of_tfa_in_mixed_precision(name):
    keras.config.set_dtype_policy("mixed_float16")
    inputs, values, mask = draw()
    outputs = decoder_of(name)(inputs.astype("float16"), values.astype("float16"), mask=mask)[0]
    np.testing.assert_allclose(ops.convert_to_numpy(outputs).astype("float32").mean(), ROWS[name][0], atol=1e-3)


def test_masking_of_tfa():
    """`test_masking` there: sources of 1, 2, 3 and 4 words of ones."""
    layer = ka.LuongAttention("general")
    values, query = np.ones((4, 4, 5), "float32"), np.ones((4, 5), "float32")
    _, alignment, _ = layer(query, values, mask=np.tri(4, dtype="bool"))
    alignment = ops.convert_to_numpy(alignment)
    assert np.triu(alignment, 1).sum() == 0
    np.testing.assert_allclose(alignment, np.tri(4) / np.arange(1, 5)[:, None], atol=1e-6)
