"""Processes without docstrings and assertions, forked ones, and those at work for long."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_attn import Translator
from keras_attn.training.report import memory_mb
from tests import tiny
from tests.training.small_run import command_line, write_digits

pytestmark = pytest.mark.nightly

preset, translator = tiny.preset, tiny.translator
ROOT = Path(__file__).parents[2]


def run(*line, text: str = "") -> str:
    environment = os.environ | {"KERAS_BACKEND": keras.backend.backend(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *map(str, line)], input=text, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_python_without_docstrings_and_assertions_does_the_same(preset, tmp_path):
    corpus, losses, texts = write_digits(tmp_path / "corpus", 16, 4, 4), [], []
    for out, flags in ((tmp_path / "usual", []), (tmp_path / "lean", ["-OO"])):
        run(*flags, "-m", "keras_attn", "train", *command_line(corpus, out, "batch_size=8", "--epochs", "1"))
        losses.append((out / "history.csv").read_text().splitlines()[1].split(",")[1])
        texts.append(run(*flags, "-m", "keras_attn", "translate", preset, text="w1 w2\n\nw3\n"))
    assert losses[0] == losses[1]
    assert texts[0] == texts[1]
    assert texts[0].count("\n") == 3


@pytest.mark.parametrize("imported", ["keras_attn", "keras_attn.models"], ids=["without Keras", "with Keras"])
def test_a_process_forked_after_the_import_translates(translator, preset, imported):
    """After a model is loaded, TensorFlow's and JAX's threads are missing in the new process, as is documented."""
    code = f"""
import os, {imported}
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
from keras_attn import Translator
print(Translator.from_preset({str(preset)!r}).generate(["w1 w2"], beam_size=2)[0].text, flush=True)
os._exit(0)
"""
    assert run("-c", code) == translator.generate(["w1 w2"], beam_size=2)[0].text + "\n"


@pytest.mark.parametrize(("work", "rounds"), [("translate", 400), ("load", 60)])
def test_memory_and_descriptors_do_not_grow(translator, preset, rng, work, rounds):
    taken = []
    for number in range(rounds):
        if work == "load":
            Translator.from_preset(preset)
        else:
            lines = [" ".join(f"w{n}" for n in rng.integers(0, 40, rng.integers(1, 8))) for _ in range(4)]
            translator.generate(lines, beam_size=2, max_length=6)
        if number % 10 == 9:
            gc.collect()
            taken.append((memory_mb(), len(os.listdir("/proc/self/fd"))))
    memory, descriptors = np.array(taken[len(taken) // 2 :]).T
    numbers = 10 * np.arange(len(memory))
    assert np.polyfit(numbers, memory, 1)[0] < 0.05, f"MB a round: {memory}"
    assert abs(np.polyfit(numbers, descriptors, 1)[0]) < 0.01, descriptors
