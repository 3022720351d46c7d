"""Quantized weights: the rounding error, that they are stored once, and that the graph computes with them."""

import keras
import numpy as np
import pytest

from keras_attn.saving import quantization, rounded_model
from keras_attn.translation import Translator
from tests.serving.conftest import SENTENCES, build


@pytest.mark.parametrize("axis", [0, 1])
def test_int8_scales_along_the_axis_that_loses_least(rng, axis):
    """Rows or columns of very different size: with a scale of its own each loses half a step of 127 at most."""
    shape = (41, 43)
    sizes = np.append(np.logspace(0, -2, shape[axis] - 1), 0)
    matrix = (rng.normal(size=shape) * np.expand_dims(sizes, 1 - axis)).astype("float32")
    found = quantization.quantize_matrix(matrix, "int8")
    assert found.values.dtype == np.int8
    assert found.scale.shape == tuple(size if i == axis else 1 for i, size in enumerate(shape))
    largest = np.abs(matrix).max(axis=1 - axis, keepdims=True)
    assert (np.abs(quantization.dequantized(found) - matrix) <= largest / 254 * 1.001).all()


def test_float16_is_the_nearest_half(rng):
    matrix = rng.normal(size=(7, 5)).astype("float32")
    found = quantization.dequantized(quantization.quantize_matrix(matrix, "float16"))
    np.testing.assert_array_equal(found, matrix.astype("float16"))
    assert np.abs(found - matrix).max() > 0


def test_a_model_keeps_its_vectors_and_small_matrices(monkeypatch):
    translator = build("word")
    monkeypatch.setattr(quantization, "MIN_SIZE", 100)
    rounded = rounded_model(translator.model, "int8")
    changed = 0
    for old, new in zip(translator.model.weights, rounded.weights, strict=True):
        same = np.array_equal(keras.ops.convert_to_numpy(old), keras.ops.convert_to_numpy(new))
        assert same or (len(old.shape) > 1 and np.prod(old.shape) >= 100)
        changed += not same
    assert changed > 5
    assert rounded_model(translator.model, None) is translator.model


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is TensorFlow's")
@pytest.mark.slow
def test_the_graph_computes_with_what_is_left_and_stores_it_once(monkeypatch, tmp_path):
    import tensorflow as tf

    from keras_attn.export import ExportOptions
    from keras_attn.export.signatures import ServedTranslator
    from tests.serving import fresh

    monkeypatch.setattr(quantization, "MIN_SIZE", 1)
    translator = build("word")
    sides = translator.source_tokenizer, translator.target_tokenizer
    calls = [
        ("serving_default", {"text": [line.encode() for line in SENTENCES]}),
        ("score", {"source": [line.encode() for line in SENTENCES], "target": [b"un deux"] * len(SENTENCES)}),
    ]
    shapes = sorted(tuple(w.shape) for w in translator.model.weights if len(w.shape) > 1)
    requests = []
    for bits in ("int8", "float16"):
        folder = tmp_path / bits
        ServedTranslator(translator, ExportOptions(beam_size=2, quantize=bits)).save(str(folder))
        checkpoint = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
        types, sizes = checkpoint.get_variable_to_dtype_map(), checkpoint.get_variable_to_shape_map()
        assert sorted(tuple(sizes[name]) for name in types if types[name].name == bits) == shapes
        wide = [sizes[name] for name in types if types[name].name == "float32"]
        assert all(sum(size > 1 for size in shape) < 2 for shape in wide), "vectors and scales alone"
        requests.append((folder, calls))
    for bits, (best, score) in zip(("int8", "float16"), fresh.run(requests), strict=True):
        left = Translator(rounded_model(translator.model, bits), *sides, max_length_ratio=1.3, max_length_constant=2.5)
        expected = left.generate(SENTENCES, beam_size=2)
        assert [text.decode() for text in best["translation"]] == [t.text for t in expected]
        np.testing.assert_allclose(best["score"], [t.score for t in expected], rtol=1e-5)
        given = left.score(SENTENCES, ["un deux"] * len(SENTENCES))
        np.testing.assert_allclose(score["log_prob"], [t.token_log_probs.sum() for t in given], rtol=1e-5)
    assert best["score"].tolist() != [t.score for t in translator.generate(SENTENCES, beam_size=2)]
