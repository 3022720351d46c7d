"""An export that XLA compiles for a few shapes gives what Python gives, also for a line that fits no shape."""

import json

import keras
import numpy as np
import pytest

from keras_attn import quantize, with_shortlist
from keras_attn.export import ExportOptions, export_translator
from keras_attn.models import RNNSearch, TransformerSeq2Seq
from tests.export.small import NEEDS_TENSORFLOW, SENTENCES, build, shortlist_of
from tests.serving import loader

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason=NEEDS_TENSORFLOW)


def test_shapes():
    from keras_attn.export import search

    translator = build("word")  # of 1.3 S + 2.5 tokens
    sizes = {1: [1], 2: [1, 2], 4: [1, 4], 16: [1, 4, 8, 16], 20: [1, 4, 8, 16, 20]}
    assert {size: search.compiled_rows(ExportOptions(batch_size=size)) for size in sizes} == sizes
    assert search.compiled_lengths(translator, ExportOptions()) == {16: 24, 32: 45, 64: 86, 128: 169}
    few = ExportOptions(max_source_length=40, max_length=7, no_repeat_ngram_size=9)
    assert search.compiled_lengths(translator, few) == {16: 9, 32: 9, 40: 9}
    assert search.compiled_lengths(translator, ExportOptions(max_length_ratio=10)) == {16: 160, 32: 320}
    assert search.max_output_length(translator, ExportOptions(max_source_length=64, max_length_ratio=3)) == 192
    translator.trained_length = 10
    assert search.compiled_lengths(translator, ExportOptions()) == {16: 24, 32: 29, 64: 29, 128: 29}
    assert search.max_output_length(translator, ExportOptions()) == 5328, "which a request may ask for"
    with pytest.raises(ValueError, match=r"Expected outputs of at most 512 tokens .* allow 513"):
        search.compiled_lengths(translator, ExportOptions(max_length=513))
    assert search.compiled_shortlists(100) == [100]
    assert search.compiled_shortlists(512) == [512]
    assert search.compiled_shortlists(2000) == [512, 1024, 2000]


def test_a_compiled_search_gives_what_an_uncompiled_one_does():
    """A batch of fewer rows and shorter ones than its shape."""
    import tensorflow as tf

    from keras_attn.export.signatures import ServedTranslator

    model = TransformerSeq2Seq(320, 320, units=6, num_layers=1, num_heads=3, feed_forward_units=11)
    translator, lines = build("bpe", model), tf.constant([line.encode() for line in SENTENCES[:3]])
    found, plain = (
        ServedTranslator(translator, ExportOptions(beam_size=2, max_length=6, jit_compile=compiled)).translate(lines)
        for compiled in (True, False)
    )
    assert found["translation"].numpy().tolist() == plain["translation"].numpy().tolist()
    np.testing.assert_allclose(found["score"], plain["score"], rtol=1e-4)


def test_in_int8_with_a_shortlist(program, tmp_path, monkeypatch):
    """A line has the precision of its own length, whatever the lines beside it; the shortlists have several sizes."""
    from keras_attn.export import search

    monkeypatch.setattr(search, "SHORTLIST_SIZE", 40)
    monkeypatch.setattr(search, "SOURCE_LENGTHS", (16,))
    sizes = dict.fromkeys(("units", "embedding_size", "readout_size", "attention_units", "decoder_units"), 32)
    model = RNNSearch(320, 320, **sizes, initializer=keras.initializers.RandomNormal(stddev=0.5))
    exact = build("bpe", model)
    exact = with_shortlist(exact, shortlist_of(model, unknown=999))
    translator = quantize(exact)
    options = {"beam_size": 3, "batch_size": 2, "jit_compile": True}
    folder = export_translator(translator, tmp_path, sentences=["zwei Hunde"], **options)
    record = json.loads((folder / "assets.extra" / "keras_attn.json").read_text())
    assert (record["int8_products"], record["options"]["jit_compile"]) == (True, True)
    assert record["shortlist"] == exact.shortlist.fingerprint

    lines = [*SENTENCES, "zwei Hunde", "", "ein Mann schläft", "spielen im Gras"]
    is_long = [len(exact.source_tokenizer.encode(line)) >= 16 for line in lines]
    assert 0 < sum(is_long) < 4
    both = [one.generate(lines, beam_size=3, return_alignments=False) for one in (exact, translator)]
    assert any(abs(one.score - other.score) > 1e-3 for one, other in zip(*both, strict=True))
    expected = [one if long else other for one, other, long in zip(*both, is_long, strict=True)]
    texts, signature = [line.encode() for line in lines], ("--signature", "serving_default")
    done, results = loader.run(program, folder, texts, *signature, xla=True)
    assert done.returncode == 0, done.stderr.decode()
    found = results["serving_default"]
    assert [text.decode() for text in found["translation"]] == [t.text for t in expected]
    np.testing.assert_allclose(found["score"], [t.score for t in expected], rtol=1e-4)

    # The stock server without its flag: what fits a shape is refused, and a long line is not compiled.
    done, _ = loader.run(program, folder, [b"zwei Hunde"], *signature)
    assert done.returncode == 1
    assert "XLA compilation disabled" in done.stderr.decode()
    long = is_long.index(True)
    done, results = loader.run(program, folder, [texts[long]], *signature)
    assert done.returncode == 0, done.stderr.decode()
    assert results["serving_default"]["translation"][0].decode() == expected[long].text
