"""A corpus and untrained runs for all studies, and their commands in this process."""

import json

import keras
import pytest

from tests.unit.recipes.small_study import InProcess, write_digits


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("corpora") / "digits")


@pytest.fixture(scope="session")
def runs(corpus, tmp_path_factory):
    """A model with one attention and one with two layers of two heads, untrained, whose tokens are words."""
    from keras_attn import Tokenizer, Translator, models

    keras.utils.set_random_seed(4)
    texts = ((corpus / f"train.{language}").read_text().splitlines() for language in ("en", "fr"))
    tokenizers = [Tokenizer.train(lines, level="word") for lines in texts]
    sizes = [tokenizer.vocabulary_size for tokenizer in tokenizers]
    narrow = {"units": 6, "embedding_size": 5, "readout_size": 4, "initializer": "glorot_uniform"}
    heads = {"num_layers": 2, "num_heads": 2}
    built = {
        "rnnsearch": (models.RNNSearch(*sizes, **narrow, attention_units=7), {}),
        "transformer": (models.TransformerSeq2Seq(*sizes, units=8, feed_forward_units=9, **heads), heads),
    }
    trained = {"corpus": "digits", "source": "en", "target": "fr", "seed": 0, "parameters": 1}
    folder = tmp_path_factory.mktemp("runs")
    for name, (model, config) in built.items():
        report = trained | {"recipe": name, "config": config, "command": f"python -m recipes.train {name}"}
        Translator(model, *tokenizers).save_to_preset(folder / name, report=report)
        (folder / name / "report.json").write_text(json.dumps(report))
    return [folder / name for name in built]


@pytest.fixture
def in_process(monkeypatch):
    """Runs the commands of a study in this process; returns a function of `InProcess`'s arguments."""
    from recipes.studies.study import Study  # late, for most tests here need no study

    def use(**options):
        work = InProcess(**options)
        monkeypatch.setattr(Study, "work", lambda self, chains: work(chains))
        return work

    return use
