"""Versions: the next number, never overwritten, complete or absent, and refused if they could not be served."""

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest

from keras_attn import files, quantize
from keras_attn.backend import int8_products
from keras_attn.serving.export import export_translator, publish, self_check
from keras_attn.serving.export.options import ExportOptions
from keras_attn.serving.export.python_process import run_python
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
    folder = publish._publish(version(tmp_path / ".tmp-x", "new"), tmp_path, None)
    assert folder == tmp_path / "10"
    assert (folder / "saved_model.pb").read_text() == "new"


def test_exports_at_once_make_a_version_each(tmp_path):
    besides = [version(tmp_path / f".tmp-{n}", str(n)) for n in range(7)]
    threads = [threading.Thread(target=publish._publish, args=(beside, tmp_path, None)) for beside in besides]
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
        publish._publish(version(tmp_path / ".tmp-1", "new"), tmp_path, 3)
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
        batch = {"translation": [translation.encode().hex(), ""], "score": [score, 0.0]}
        process = SimpleNamespace(answer=lambda _: json.dumps({"batches": [batch]}))
        self_check.check_translations(process, expected, "float32")

    check("un", -1.250001)
    check("deux", -1.25)  # a tie: both are as good
    for translation, score in (("un", -1.5), ("un", float("nan")), ("u n", -1.25), ("trois", -1.5)):
        with pytest.raises(ValueError, match=r"'un' with score -1\.25"):
            check(translation, score)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is written by the TensorFlow backend")
def test_what_is_refused_leaves_nothing(translator, tmp_path, monkeypatch):
    import tensorflow as tf

    from keras_attn.serving.export import graph

    class Compiled(tf.Module):
        def __init__(self, *_):
            super().__init__()
            self.f = tf.function(lambda text: {"score": tf.strings.length(text) * 2}, jit_compile=True)

        def save(self, directory):
            f = self.f.get_concrete_function(tf.TensorSpec((None,), tf.string, name="text"))
            tf.saved_model.save(self, directory, signatures={"serving_default": f})

    monkeypatch.setattr(graph, "ServedTranslator", Compiled)
    with pytest.raises(ValueError, match="XLA-compiled code"):
        publish.write_version(translator, tmp_path, ExportOptions(), references=[])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is written by the TensorFlow backend")
def test_a_full_disk_is_a_sentence_and_leaves_nothing(translator, tmp_path, monkeypatch):
    import tensorflow as tf

    from keras_attn.serving.export import graph

    class Full:
        def __init__(self, *_):
            pass

        def save(self, directory):
            version(Path(directory), "half")
            raise tf.errors.ResourceExhaustedError(None, None, f"{directory}/variables; No space left on device")

    monkeypatch.setattr(graph, "ServedTranslator", Full)
    with pytest.raises(OSError, match=r"Expected a version to be written to .*new'\. .*No space left on device"):
        publish.write_version(translator, tmp_path / "new", ExportOptions(), references=[])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is written by the TensorFlow backend")
def test_what_a_killed_export_left_is_removed_by_the_next(translator, tmp_path, monkeypatch):
    from keras_attn.serving.export import graph, metadata, validation

    class Small:
        def __init__(self, *_):
            pass

        def save(self, directory):
            version(Path(directory), "whole")

    monkeypatch.setattr(graph, "ServedTranslator", Small)
    monkeypatch.setattr(validation, "validate", lambda *_, **__: None)
    monkeypatch.setattr(metadata, "write_record", lambda *_: None)
    monkeypatch.setattr(publish, "check_translations", lambda *_: None)
    monkeypatch.setattr(publish, "replaying", lambda *_: contextlib.nullcontext())
    version(tmp_path / f".tmp-{'a' * 32}", "of an earlier version")
    version(tmp_path / f".tmp-{'b' * 32}" / "version", "half")
    (tmp_path / f".tmp-{'b' * 32}" / files.LOCK).touch()
    with files.staging(tmp_path) as alive:
        (alive / "version").mkdir()
        publish.write_version(translator, tmp_path, ExportOptions(), references=[("ein", [("un", -1.0)])])
        assert (alive / "version").is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {"1", "README.md", "models.config"}
    assert (tmp_path / "1" / "saved_model.pb").read_text() == "whole"


def test_an_export_ends_with_the_command_that_started_it(monkeypatch):
    """On the backends that export in another process, which would go on and publish."""
    from keras_attn.serving.export import __main__ as process

    parents, ended = [7, 7, 1], []
    monkeypatch.setattr(process.os, "getppid", lambda: parents.pop(0))
    monkeypatch.setattr(process.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(process.os, "_exit", ended.append)
    process._end_with(7)
    assert (parents, ended) == ([], [1])


@pytest.mark.slow
@pytest.mark.once
def test_a_process_that_fails_says_why_in_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no translator\.json"):
        run_python(["-m", "keras_attn.serving.export", str(tmp_path), str(tmp_path / "new")], REQUEST)
    with pytest.raises(RuntimeError, match="ended with 3: too bad"):
        run_python(["-c", "import sys; print('too bad', file=sys.stderr); sys.exit(3)"], {})


REQUEST = {"options": {}, "references": [], "modules": [], "path": []}


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="about the other backends")
def test_importing_serving_imports_no_tensorflow():
    code = "import sys, keras_attn.serving; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
