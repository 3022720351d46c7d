"""An export that XLA compiles gives what Python gives, in the C program, also for a line that fits no shape."""

import json

import keras
import numpy as np
import pytest

from keras_attn import quantize, with_shortlist
from keras_attn.cli import main
from keras_attn.export import ExportOptions, export_translator, saved_model
from keras_attn.models import RNNSearch, TransformerSeq2Seq
from keras_attn.translation import token_ids_of
from tests.serving import loader
from tests.serving.conftest import LINES, READ, SENTENCES, build
from tests.serving.export.test_graph_shortlist import ensemble, of

BEAM = 3
OPTIONS = {"beam_size": BEAM, "batch_size": 4, "jit_compile": True}
LONG = "ein " * 140  # fits no shape
on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is TensorFlow's")


@on_tensorflow
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


@on_tensorflow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("rnnsearch", {"beam_size": 1, "no_repeat_ngram_size": 2, "quantize": "int8"}),
        ("transformer", {"beam_size": 2}),
        ("ensemble", {"beam_size": 2, "max_length": 6, "banned_tokens": ["rouge"]}),
    ],
)
def test_in_this_process(kind, options):
    import tensorflow as tf

    from keras_attn.export.signatures import ServedTranslator

    translator = build("bpe")
    if kind == "ensemble":
        translator = ensemble()
    if kind == "transformer":
        model = TransformerSeq2Seq(320, 320, units=6, num_layers=2, num_heads=3, feed_forward_units=11)
        translator = build("bpe", model)
    banned = token_ids_of(translator.target_tokenizer, options.get("banned_tokens", ()))
    chosen = options | {"banned_tokens": banned}
    found, plain = (
        ServedTranslator(translator, ExportOptions(jit_compile=compiled, **chosen)).translate(tf.constant(LINES[:7]))
        for compiled in (True, False)
    )
    assert found["translation"].numpy().tolist() == plain["translation"].numpy().tolist()
    np.testing.assert_allclose(found["score"], plain["score"], rtol=1e-4)


@on_tensorflow
@pytest.mark.slow
def test_the_c_program_says_what_python_says(program, tmp_path):
    from keras_attn.export.signatures import ServedTranslator

    translator = build("bpe")
    ServedTranslator(translator, ExportOptions(**OPTIONS)).save(str(tmp_path / "1"))
    expected = translator.generate([*READ, LONG], beam_size=BEAM, return_alignments=False)
    assert_says(program, tmp_path / "1", expected, rtol=1e-5)

    # The stock server without its flag: what fits a shape is refused, and the long line is not compiled.
    done, _ = loader.run(program, tmp_path / "1", LINES[:1], "--signature", "serving_default")
    assert done.returncode == 1
    assert "XLA compilation disabled" in done.stderr.decode()
    done, results = loader.run(program, tmp_path / "1", [LONG.encode()], "--signature", "serving_default")
    assert done.returncode == 0, done.stderr.decode()
    assert results["serving_default"]["translation"][0].decode() == expected[-1].text


@on_tensorflow
@pytest.mark.slow
def test_in_int8_with_a_shortlist(program, tmp_path, monkeypatch):
    """A line has the precision of its own length, whatever the lines beside it; the shortlists have several sizes."""
    from keras_attn.export import search

    monkeypatch.setattr(search, "SHORTLIST_SIZE", 16)
    sizes = dict.fromkeys(("units", "embedding_size", "readout_size", "attention_units", "decoder_units"), 32)
    model = RNNSearch(320, 320, **sizes, initializer=keras.initializers.RandomNormal(stddev=0.5))
    exact = build("bpe", model)
    exact = with_shortlist(exact, of(exact.model))
    translator = quantize(exact)
    folder = export_translator(translator, tmp_path, sentences=SENTENCES, **OPTIONS)
    record = json.loads((folder / "assets.extra" / "keras_attn.json").read_text())
    assert (record["int8_products"], record["options"]["jit_compile"]) == (True, True)
    lines = [*READ, LONG]
    expected, rounded = (one.generate(lines, beam_size=BEAM, return_alignments=False) for one in (exact, translator))
    assert any(abs(one.score - other.score) > 1e-3 for one, other in zip(expected, rounded, strict=True))
    long = [len(exact.source_tokenizer.encode(line)) >= 128 for line in lines]
    assert sum(long) == 2
    chosen = [one if is_long else other for one, other, is_long in zip(expected, rounded, long, strict=True)]
    assert_says(program, folder, chosen, rtol=1e-4)


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="TensorFlow exports in its own process")
def test_another_backend_asks_tensorflow_for_int8(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(saved_model, "on_tensorflow", lambda *_, int8: asked.append(int8))
    monkeypatch.setattr(saved_model, "_publish", lambda folder, *_: folder)
    for translator in (build("bpe"), quantize(build("bpe"))):
        for compiled in (False, True):
            export_translator(translator, tmp_path / "model", beam_size=BEAM, jit_compile=compiled)
    assert asked == [False, False, False, True]


def assert_says(program, folder, expected, rtol: float):
    lines = [*LINES, LONG.encode()]
    done, results = loader.run(program, folder, lines, "--signature", "serving_default", xla=True)
    assert done.returncode == 0, done.stderr.decode()
    found = results["serving_default"]
    assert [text.decode() for text in found["translation"]] == [t.text for t in expected]
    np.testing.assert_allclose(found["score"], [t.score for t in expected], rtol=rtol)


def test_int8_needs_the_compiler_and_stores_no_other_rounding(tmp_path, capsys):
    translator = build("word")
    with pytest.raises(ValueError, match="Expected quantize=None with jit_compile for a translator that multiplies in"):
        export_translator(quantize(translator), tmp_path / "model", quantize="float16", **OPTIONS)
    assert not (tmp_path / "model").exists()
    translator.save_to_preset(tmp_path / "preset")
    for flags, received in (([], "no --jit-compile"), (["--format", "onnx"], "--format onnx")):
        assert main.main(["export", str(tmp_path / "preset"), str(tmp_path / "model"), "--int8", *flags]) == 2
        assert f"Expected --int8 with --jit-compile, of a SavedModel. Received: {received}" in capsys.readouterr().err
