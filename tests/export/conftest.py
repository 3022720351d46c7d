"""A translator that is exported once for all tests, and the C program that loads a version as the stock server does."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from keras_attn.export import export_translator
from keras_attn.translation import Translator
from tests.export.small import READ, SENTENCES, build
from tests.serving import loader

REPORT = {"recipe": "rnnsearch", "source": "de", "target": "fr", "bleu": {"score": 12.5, "signature": "s"}, "x": 1}


@dataclass(frozen=True)
class Exported:
    translator: Translator
    root: Path
    folder: Path
    expected: list  # the translations of READ by `generate`


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    translator = build("bpe")
    root = tmp_path_factory.mktemp("saved_models") / "bpe"
    folder = export_translator(translator, root, beam_size=3, sentences=SENTENCES, report=REPORT)
    return Exported(translator, root, folder, translator.generate(READ, beam_size=3, return_alignments=False))


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not here to build the C program")
    return loader.build(tmp_path_factory.mktemp("loader"))
