"""One tiny preset, and files of sentences, for all commands."""

import numpy as np
import pytest

from keras_attn.models import RNNSearch
from keras_attn.text import Tokenizer
from keras_attn.translation import Translator

SOURCES = ["eins zwei", "", "drei", "zwei drei eins", "vier"]
TARGETS = ["a b c", "", "d", "b d a c e", "f f f f f"]


def tiny_translator(seed: int, sources=SOURCES, targets=TARGETS) -> Translator:
    """A translator with large random weights, the same on every backend, so that its translations differ."""
    random = np.random.default_rng(seed)
    source, target = (Tokenizer.train(lines, level="word") for lines in (sources, targets))
    sizes = {"units": 3, "embedding_size": 5, "readout_size": 4, "attention_units": 3, "decoder_units": 5}
    model = RNNSearch(source.vocabulary_size, target.vocabulary_size, **sizes)
    model.set_weights([random.normal(0, 0.8, weight.shape) for weight in model.get_weights()])
    return Translator(model, source, target, max_length_ratio=1.5, max_length_constant=3)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A preset, files of sentences, and the same as a corpus."""
    folder = tmp_path_factory.mktemp("work")
    tiny_translator(6).save_to_preset(folder / "preset")
    (folder / "preset" / "report.json").write_text('{"source": "de", "target": "fr"}')
    (folder / "corpus").mkdir()
    files = {"source": SOURCES, "target": TARGETS, "short": SOURCES[:2], "other": ["a b", "", "d", "b d a c", "f"]}
    for name, texts in (files | {"corpus/test.de": SOURCES, "corpus/test.fr": TARGETS}).items():
        (folder / name).write_text("".join(f"{text}\n" for text in texts))
    return folder


@pytest.fixture(scope="session")
def preset(folder):
    return folder / "preset"
