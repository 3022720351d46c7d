"""An export that XLA compiles gives what Python gives, in the C program, also for a line that fits no shape."""

import keras
import numpy as np
import pytest

from keras_attn import quantize, with_shortlist
from keras_attn.cli import main
from keras_attn.serving.export import export_translator
from tests.serving import loader
from tests.serving.conftest import LINES, READ, SENTENCES, build
from tests.serving.export.test_graph_shortlist import of

BEAM = 3
pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is TensorFlow's")


OPTIONS = {"beam_size": BEAM, "batch_size": 4, "jit_compile": True}


def test_shapes():
    from keras_attn.serving.export import compiled_shapes
    from keras_attn.serving.export.options import ExportOptions

    translator = build("word")  # of 1.3 S + 2.5 tokens
    assert compiled_shapes.rows(ExportOptions(batch_size=1)) == [1]
    assert compiled_shapes.rows(ExportOptions()) == [1, 4, 16]
    assert compiled_shapes.rows(ExportOptions(batch_size=20)) == [1, 4, 16, 20]
    assert compiled_shapes.lengths(translator, ExportOptions()) == {16: 24, 32: 45, 64: 86, 128: 169}
    few = ExportOptions(max_source_length=40, max_length=7, no_repeat_ngram_size=9)
    assert compiled_shapes.lengths(translator, few) == {16: 9, 32: 9, 40: 9}
    assert compiled_shapes.lengths(translator, ExportOptions(max_length_ratio=10)) == {16: 160, 32: 320}
    assert compiled_shapes.shortlist_sizes(100) == [100]
    assert compiled_shapes.shortlist_sizes(512) == [512]
    assert compiled_shapes.shortlist_sizes(2000) == [512, 1024, 2000]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bpe", "in int8 with a shortlist"])
def test_strings_are_those_of_generate(kind, program, tmp_path):
    from keras_attn.serving.export.graph import ServedTranslator
    from keras_attn.serving.export.options import ExportOptions

    translator = build("bpe")
    folder, rounding = tmp_path / "1", 1e-5
    if kind == "bpe":
        ServedTranslator(translator, ExportOptions(**OPTIONS)).save(str(folder))
    else:
        translator = with_shortlist(quantize(translator), of(translator.model))
        export_translator(translator, tmp_path, sentences=SENTENCES, **OPTIONS)
        rounding = 1e-3  # a number near the middle of two in int8
    lines = [*LINES, b"ein " * 140]  # of 421 tokens
    expected = translator.generate([*READ, "ein " * 140], beam_size=BEAM, return_alignments=False)
    if kind != "bpe":  # what is not compiled has float32
        expected[-1:] = with_shortlist(build("bpe"), translator.shortlist).generate(["ein " * 140], beam_size=BEAM)
    done, results = loader.run(program, folder, lines, "--signature", "serving_default", xla=True)
    assert done.returncode == 0, done.stderr.decode()
    found = results["serving_default"]
    assert [text.decode() for text in found["translation"]] == [t.text for t in expected]
    np.testing.assert_allclose(found["score"], [t.score for t in expected], rtol=rounding)

    # The stock server without its flag: what fits a shape is refused, and the long line is not compiled.
    done, _ = loader.run(program, folder, lines[:1], "--signature", "serving_default")
    assert done.returncode == 1
    assert "XLA compilation disabled" in done.stderr.decode()
    done, results = loader.run(program, folder, lines[-1:], "--signature", "serving_default")
    assert done.returncode == 0, done.stderr.decode()
    assert results["serving_default"]["translation"][0].decode() == expected[-1].text


def test_int8_needs_the_compiler_and_stores_no_other_rounding(tmp_path, capsys):
    translator = build("word")
    with pytest.raises(ValueError, match="Expected quantize=None for a translator that multiplies in int8"):
        export_translator(quantize(translator), tmp_path / "model", quantize="float16", **OPTIONS)
    assert not (tmp_path / "model").exists()
    translator.save_to_preset(tmp_path / "preset")
    assert main.main(["export", str(tmp_path / "preset"), str(tmp_path / "model"), "--int8"]) == 2
    assert "Expected --jit-compile with --int8" in capsys.readouterr().err
