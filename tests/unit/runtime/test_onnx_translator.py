"""A translator in ONNX gives the translations of `generate`, in a process without Keras, and refuses damaged files."""

import contextlib
import io
import math
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn.cli.main import main
from keras_attn.export import export_onnx
from keras_attn.models import LuongSeq2Seq
from keras_attn.runtime import OnnxTranslator
from keras_attn.text import Tokenizer
from keras_attn.translation import Translator
from tests import adversarial
from tests.export.small import READ, SENTENCES, build
from tests.unit.saving.test_preset import change_manifest, flip_a_byte

pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")

OPTIONS = {
    "small batches": {"beam_size": 3, "n_best": 3, "batch_size": 3, "tokens_per_batch": 64, "max_length": 12},
    "unknown ones replaced": {"replace_unknown": True, "prefixes": None},
    "ranked otherwise": {"normalization": "average", "length_penalty": 0.4, "coverage_penalty": 0.2},
    "limited": {"min_length": 3, "max_length": 6, "no_repeat_ngram_size": 2, "early_stopping": True},
}


def pointer_translator() -> Translator:
    """A translator that copies words, whose large random weights write all kinds of them."""
    keras.utils.set_random_seed(5)
    tokenizer = Tokenizer.train(SENTENCES, level="word", vocabulary_size=15)
    sizes = {"units": 5, "num_layers": 2, "embedding_size": 7, "readout_size": 11}
    initializer = keras.initializers.RandomNormal(stddev=0.9)
    model = LuongSeq2Seq(*[tokenizer.vocabulary_size] * 2, **sizes, pointer=True, initializer=initializer)
    return Translator(model, tokenizer, tokenizer)


def exported(translator: Translator, folder: Path) -> tuple[Translator, Path]:
    """The translator, and its export by the command."""
    translator.save_to_preset(folder / "preset")
    (folder / "exported").mkdir()  # an empty folder is taken
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["export", str(folder / "preset"), str(folder / "exported"), "--format", "onnx"]) == 0
    assert out.getvalue() == f"The translator in ONNX is in {folder / 'exported'}.\n"
    return translator, folder / "exported"


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    return exported(build("bpe"), tmp_path_factory.mktemp("pieces"))


@pytest.fixture(scope="module")
def pointer(tmp_path_factory):
    return exported(pointer_translator(), tmp_path_factory.mktemp("pointer"))


@pytest.fixture(params=["pieces", "pointer"])
def pair(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def folder(pieces, tmp_path):
    """A copy of the export, to be damaged."""
    return Path(shutil.copytree(pieces[1], tmp_path / "copy"))


def test_the_program_of_the_page_runs(folder, tmp_path, monkeypatch, capsys):
    """docs/without-keras.md."""
    page = (Path(__file__).parents[3] / "docs" / "without-keras.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    folder.rename("rnnsearch-onnx")
    names = {}
    exec("".join(re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S)), names)
    assert capsys.readouterr().out == names["translator"].generate(["zwei Hunde spielen"], beam_size=5)[0].text + "\n"


def check_same(received, expected):
    for one, other in zip(received, expected, strict=True):
        assert one.text == other.text
        assert (one.tokens, one.token_ids, one.source_tokens) == (other.tokens, other.token_ids, other.source_tokens)
        np.testing.assert_allclose(one.score, other.score, rtol=1e-4, atol=1e-4)
        assert (one.alignment is None) == (other.alignment is None)
        if one.alignment is not None:
            np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-4)
            np.testing.assert_allclose(one.token_log_probs, other.token_log_probs, rtol=1e-3, atol=1e-4)
        check_same(one.n_best, other.n_best)


def test_commands_take_the_folder(pieces, tmp_path, capsys):
    translator, folder = pieces
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in SENTENCES))
    assert main(["translate", str(folder), "--beam", "3", str(tmp_path / "text")]) == 0
    found = translator.generate(SENTENCES, beam_size=3)
    lines = capsys.readouterr().out.split("\n")[:-1]
    assert lines == [re.sub("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", " ", one.text) for one in found]
    assert main(["translate", str(folder), str(tmp_path / "text"), "--int8", "--samples", "2"]) == 2
    assert "Expected a run or a preset with --int8, --samples. Received: " in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["score", str(folder), "--source", "a", "--target", "b"])
    assert "argument RUN: expected a run or a preset. Received: " in capsys.readouterr().err


