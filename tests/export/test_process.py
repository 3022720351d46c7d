"""On JAX and torch, TensorFlow exports in a process of its own, custom layers, a shortlist and int8 included."""

import importlib
import json
import sys

import keras
import pytest

from keras_attn import quantize, with_shortlist
from keras_attn.export import export_translator
from keras_attn.export.process import custom_modules
from keras_attn.models import LuongSeq2Seq
from tests.export.small import SENTENCES, build, shortlist_of, train_tokenizers

MODULE = '''
from keras import ops

from keras_attn import register_attention
from keras_attn.layers import Attention
from my_scores import negative


@register_attention("negative_dot")
class NegativeDot(Attention):
    """The dot product with its sign changed."""

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
    sizes = {"units": 32, "num_layers": 1, "embedding_size": 32, "readout_size": 32}  # the least that int8 is for
    initializer = keras.initializers.RandomNormal(stddev=0.5)
    source, target = (tokenizer.vocabulary_size for tokenizer in train_tokenizers("word"))
    return LuongSeq2Seq(source, target, **sizes, attention=attention, initializer=initializer)


def test_modules_of_the_users_layers_are_named(module, monkeypatch):
    """Not those that only training needs; a class of a script cannot be imported."""
    assert custom_modules(model_with("dot")) == []
    model = model_with(module.NegativeDot())

    class Mine(keras.losses.Loss):
        __module__ = "__main__"

        def call(self, y_true, y_pred):
            return y_pred

    model.compile(loss=Mine())
    assert custom_modules(model) == custom_modules(model_with("negative_dot")) == ["my_attention"]
    monkeypatch.setattr(module.NegativeDot, "__module__", "__main__")
    with pytest.raises(ValueError, match=r"a module that can be imported.*Received: NegativeDot, defined in __main__"):
        custom_modules(model_with(module.NegativeDot()))


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="TensorFlow exports in its own process")
def test_a_users_attention_is_exported(module, tmp_path):
    """The export itself compares the version's translations with those of `generate`."""
    translator = build("word", model_with("negative_dot"))
    translator = quantize(with_shortlist(translator, shortlist_of(translator.model)))
    options = {"beam_size": 2, "jit_compile": True, "batch_size": 1, "max_source_length": 16}
    folder = export_translator(translator, tmp_path / "served", sentences=SENTENCES[1:2], **options)
    record = json.loads((folder / "assets.extra" / "keras_attn.json").read_text())
    assert (record["model"], record["int8_products"]) == ("LuongSeq2Seq", True)
    assert record["shortlist"] == translator.shortlist.fingerprint
