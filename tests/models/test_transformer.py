"""TransformerSeq2Seq: its attention can be read, and half precision."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.contracts.model_rows import B, S, T, make, some_inputs

N, L = 3, 2
INPUTS = some_inputs()


@pytest.mark.parametrize("normalize_first", [False, True])
def test_every_attention_can_be_read(normalize_first):
    model = make("transformer", normalize_first=normalize_first)
    found = {name: ops.convert_to_numpy(x) for name, x in model.attentions(INPUTS).items()}
    assert {name: x.shape for name, x in found.items()} == {
        "encoder": (L, B, N, S, S),
        "decoder": (L, B, N, T, T),
        "cross": (L, B, N, T, S),
    }
    for x in found.values():
        np.testing.assert_allclose(x.sum(-1), 1, atol=1e-5)
    for name in ("encoder", "cross"):
        np.testing.assert_array_equal(found[name][:, 1, :, :, 4:], 0)
    np.testing.assert_array_equal(found["decoder"][..., ~np.tri(T, dtype="bool")], 0)
    memory, state = model.encode(ops.convert_to_tensor(INPUTS["encoder_token_ids"]))
    for t, column in enumerate(INPUTS["decoder_token_ids"].T):
        _, state, alignment = model.step(ops.convert_to_tensor(column), memory, state)
        expected = found["cross"][:, :, :, t].mean((0, 2))  # (B, S)
        np.testing.assert_allclose(ops.convert_to_numpy(alignment), expected, atol=1e-6)
    heads = model.align(*map(ops.convert_to_tensor, INPUTS.values()), each_head=True)[1]
    expected = found["cross"].transpose(1, 3, 0, 2, 4).reshape(B, T, L * N, S)
    np.testing.assert_allclose(ops.convert_to_numpy(heads), expected, atol=1e-6)


def test_the_attention_read_is_the_attention_used():
    """KerasHub's own call, watched from inside, has the same alignment."""
    model = make("transformer", num_layers=1)
    decoder, alignments = model.decoders[0], {}
    attention = decoder._cross_attention_layer
    compute = attention._compute_attention

    def watched(query, key, value, **options):
        output, scores = compute(query, key, value, **{**options, "return_attention_scores": True})
        alignments["used"] = ops.convert_to_numpy(scores)
        return output, scores

    attention._compute_attention = watched
    model(INPUTS)
    attention._compute_attention = compute
    np.testing.assert_allclose(
        ops.convert_to_numpy(model.attentions(INPUTS)["cross"])[0], alignments["used"], atol=1e-6
    )


def test_positions_stay_apart_in_half_precision():
    """bfloat16 has no 257: words 256 and 257 would have one position."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    encodings = ops.convert_to_numpy(make("transformer").position_encoding(np.zeros((1, 259, 6), "float32")))
    np.testing.assert_allclose(encodings[0, 257, 0], np.sin(257), atol=1e-4)
