"""Journeys of a user by the commands alone, which read each other's files.

A training is killed and resumed; its run is evaluated, saved as a preset, translated with, scored, exported, served and
run without Keras. Every way to translate gives the same strings. What is killed, translated and served has a process
of its own.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn import Translation, Translator
from keras_attn.cli import main
from keras_attn.requirements import is_installed
from keras_attn.serving.client import Client
from keras_attn.training.report import read_translations
from tests.serving import loader, served
from tests.training.small_run import FINISHED, history, write_digits
from tests.unit.absent import run_without

# Words of a model that is hardly trained may have characters that no font has.
pytestmark = pytest.mark.filterwarnings("ignore:No installed font has the characters:UserWarning")

ROOT = Path(__file__).parents[2]
LINES = ["1 2 3", "5 0 4", "", "2 2 1", "4 3 0", "9 é 5"]
PAIRS = 40
EPOCHS, STEPS = 3, 15
SETTINGS = [
    *("units=7", "embedding_size=11", "readout_size=11", "attention_units=5", "decoder_units=13"),
    *("batch_size=8", "learning_rate=0.1", "validation_sentences=4", "guided_alignment=0.5"),
    *("level=bpe", "source_vocabulary_size=none", "target_vocabulary_size=none", "bpe_dropout=0.2"),
    *("word_dropout=0.1", "ema_decay=0.5", "average_checkpoints=3"),
]
SAVED_MODEL = {"saved_model.pb", "variables", "assets.extra", "batching_params.pbtxt"}
ABSENT = ("keras", "tensorflow", "torch", "jax", "onnx", "tf2onnx", "keras_hub", "tensorflow_text", "matplotlib")
needs_tensorflow = pytest.mark.skipif(not is_installed("tensorflow"), reason="TensorFlow exports and serves the graph")


def command_line(*words) -> dict:
    """The arguments of `subprocess` for `keras-attn WORDS`, on the backend of this process."""
    environment = os.environ | {"KERAS_BACKEND": keras.backend.backend(), "PYTHONPATH": str(ROOT)}
    return {"args": [sys.executable, "-m", "keras_attn", *map(str, words)], "env": environment, "text": True}


def command(*words) -> str:
    """Runs `keras-attn WORDS` in this process; returns its standard output."""
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), "utf-8")) as printed:
        assert main.main([str(word) for word in words]) == 0
        printed.flush()
    return printed.buffer.getvalue().decode()


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with a corpus, and a file to translate."""
    folder = tmp_path_factory.mktemp("home")
    write_digits(folder / "corpus", PAIRS, 4, 6)
    for path in (folder / "corpus").glob("train.*"):
        path.write_text("\n" + path.read_text())  # a blank pair, which is left out
    (folder / "text.de").write_text("\n".join(LINES) + "\n")
    return folder


def training(home: Path, out: str) -> list:
    where = ["--corpus", home / "corpus", "--source", "de", "--target", "fr", "--out", home / out, "--beam", "3"]
    return ["train", "rnnsearch", *where, "--no-export", "--epochs", EPOCHS, "--set", *SETTINGS]


