"""int8: every model multiplies in it and is saved as it was, and what is refused."""

import keras
import numpy as np
import pytest

import keras_attn
from keras_attn.backend import kernel_products
from keras_attn.translation.quantization import int8_weights
from tests.contracts.model_rows import MODELS, ONE_EACH, make, some_inputs
from tests.translation.test_options import LINES
from tests.translation.test_quantization import numpy, small_matrices_too  # noqa: F401 (used by all tests)
from tests.translation.test_scoring import word_tokenizer


@pytest.mark.parametrize("name", MODELS)
def test_every_model_multiplies_in_int8(name):
    """Teacher forced: close to float32, but not equal to it."""
    model, inputs = make(name), some_inputs()
    expected = numpy(model(inputs))
    weights = int8_weights(model)
    with kernel_products(weights.product):
        found = numpy(model(inputs))
        alone = numpy(model({side: ids[1:2] for side, ids in inputs.items()}))
    both = np.isfinite(expected) & np.isfinite(found)
    np.testing.assert_allclose(alone[0], found[1], atol=1e-5)
    difference = np.abs(found[both] - expected[both])
    assert 0 < difference.mean() < 0.05 * np.abs(expected[both]).max()
    assert weights.matrices


@pytest.mark.parametrize("options", [{"logit_soft_cap": 0.5}, {"reverse_dtype": "float32", "dtype": "mixed_bfloat16"}])
def test_options_of_tied_embeddings_hold_in_int8(options):
    token_ids = keras.Input((4,), dtype="int32")
    embedding = keras.layers.ReversibleEmbedding(48, 40, embeddings_initializer="orthogonal", **options)
    model = keras.Model(token_ids, embedding(embedding(token_ids), reverse=True))
    ids = np.arange(8).reshape(2, 4)
    expected = model(ids)
    with kernel_products(int8_weights(model).product):
        found = model(ids)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(numpy(found), numpy(expected), atol=0.02)
    assert (numpy(found) != numpy(expected)).any()


@pytest.mark.parametrize("name", ONE_EACH)
def test_every_kind_of_model_is_saved_as_it_was(name, tmp_path):
    """The layers that multiply in int8 leave no trace in a preset, and its weights are those in float32."""
    model = make(name)
    tokenizers = word_tokenizer("s", model.source_vocabulary_size), word_tokenizer("t", model.target_vocabulary_size)
    translator = keras_attn.Translator(model, *tokenizers)
    quantized = keras_attn.quantize(translator)
    expected, rounded = (one.generate(LINES[:2], beam_size=2) for one in (translator, quantized))
    quantized.save_to_preset(tmp_path / "preset")
    loaded = keras_attn.Translator.from_preset(tmp_path / "preset")
    assert [t.score for t in loaded.generate(LINES[:2], beam_size=2)] == [t.score for t in expected]
    assert [t.score for t in rounded] != [t.score for t in expected]


def test_other_modes_and_accelerators_are_refused(translator, monkeypatch):
    with pytest.raises(ValueError, match="Received: mode='int4'"):
        keras_attn.quantize(translator, "int4")
    monkeypatch.setattr("keras_attn.translation.quantization.has_accelerator", lambda: True)
    with pytest.raises(ValueError, match="on a processor"):
        keras_attn.quantize(translator)
