"""Models that Marian trained, and what it recorded of them.

The program was `tests/fixtures/record_marian.py` of commit 98457b2.
"""

import functools
import json
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import keras_attn as ka
from tests import fixtures

_FOLDER = tempfile.TemporaryDirectory()
WHERE = Path(_FOLDER.name)
with zipfile.ZipFile(Path(fixtures.__file__).with_name("marian.zip")) as archive:
    archive.extractall(WHERE)
RECORDED = json.loads((WHERE / "recorded.json").read_text("utf-8"))
SOURCES, TARGETS = RECORDED["sources"], RECORDED["targets"]
NOT_READ = ["nematus_norm", "s2s_nematus_norm"]
MARIANS = {"normalization": "none", "banned_tokens": ["<unk>"]}  # the options of its search


def vocabularies(name):
    if name in ("tied_source", "tied_all", "everything"):
        return [WHERE / "joint.yml", WHERE / "joint.yml"]
    return [WHERE / f"{side}.{'spm' if name == 'pieces' else 'yml'}" for side in ("source", "target")]


@functools.cache
def translator_of(name):
    return ka.Translator.from_marian(WHERE / f"{name}.npz", vocabularies(name))


def log_probs(translations):
    return [one.token_log_probs.sum() for one in translations]


@pytest.mark.parametrize("name", [name for name in RECORDED["models"] if name not in NOT_READ])
def test_scores_and_alignments_are_marians(name):
    recorded = RECORDED["models"][name]
    scored = translator_of(name).score(SOURCES, TARGETS)
    np.testing.assert_allclose(log_probs(scored), recorded["scores"], atol=1e-4)
    for one, alignment in zip(scored, recorded["alignments"], strict=True):
        np.testing.assert_allclose(one.alignment, alignment, atol=1e-5)


@pytest.mark.parametrize("name", ["s2s", "lstm", "everything"])
def test_translations_are_marians(name):
    """Marian's beam is narrower by each hypothesis that has ended, so that it may miss what is found here."""
    recorded, translator = RECORDED["models"][name], translator_of(name)
    greedy = translator.generate(SOURCES, beam_size=1, max_length=30, **MARIANS)
    assert [one.text for one in greedy] == [best[0] for ((best),) in recorded["greedy"]]
    np.testing.assert_allclose(log_probs(greedy), [best[1] for (best,) in recorded["greedy"]], atol=1e-4)
    found = translator.generate(SOURCES, beam_size=5, max_length=30, **MARIANS)
    scores = np.array([n_best[0][1] for n_best in recorded["beam"]])
    assert np.all(np.array(log_probs(found)) > scores - 1e-4)
    same = [one.text == n_best[0][0] for one, n_best in zip(found, recorded["beam"], strict=True)]
    assert np.mean(same) > 0.7
    np.testing.assert_allclose(np.array(log_probs(found))[same], scores[same], atol=1e-4)
