"""A model with an attention layer of the user's is exported from every backend."""

import importlib
import json
import os
import subprocess
import sys

import keras
import pytest

from keras_attn.export import export_translator
from keras_attn.export.process import custom_modules
from keras_attn.models import LuongSeq2Seq
from tests.serving.conftest import REPORT, SENTENCES, build, train_tokenizers

MODULE = '''
import keras
from keras import ops

from keras_attn.layers import Attention
from my_scores import negative


@keras.saving.register_keras_serializable("mine")
class NegativeDot(Attention):
    """The dot product with its sign changed."""

    def build(self, query_shape, values_shape, **_):
        pass

    def scores(self, query, keys):
        return negative(ops.sum(ops.expand_dims(query, -2) * keys, axis=-1))
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The user's module and one that it imports, in a folder of `sys.path`, as in a notebook's."""
    (tmp_path / "my_attention.py").write_text(MODULE)
    (tmp_path / "my_scores.py").write_text("def negative(x):\n    return -x\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("my_attention")
    for name in ("my_attention", "my_scores"):
        sys.modules.pop(name)


def model_with(attention):
    sizes = {"units": 7, "num_layers": 1, "embedding_size": 11, "readout_size": 13}
    source, target = train_tokenizers("word")
    return LuongSeq2Seq(source.vocabulary_size, target.vocabulary_size, **sizes, attention=attention)


def test_modules_of_the_users_layers_are_named(module):
    assert custom_modules(model_with("dot")) == []
    assert custom_modules(model_with(module.NegativeDot())) == ["my_attention"]


def test_what_only_training_needs_is_not_needed(module):
    class Mine(keras.losses.Loss):
        __module__ = "__main__"

        def call(self, y_true, y_pred):
            return y_pred

    model = model_with(module.NegativeDot())
    model.compile(loss=Mine())
    assert custom_modules(model) == ["my_attention"]


def test_a_class_of_main_is_refused_in_a_sentence(module):
    module.NegativeDot.__module__ = "__main__"
    model = model_with(module.NegativeDot())
    with pytest.raises(ValueError, match=r"a module that can be imported.*Received: NegativeDot, defined in __main__"):
        custom_modules(model)


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="in another process, which JAX starts as torch does")
def test_a_users_attention_is_exported(module, tmp_path):
    """The export itself compares the version's translations with those of `generate`."""
    translator = build("word", model=model_with(module.NegativeDot()))
    folder = export_translator(translator, tmp_path / "served", beam_size=2, sentences=SENTENCES, report=REPORT)
    record = json.loads((folder / "assets.extra" / "keras_attn.json").read_text())
    assert record["model"] == "LuongSeq2Seq"
    assert (record["run"], record["scores"]) == ({"recipe": "rnnsearch"}, {"bleu": REPORT["bleu"]})


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "torch", reason="in another process, which JAX starts as torch does")
def test_main_of_a_script_is_refused(tmp_path, processes_on_jax):
    script = MODULE.replace("from my_scores import negative", "negative = ops.negative") + (
        "from tests.serving.conftest import build\n"
        "from tests.serving.export.test_custom_modules import model_with\n"
        "build('word', model=model_with(NegativeDot())).export('never')\n"
    )
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.getcwd()}, stderr=-1, text=True
    )
    assert done.stderr.splitlines()[-1].startswith("ValueError: Expected custom layers to be defined in a module")
    assert not (tmp_path / "never").exists()
