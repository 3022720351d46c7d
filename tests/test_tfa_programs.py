"""The programs of docs/migrating-from-tfa.md: a functional model, the NMT tutorial of tensorflow_addons, and dates.

The tutorial's weights were made by `tests/fixtures/train_tfa_tutorial.py` of commit 98457b2.
"""

import re
import shutil
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.serving import loader

ROOT = Path(__file__).parents[1]


def run(heading, **names):
    """The names that a section's program defines."""
    page = (ROOT / "docs" / "migrating-from-tfa.md").read_text("utf-8").split(heading + "\n")[1]
    names["__name__"] = __name__
    exec(re.search(r"```python\n(.*?)```", page, flags=re.S)[1], names)
    return names


def test_no_program_of_the_page_is_left_out():
    """Each section has one, which `run` finds."""
    page = (ROOT / "docs" / "migrating-from-tfa.md").read_text("utf-8")
    sections = [section for section in page.split("\n## ") if "```python" in section]
    assert [section.splitlines()[0] for section in sections] == [
        "Attention and its wrapper",
        "The NMT tutorial",
        "Dates",
    ]
    assert all(section.count("```python") == 1 for section in sections)


def test_the_functional_model_trains_and_is_saved(tmp_path):
    model = run("## Attention and its wrapper")["model"]
    source, target = np.array([[5, 6, 7], [8, 9, 0]]), np.array([[2, 4], [2, 3]])
    first, last = model.fit([source, target], target, epochs=2, verbose=0).history["loss"]
    assert last < first
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    ours, theirs = (each.predict([source, target], verbose=0) for each in (model, loaded))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The tutorial's, with the checkpoint that tensorflow_addons trained."""
    pytest.importorskip("tensorflow", reason="reads TensorFlow's checkpoints")
    folder = tmp_path_factory.mktemp("tutorial")
    with zipfile.ZipFile(ROOT / "tests" / "fixtures" / "tfa_tutorial.zip") as archive:
        archive.extractall(folder)
    return run("## The NMT tutorial", folder=folder)


def expected(program, name):
    return (program["folder"] / f"{name}.txt").read_text("utf-8").splitlines()


@pytest.mark.parametrize("name", ["greedy", "beam"])
def test_every_translation_is_theirs(program, name):
    found = [translation.text for translation in program[name]]
    assert found == expected(program, name)
    assert len(found) == 100


@pytest.mark.nightly
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="exports with TensorFlow")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not here to build the C program")
def test_the_servers_own_loader_gives_them_too(program, tmp_path):
    """By the C program, which loads a SavedModel as the stock server does."""
    folder = program["translator"].export(tmp_path / "model", beam_size=3, length_penalty=0.0, max_length=20)
    lines = [line.encode() for line in program["marked"]]
    done, found = loader.run(loader.build(tmp_path), folder, lines, "--signature", "serving_default")
    assert done.returncode == 0, done.stderr
    texts = [text.decode() for text in found["serving_default"]["translation"]]
    assert texts == expected(program, "beam")


@pytest.mark.nightly
@pytest.mark.skipif(keras.backend.backend() != "jax", reason="trains for minutes on the others")
def test_dates():
    keras.utils.set_random_seed(1)
    names = run("## Dates")
    assert [translation.text for translation in names["greedy"]] == names["right"]
    assert all(re.fullmatch(r"[0-9-]{10}", translation.text) for translation in names["drawn"])