@pytest.fixture(scope="module")
def run(home) -> Path:
    """A run that was killed after its first epoch, and resumed."""
    line, quiet = training(home, "run"), {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(**command_line(*line), **quiet) as process:
        end = time.monotonic() + 300
        while not (home / "run" / "checkpoint.npz").exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        process.kill()
    assert process.returncode == -9, "it ended before it was killed"
    assert not (home / "run" / "report.json").exists()
    assert main.main([*map(str, line), "--seed", "3", "--resume"]) == 2, "another seed"
    command(*line, "--resume")
    return home / "run"


def test_a_killed_training_resumes_to_the_weights_of_a_whole_one(run, home):
    command(*training(home, "whole"))
    whole = home / "whole"
    assert {path.name for path in run.iterdir()} == {path.name for path in whole.iterdir()} == FINISHED
    models = [Translator.from_preset(folder).model for folder in (run, whole)]
    for ours, expected in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(ours, expected)
    reports = [json.loads((folder / "report.json").read_text()) for folder in (run, whole)]
    assert [report["updates"] for report in reports] == [STEPS] * 2
    for name in ("bleu", "chrf", "ter", "config", "parameters", "averaged_checkpoints"):
        assert reports[0][name] == reports[1][name]
    for name in ("loss", "val_loss", "val_bleu"):
        assert reports[0]["history"][name] == reports[1]["history"][name]
    assert (run / "translations.txt").read_bytes() == (whole / "translations.txt").read_bytes()


def test_a_run_leaves_everything_behind(run):
    assert json.loads((run / "translator.json").read_text())["options"]["trained_length"] == 100
    assert "| BLEU | " in (run / "README.md").read_text()
    report = json.loads((run / "report.json").read_text())
    asked = "recipe corpus source target backend versions command seed parameters epochs train_seconds beam_size config"
    for name in [*asked.split(), "target_tokens_per_second", "padding", "training_pairs", "hardware"]:
        assert report[name] is not None, name
    for name in ("bleu", "chrf", "ter", "greedy_bleu"):
        assert set(report[name]) == {"score", "signature"}
    assert report["backend"] == keras.backend.backend()
    assert report["training_pairs"] == PAIRS
    assert report["data"]["dropped_blank"] == 1
    assert report["config"]["units"] == 7
    assert len(report["history"]["val_bleu"]) == report["epochs"] == EPOCHS
    assert report["averaged_checkpoints"]["number"] == 3, "one of them before the kill"
    assert str(run) not in (run / "report.json").read_text(), "no path of this machine"
    assert {"epoch", "loss", "val_loss", "val_bleu", "val_perplexity"} <= history(run)[1].keys()
    assert len(read_translations(run / "translations.txt")) == 6
    assert (run / "alignment.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_is_evaluated_as_it_reported(run, home):
    where = ["--corpus", home / "corpus", "--source", "de", "--target", "fr"]
    printed = command("evaluate", run, *where, "--beam", "3", "--output", home / "scores.json")
    (system,) = json.loads((home / "scores.json").read_text())["systems"]
    report = json.loads((run / "report.json").read_text())
    for name in ("bleu", "chrf", "ter"):
        assert system[name] == report[name]
        assert report[name]["signature"] in printed


@pytest.fixture(scope="module")
def preset(run, home) -> Path:
    """A preset of the run."""
    Translator.from_preset(run).save_to_preset(home / "preset")
    return home / "preset"


@pytest.fixture(scope="module")
def translated(preset, home) -> list[str]:
    """The lines of the file, translated with the preset."""
    line = command_line("translate", preset, home / "text.de", "--beam", "3", "--output", home / "text.fr")
    done = subprocess.run(**line, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return (home / "text.fr").read_text().split("\n")[:-1]


@pytest.fixture(scope="module")
def expected(run) -> list[Translation]:
    """The translations of the run in this process."""
    return Translator.from_preset(run).generate(LINES, beam_size=3)


def check(texts: Iterable[str], scores: Iterable[float], expected: list[Translation]) -> None:
    """The texts are equal, and the scores of lines that are not blank."""
    assert list(texts) == [one.text for one in expected]
    pairs = [(score, one.score) for score, one, line in zip(scores, expected, LINES, strict=True) if line]
    np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-4, atol=1e-4)
    assert len({one.score for one in expected}) == len(LINES), "a model that hardly reads its source proves little"


def test_a_saved_preset_translates_a_file_as_the_run_does(translated, expected):
    assert translated == [one.text for one in expected]


@pytest.fixture(scope="module")
def exported(run, home) -> Path:
    """The folder of versions that `keras-attn export` wrote."""
    said = command("export", run, home / "saved_models" / "digits", "--beam", "3")
    assert str(home / "saved_models" / "digits" / "1") in said
    return home / "saved_models" / "digits"


@needs_tensorflow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not here to build the C program")
def test_an_export_translates_in_a_process_without_python(exported, expected, home):
    """By the loader of TensorFlow Serving."""
    assert {path.name for path in (exported / "1").iterdir()} >= SAVED_MODEL
    program = loader.build(home)
    texts = [line.encode() for line in LINES]
    done, found = loader.run(program, exported / "1", texts, "--signature", "serving_default")
    assert done.returncode == 0, done.stderr[-3000:]
    found = found["serving_default"]
    check([text.decode() for text in found["translation"]], found["score"], expected)


@needs_tensorflow
@pytest.mark.skipif(not is_installed("aiohttp"), reason="the server needs aiohttp")
def test_a_served_export_answers_the_client(exported, preset, translated, expected, tmp_path):
    pairs = [(source, target) for source, target in zip(LINES, translated, strict=True) if source]
    with served.serving(exported) as server:
        client = Client(server.rest, server.name)
        found = client.translate(LINES)
        check([one.text for one in found], [one.score for one in found], expected)
        best = client.translate_n_best(LINES[:1])[0]
        assert best.text == translated[0]
        np.testing.assert_allclose(best.alignment.sum(-1), 1, atol=1e-3)
        scored = client.score(*zip(*pairs, strict=True))
    for name, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    printed = command("score", preset, "--source", tmp_path / "source", "--target", tmp_path / "target")
    ours = [float(line.split("\t")[1]) for line in printed.splitlines()]
    np.testing.assert_allclose([one.log_prob for one in scored], ours, rtol=1e-3, atol=1e-3)


@needs_tensorflow
@pytest.mark.skipif(not (is_installed("tf2onnx") and is_installed("onnxruntime")), reason="tf2onnx, onnxruntime")
def test_an_onnx_export_translates_without_keras(run, expected, home):
    command("export", run, home / "onnx", "--format", "onnx")
    code = f"""
import json
from keras_attn.runtime import OnnxTranslator
found = OnnxTranslator({str(home / "onnx")!r}).generate({LINES!r}, beam_size=3)
print(json.dumps([[one.text for one in found], [one.score for one in found]]))
"""
    check(*json.loads(run_without(ABSENT, code)), expected)