@pytest.mark.parametrize("name", OPTIONS)
def test_translations_are_those_of_generate(pair, name):
    translator, folder = pair
    lines = [*READ, *(line.decode(errors="replace")[:30] for line in adversarial.lines(23))]
    options = dict(OPTIONS[name])
    if "prefixes" in options:
        options["prefixes"] = [translator.target_tokenizer.decode(i % 3 * [4 + i % 9]) for i in range(len(lines))]
    received, expected = (t.generate(lines, **options) for t in (OnnxTranslator(folder, threads=1), translator))
    check_same(received, expected)


def test_the_limit_of_long_lines_is_the_translators(pieces, folder):
    translator, _ = pieces
    assert OnnxTranslator(folder).length_arguments == translator.length_arguments
    change_manifest(folder / "manifest.json", trained_length=2)
    with pytest.warns(UserWarning, match=r"at most 4 tokens for a model trained with up to 2\."):
        (found,) = OnnxTranslator(folder).generate(["zwei Hunde spielen im Gras"])
    limit = math.ceil(translator.max_length_ratio * 4 + translator.max_length_constant)
    (expected,) = translator.generate(["zwei Hunde spielen im Gras"], max_length=limit)
    check_same([found], [expected])


def test_threads_may_share_a_translator(pieces):
    _, folder = pieces
    translator = OnnxTranslator(folder, threads=1)
    expected = [translation.text for translation in translator.generate(SENTENCES)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: [t.text for t in translator.generate(SENTENCES)], range(4)))
    assert found == [expected] * 4


def test_a_damaged_folder_is_refused(folder):
    """`saving.manifest` reads it as it reads a preset's: tests/unit/saving/test_preset.py has more of these."""
    flip_a_byte(folder / "encode.onnx")
    with pytest.raises(ValueError, match=r"^Expected .*SHA-256 has changed"):
        OnnxTranslator(folder)
    change_manifest(folder / "manifest.json", source_length=-1)
    with pytest.raises(ValueError, match=r"^Expected .*truncated or changed"):
        OnnxTranslator(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"^Expected .*There is no manifest\.json"):
        OnnxTranslator(folder)


def test_logits_that_are_nan_are_refused(pieces):
    translator = OnnxTranslator(pieces[1])
    memory, state = translator.encode(np.array([[5, 3]], "int32"), 4)
    state = {name: np.full_like(array, np.nan) for name, array in state.items()}
    with pytest.raises(ValueError, match="logits that are NaN"):
        translator.step(np.array([2], "int32"), memory, state)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True, "2", 10**6])
def test_a_number_of_threads_is_checked(pieces, threads):
    with pytest.raises(ValueError, match=f"threads to be a whole number .* Received: threads={threads!r}"):
        OnnxTranslator(pieces[1], threads=threads)


def test_nothing_is_overwritten_and_no_option_is_ignored(pieces, capsys):
    translator, folder = pieces
    before = sorted(folder.parent.rglob("*"))
    with pytest.raises(FileExistsError, match="new or empty folder"):
        translator.export(folder, format="onnx")
    with pytest.raises(ValueError, match=r"`generate` takes them. Received: \['beam_size'\]"):
        translator.export(folder.parent / "another", format="onnx", beam_size=3)
    with pytest.raises(ValueError, match='"saved_model" or "onnx"'):
        translator.export(folder.parent / "another", format="tflite")
    command = ["export", str(folder.parent / "preset"), str(folder.parent / "another"), "--format", "onnx"]
    assert main([*command, "--beam", "3"]) == 2
    assert "`generate` takes them" in capsys.readouterr().err
    assert sorted(folder.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("module", "call", "purpose", "extra"),
    [
        ("onnxruntime", lambda: OnnxTranslator("x"), "", "runtime"),
        ("tf2onnx", lambda: export_onnx(None, "x"), " for export to ONNX", "onnx"),
    ],
)
def test_what_is_missing_is_named(module, call, purpose, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    sentence = f'Expected {module} to be installed{purpose}: pip install "keras_attn[{extra}]".'
    with pytest.raises(ModuleNotFoundError) as error:
        call()
    assert str(error.value) == sentence
