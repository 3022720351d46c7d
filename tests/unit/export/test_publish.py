"""Versions: the next number, never overwritten, and refused before any work if they could not be served."""

import sys
import threading
from pathlib import Path

import keras
import pytest

from keras_attn import quantize
from keras_attn.backend import int8_products
from keras_attn.export import ExportOptions, export_translator, onnx, process, saved_model
from keras_attn.models import RNNSearch
from keras_attn.text import Tokenizer
from keras_attn.translation import Translator
from tests.export.small import build


@pytest.fixture(scope="module")
def translator():
    return build("word")


@pytest.fixture
def quick(monkeypatch):
    """Exports write a file with the name of their thread instead of a graph, after an action of a test."""
    actions = []

    def write(_, directory, *__):
        for action in actions:
            action()
        version(Path(directory), threading.current_thread().name)

    monkeypatch.setattr(saved_model, "reference_translations", lambda *_: [])
    monkeypatch.setattr(saved_model, "write_version", write)
    monkeypatch.setattr(saved_model, "on_tensorflow", lambda function, *arguments, **_: function(*arguments))
    return actions


def version(folder, content):
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_text(content)
    return folder


def test_the_next_version_is_one_above_the_highest(translator, quick, tmp_path):
    for name in ("2", "0009", "12a", "٣"):
        version(tmp_path / name, "kept")
    folder = export_translator(translator, tmp_path)
    assert folder == tmp_path / "10"
    assert (folder / "saved_model.pb").read_text() == threading.current_thread().name


def test_a_run_is_no_folder_of_versions(translator, quick, tmp_path):
    (tmp_path / "translator.json").touch()
    with pytest.raises(FileExistsError, match=r"Expected a folder for versions\. Received one of a run or a preset"):
        export_translator(translator, tmp_path)


def test_exports_at_once_make_a_version_each(translator, quick, tmp_path):
    threads = [threading.Thread(target=export_translator, args=(translator, tmp_path), name=str(n)) for n in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == list("1234567")
    assert {(tmp_path / name / "saved_model.pb").read_text() for name in "1234567"} == set("0123456")


def test_a_version_is_never_overwritten(translator, quick, tmp_path):
    version(tmp_path / "3", "kept")
    quick.append(lambda: version(tmp_path / "4", "kept"))  # by another export meanwhile
    for number in (3, 4):
        with pytest.raises(FileExistsError, match="is kept"):
            export_translator(translator, tmp_path, version=number)
        assert (tmp_path / str(number) / "saved_model.pb").read_text() == "kept"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_size": 0}, "beam_size=0"),
        ({"max_source_length": 0}, "max_source_length=0"),
        ({"version": 0}, "version=0"),
        ({"coverage": 1}, "coverage_penalty"),
        ({"forced_prefix": [[1]]}, "Received: forced_prefix"),
    ],
)
def test_errors_come_before_any_work(translator, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        export_translator(translator, tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()


def test_an_export_of_a_quantised_translator_is_checked_in_float32(translator, monkeypatch):
    """In which it computes; the translator itself goes on in int8."""
    monkeypatch.setattr(int8_products, "MIN_WIDTH", 1)
    quantized, options = quantize(translator), ExportOptions()
    expected = saved_model.reference_translations(translator, options)
    assert saved_model.reference_translations(quantized, options) == expected
    assert quantized.int8_weights is not None
    texts = [text for text, _ in expected]
    arguments = options.generate_arguments() | {"return_alignments": False}
    assert [t.score for t in quantized.generate(texts, **arguments)] != [several[0][1] for _, several in expected]


def test_an_export_that_reads_little_is_checked_by_what_it_reads_whole(translator):
    for most in (2, 4, 100):
        references = saved_model.reference_translations(translator, ExportOptions(max_source_length=most))
        sizes = [len(translator.source_tokenizer.encode(text)) for text, _ in references]
        assert max(sizes) < most
        assert len(sizes) >= 3


def test_checks_do_not_warn_of_letters_of_their_own_texts(translator, monkeypatch):
    letters = Tokenizer.train([" ".join("zweihundfr")], level="symbol").with_letters()
    model = RNNSearch(letters.vocabulary_size, translator.target_tokenizer.vocabulary_size, units=5, embedding_size=7)
    speller = Translator(model, letters, translator.target_tokenizer)
    monkeypatch.setattr(onnx, "OnnxTranslator", lambda folder: speller)
    onnx._check_translator(speller, ExportOptions())("the folder")


def test_another_translation_is_refused():
    expected = [("ein", [("un", -1.25), ("deux", -1.25001), ("trois", -1.5)]), ("", [("", 0.0)])]

    def check(translation, score):
        saved_model.check_answers(expected, [(translation, score), ("", 0.0)], "float32")

    check("un", -1.250001)
    check("deux", -1.25)  # a tie: both are as good
    for translation, score in (("un", -1.5), ("un", float("nan")), ("u n", -1.25), ("trois", -1.5)):
        with pytest.raises(ValueError, match=r"'un' with score -1\.25"):
            check(translation, score)


def refuse(translator, number, sentence):
    kinds = {"missing": FileNotFoundError, "wrong": ValueError}
    raise kinds[sentence](number, f"{sentence}: {keras.backend.backend()}, {translator.max_length_constant}")


@pytest.mark.parametrize(("kind", "number", "sentence"), [(FileNotFoundError, 2, "missing"), (ValueError, 1, "wrong")])
def test_errors_of_the_process_are_raised_here(translator, kind, number, sentence, monkeypatch):
    """Without the process, which takes seconds to start: tests/export/test_process.py has one."""
    monkeypatch.setattr(process.subprocess, "run", lambda command, **_: process._main(command[-1]))
    with pytest.raises(kind, match=rf"{sentence}: {keras.backend.backend()}, 2\.5") as raised:
        process.on_tensorflow(refuse, translator, number, sentence)
    assert type(raised.value) is kind
    assert getattr(raised.value, "errno", 1) == number


def test_the_end_of_a_process_without_an_error_is_raised_here(translator, tmp_path, monkeypatch):
    (tmp_path / "python").write_text("#!/bin/sh\necho killed >&2\nexit 3\n")
    (tmp_path / "python").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(RuntimeError, match=r"ended with 3: killed$"):
        process.on_tensorflow(refuse, translator, 1, "wrong")


def test_int8_needs_the_compiler_and_stores_no_other_rounding(translator, tmp_path):
    with pytest.raises(ValueError, match="Expected quantize=None with jit_compile for a translator that multiplies in"):
        export_translator(quantize(translator), tmp_path / "model", quantize="float16", jit_compile=True)
    assert not (tmp_path / "model").exists()
