"""TransformerSeq2Seq: its attention can be read, half precision, what is refused, and which packages it needs."""

import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn.models import TransformerSeq2Seq

pytestmark = pytest.mark.by_turns

B, S, T, N, L = 2, 7, 5, 3, 2
SIZES = {"units": 6, "num_layers": L, "num_heads": N, "feed_forward_units": 11}


def make(**options):
    model = TransformerSeq2Seq(31, 37, **{**SIZES, **options})
    for i, weight in enumerate(model.trainable_weights):
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i))
    return model


@pytest.fixture
def inputs(rng):
    source, target = rng.integers(4, 31, (B, S)).astype("int32"), rng.integers(4, 37, (B, T)).astype("int32")
    source[1, 4:] = 0
    return {"encoder_token_ids": source, "decoder_token_ids": target}


@pytest.mark.parametrize("normalize_first", [False, True])
def test_every_attention_can_be_read(inputs, normalize_first):
    model = make(normalize_first=normalize_first)
    found = {name: ops.convert_to_numpy(x) for name, x in model.attentions(inputs).items()}
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
    memory, state = model.encode(ops.convert_to_tensor(inputs["encoder_token_ids"]))
    for t, column in enumerate(inputs["decoder_token_ids"].T):
        _, state, alignment = model.step(ops.convert_to_tensor(column), memory, state)
        expected = found["cross"][:, :, :, t].mean((0, 2))  # (B, S)
        np.testing.assert_allclose(ops.convert_to_numpy(alignment), expected, atol=1e-6)
    heads = model.align(*map(ops.convert_to_tensor, inputs.values()), each_head=True)[1]
    expected = found["cross"].transpose(1, 3, 0, 2, 4).reshape(B, T, L * N, S)
    np.testing.assert_allclose(ops.convert_to_numpy(heads), expected, atol=1e-6)


def test_the_attention_read_is_the_attention_used(inputs):
    """KerasHub's own call, watched from inside, has the same alignment."""
    model = make(num_layers=1)
    decoder, alignments = model.decoders[0], {}
    attention = decoder._cross_attention_layer
    compute = attention._compute_attention

    def watched(query, key, value, **options):
        output, scores = compute(query, key, value, **{**options, "return_attention_scores": True})
        alignments["used"] = ops.convert_to_numpy(scores)
        return output, scores

    attention._compute_attention = watched
    model(inputs)
    attention._compute_attention = compute
    np.testing.assert_allclose(
        ops.convert_to_numpy(model.attentions(inputs)["cross"])[0], alignments["used"], atol=1e-6
    )


def test_positions_stay_apart_in_half_precision():
    """bfloat16 has no 257: words 256 and 257 would have one position."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    encodings = ops.convert_to_numpy(make().position_encoding(np.zeros((1, 259, 6), "float32")))
    np.testing.assert_allclose(encodings[0, 257, 0], np.sin(257), atol=1e-4)


def test_defaults_are_the_papers():
    model = TransformerSeq2Seq(50, 50, tie_embeddings="all", num_layers=1)
    shapes = {w.path: tuple(w.shape) for w in model.trainable_weights}
    assert shapes["target_embedding/embeddings"] == (50, 512)
    assert shapes["encoder_0/self_attention_layer/query/kernel"] == (512, 8, 64)
    assert shapes["decoder_0/cross_attention/value/kernel"] == (512, 8, 64)
    assert shapes["decoder_0/feedforward_intermediate_dense/kernel"] == (512, 2048)
    assert model.get_config()["dropout"] == 0.1


def test_mistakes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="num_heads"):
        make(num_heads=0)
    with pytest.raises(ValueError, match="num_layers"):
        make(num_layers=0)
    with pytest.raises(ValueError, match="multiple of `num_heads`"):
        make(num_heads=4)
    with pytest.raises(ValueError, match="one joint vocabulary"):
        make(tie_embeddings="all")


@pytest.mark.usefixtures("processes_on_jax")
def test_without_kerashub_the_transformer_says_what_to_install():
    program = (
        "import sys; sys.modules['keras_hub'] = None\n"
        "import keras_attn\n"
        "keras_attn.models.RNNSearch(5, 6, units=2, embedding_size=2, readout_size=2, attention_units=2)\n"
        "try:\n"
        "    keras_attn.models.TransformerSeq2Seq(5, 6, units=2, num_heads=1)\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert 'pip install "keras_attn[tensorflow]"' in done.stdout, done.stderr


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="there TensorFlow is the backend")
def test_the_transformer_runs_without_tensorflow():
    program = (
        "from tests.cli import light_install\n"
        "light_install.block(('tensorflow', 'tensorflow_text', 'keras_nlp'))\n"
        "import sys, keras_attn, numpy as np\n"
        "model = keras_attn.models.TransformerSeq2Seq(5, 6, units=2, num_heads=1, num_layers=1, feed_forward_units=3)\n"
        "ids = np.array([[4, 3]])\n"
        "print(model.predict({'encoder_token_ids': ids, 'decoder_token_ids': ids}, verbose=0).shape)\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.stdout == "(1, 2, 6)\n", done.stderr
