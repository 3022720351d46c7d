"""Versions: the next number, never overwritten, complete or absent, and refused if they could not be served."""

import subprocess
import sys
import threading

import keras
import pytest

from keras_attn import files, quantize
from keras_attn.backend import int8_products
from keras_attn.export import ExportOptions, export_translator, saved_model, self_check
from keras_attn.export.process import on_tensorflow
from tests.serving.conftest import build


@pytest.fixture(scope="module")
def translator():
    return build("word")


def version(folder, content):
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_text(content)
    return folder


def test_the_next_version_is_one_above_the_highest(tmp_path):
    for name in ("2", "0009", ".tmp-77", "12a", "٣"):
        version(tmp_path / name, "kept")
    folder = saved_model._publish(version(tmp_path / ".tmp-x", "new"), tmp_path, None)
    assert folder == tmp_path / "10"
    assert (folder / "saved_model.pb").read_text() == "new"


def test_exports_at_once_make_a_version_each(tmp_path):
    besides = [version(tmp_path / f".tmp-{n}", str(n)) for n in range(7)]
    threads = [threading.Thread(target=saved_model._publish, args=(beside, tmp_path, None)) for beside in besides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == list("1234567")
    assert {(tmp_path / name / "saved_model.pb").read_text() for name in "1234567"} == set("0123456")


def test_a_version_is_never_overwritten(translator, tmp_path):
    folder = version(tmp_path / "3", "kept")
    with pytest.raises(FileExistsError, match="is kept"):
        export_translator(translator, tmp_path, version=3)
    # Another export may put the version there meanwhile.
    with pytest.raises(FileExistsError, match="is kept"):
        saved_model._publish(version(tmp_path / ".tmp-1", "new"), tmp_path, 3)
    assert (folder / "saved_model.pb").read_text() == "kept"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"beam_size": 0}, "beam_size=0"),
        ({"length_penalty": -1.0}, "length_penalty"),
        ({"max_length": 2.5}, "max_length=2.5"),
        ({"max_source_length": 0}, "max_source_length=0"),
        ({"version": 0}, "version=0"),
        ({"version": "1"}, "version='1'"),
        ({"coverage": 1}, "coverage_penalty"),
        ({"forced_prefix": [[1]]}, "Received: forced_prefix"),
    ],
)
def test_errors_come_before_any_work(translator, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        export_translator(translator, tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()


def test_a_file_is_no_folder_for_versions(translator, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="a file"):
        export_translator(translator, tmp_path / "file")


@pytest.mark.once
def test_an_export_of_a_quantised_translator_is_checked_in_float32(translator, monkeypatch):
    """In which it computes; the translator itself goes on in int8."""
    monkeypatch.setattr(int8_products, "MIN_WIDTH", 1)
    quantized, options = quantize(translator), ExportOptions()
    expected = self_check.reference_translations(translator, options)
    assert self_check.reference_translations(quantized, options) == expected
    assert quantized.int8_weights is not None
    texts = [text for text, _ in expected]
    arguments = options.generate_arguments() | {"return_alignments": False}
    assert [t.score for t in quantized.generate(texts, **arguments)] != [several[0][1] for _, several in expected]


@pytest.mark.once
def test_an_export_that_reads_little_is_checked_by_what_it_reads_whole(translator):
    for most in (2, 4, 100):
        references = self_check.reference_translations(translator, ExportOptions(max_source_length=most))
        sizes = [len(translator.source_tokenizer.encode(text)) for text, _ in references]
        assert max(sizes) < most
        assert len(sizes) >= 3


def test_another_translation_is_refused():
    expected = [("ein", [("un", -1.25), ("deux", -1.25001), ("trois", -1.5)]), ("", [("", 0.0)])]

    def check(translation, score):
        self_check.check_answers(expected, [(translation, score), ("", 0.0)], "float32")

    check("un", -1.250001)
    check("deux", -1.25)  # a tie: both are as good
    for translation, score in (("un", -1.5), ("un", float("nan")), ("u n", -1.25), ("trois", -1.5)):
        with pytest.raises(ValueError, match=r"'un' with score -1\.25"):
            check(translation, score)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is written by the TensorFlow backend")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("a full disk", r"Expected a version that can .*No space left on device"),
        ("a wrong score", "Expected the exported"),
    ],
)
def test_a_version_that_is_not_whole_or_not_right_is_an_error_and_leaves_nothing(
    translator, tmp_path, monkeypatch, error, expected
):
    import tensorflow as tf

    class Wrong(Small):
        def save(self, directory):
            super().save(directory)
            if error == "a full disk":
                raise tf.errors.ResourceExhaustedError(None, None, f"{directory}/variables; No space left on device")

    from keras_attn.export import assets, signatures

    monkeypatch.setattr(signatures, "ServedTranslator", Wrong)
    monkeypatch.setattr(assets, "warm_up_requests", lambda *_: [])
    with pytest.raises((OSError, ValueError), match=expected):
        export_translator(translator, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


class Small:
    """A graph in the place of the translator's."""

    def __init__(self, *_):
        pass

    def save(self, directory):
        import tensorflow as tf

        def translate(text):
            return {"translation": text, "score": tf.cast(tf.strings.length(text), tf.float32)}

        spec = tf.TensorSpec((None,), tf.string, name="text")
        module = tf.Module()
        tf.saved_model.save(module, directory, signatures=tf.function(translate, input_signature=[spec]))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is written by the TensorFlow backend")
def test_what_a_killed_export_left_is_removed_by_the_next(translator, tmp_path, monkeypatch):
    from keras_attn.export import signatures

    monkeypatch.setattr(signatures, "ServedTranslator", Small)
    monkeypatch.setattr(saved_model, "check_signatures", lambda *_: None)
    version(tmp_path / f".tmp-{'a' * 32}", "of an earlier version")
    version(tmp_path / f".tmp-{'b' * 32}" / "version", "half")
    (tmp_path / f".tmp-{'b' * 32}" / files.LOCK).touch()
    with files.staging(tmp_path) as alive:
        (alive / "version").mkdir()
        export_translator(translator, tmp_path)
        assert (alive / "version").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def refuse(translator, number, sentence):
    kinds = {"full": OSError, "missing": FileNotFoundError, "wrong": ValueError}
    raise kinds[sentence](number, f"{sentence}: {keras.backend.backend()}, {translator.max_length_constant}")


def end(translator, code):
    sys.exit(code)


@pytest.mark.slow
@pytest.mark.once
def test_errors_of_the_process_are_raised_here(translator):
    for kind, number, sentence in ((OSError, 28, "full"), (FileNotFoundError, 2, "missing"), (ValueError, 1, "wrong")):
        with pytest.raises(kind, match=rf"{sentence}: tensorflow, 2\.5") as raised:
            on_tensorflow(refuse, translator, number, sentence)
        assert type(raised.value) is kind
        assert getattr(raised.value, "errno", 1) == number
    with pytest.raises(RuntimeError, match="ended with 3: "):
        on_tensorflow(end, translator, 3)


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="about the other backends")
def test_importing_serving_imports_no_tensorflow():
    code = "import sys, keras_attn.serving; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
