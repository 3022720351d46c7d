"""Quantized weights are stored once, and the graph computes with them, also in a greedy search with a shortlist."""

import keras
import numpy as np
import pytest

from keras_attn import with_shortlist
from keras_attn.export import ExportOptions
from keras_attn.saving import quantization, rounded_model
from keras_attn.translation import Translator, token_ids_of
from tests.export.small import NEEDS_TENSORFLOW, SENTENCES, build, run, shortlist_of

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason=NEEDS_TENSORFLOW)


@pytest.mark.parametrize("bits", ["int8", pytest.param("float16", marks=pytest.mark.nightly)])
def test_the_graph_computes_with_what_it_stores_once(bits, monkeypatch, tmp_path):
    import tensorflow as tf

    from keras_attn.export.signatures import ServedTranslator

    monkeypatch.setattr(quantization, "MIN_SIZE", 1)
    exact = build("word")
    exact = with_shortlist(exact, shortlist_of(exact.model))
    banned = ["bleu", "noir"]
    options = ExportOptions(
        beam_size=1, quantize=bits, banned_tokens=tuple(token_ids_of(exact.target_tokenizer, banned))
    )
    ServedTranslator(exact, options).save(str(tmp_path))
    checkpoint = tf.train.load_checkpoint(str(tmp_path / "variables" / "variables"))
    types, sizes = checkpoint.get_variable_to_dtype_map(), checkpoint.get_variable_to_shape_map()
    shapes = sorted(tuple(w.shape) for w in exact.model.weights if len(w.shape) > 1)
    assert sorted(tuple(sizes[name]) for name in types if types[name].name == bits) == shapes
    wide = [sizes[name] for name in types if types[name].name == "float32"]
    assert all(sum(size > 1 for size in shape) < 2 for shape in wide), "vectors and scales alone"

    texts, targets = [line.encode() for line in SENTENCES], ["un deux", "", "gris là", "rouge"]
    pairs = {"source": texts, "target": [target.encode() for target in targets]}
    best, score = run(tmp_path, [("serving_default", {"text": texts}), ("score", pairs)])
    tokenizers = exact.source_tokenizer, exact.target_tokenizer
    rounded = Translator(rounded_model(exact.model, bits), *tokenizers, **exact.length_arguments)
    rounded = with_shortlist(rounded, exact.shortlist)
    expected = rounded.generate(SENTENCES, beam_size=1, banned_tokens=banned)
    assert [text.decode() for text in best["translation"]] == [t.text for t in expected]
    np.testing.assert_allclose(best["score"], [t.score for t in expected], rtol=1e-5)
    given = rounded.score(SENTENCES, targets)  # among the whole vocabulary
    np.testing.assert_allclose(score["log_prob"], [t.token_log_probs.sum() for t in given], rtol=1e-5)
    for other in ({}, {"banned_tokens": banned}):
        whole = exact if other else rounded
        assert [t.score for t in whole.generate(SENTENCES, beam_size=1, **other)] != best["score"].tolist()
