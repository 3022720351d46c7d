"""A served model with a shortlist searches in the tokens that Python searches in, and gives the same strings."""

import json

import keras
import numpy as np
import pytest

from keras_attn import Shortlist, with_shortlist
from keras_attn.serving.export import export_onnx, export_translator
from tests.serving import fresh
from tests.serving.conftest import LINES, READ, SENTENCES, build

NONE = -1
BEAM = 3
on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is TensorFlow's")


def of(translator):
    """A shortlist of random target tokens that knows four of five source tokens."""
    random = np.random.default_rng(0)
    source, target = translator.model.source_vocabulary_size, translator.model.target_vocabulary_size
    candidates = random.integers(4, target, (source, 3))
    candidates[::2, 2] = NONE
    candidates[::5] = NONE
    return Shortlist(candidates.astype("int32"), np.array([5, 7], "int32"), target)


@on_tensorflow
def test_rows_are_those_of_python():
    import tensorflow as tf

    from keras_attn.serving.export.graph_shortlist import GraphShortlist

    translator = build("bpe")
    model, banned = translator.model, [9, 40]
    ids = model.source_special_ids, model.target_special_ids
    random = np.random.default_rng(1)
    token_ids = random.integers(4, model.source_vocabulary_size, (6, 5)).astype("int32")
    token_ids += (token_ids % 5 == 0).astype("int32")  # known tokens alone,
    token_ids[5, 1] = 10  # but for one
    token_ids[:, 3:] = [[ids[0].end, ids[0].pad]]
    python = of(translator).reduced({"encoder_token_ids": token_ids[:4]}, 4, banned, ids)
    graph = GraphShortlist(of(translator), model, banned)
    found = graph(tf.constant(token_ids[:4]))
    assert graph.arguments == python.arguments
    for row, expected in zip(found["allowed"].numpy(), python.inputs["allowed"], strict=True):
        assert sorted(found["token_ids"].numpy()[row]) == sorted(python.shortlist[expected])
    found = graph(tf.constant(token_ids))
    assert sorted(found["token_ids"].numpy()) == list(range(model.target_vocabulary_size)), "each id once"
    whole = found["allowed"].numpy().all(axis=1)
    assert whole.tolist() == [False] * 5 + [True]
    assert found["output"]["kernel"].shape[1] == model.target_vocabulary_size


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"quantize": "int8", "banned_tokens": ["bleu", "noir"], "beam_size": 1}, marks=on_tensorflow)],
    ids=["beam", "greedy"],
)
def test_strings_are_those_of_generate(tmp_path, options):
    translator = build("word")
    restricted = with_shortlist(translator, of(translator))
    options = {"beam_size": BEAM} | options
    folder = export_translator(restricted, tmp_path / "served", sentences=SENTENCES, **options)
    quantize = options.pop("quantize", None)
    record = json.loads((folder / "assets.extra" / "keras_attn.json").read_text())
    assert record["shortlist"] == restricted.shortlist.fingerprint
    calls = [("translate", {"text": LINES}), ("translate_n_best", {"text": LINES})]
    calls += [("translate", {"text": [line]}) for line in LINES[:4]]
    ((best, n_best, *single),) = fresh.run([(folder, calls)])
    expected = [t.text for t in restricted.generate(READ, **options)]
    found = [text.decode() for text in best["translation"]]
    assert [text.decode() for text in n_best["translations"][:, 0]] == found
    assert [one["translation"][0].decode() for one in single] == found[:4]
    if quantize is None:
        assert found == expected
        assert found != [t.text for t in translator.generate(READ, **options)], "a shortlist worth comparing"


def test_onnx_has_none(tmp_path):
    translator = build("word")
    with pytest.raises(ValueError, match="without a shortlist"):
        export_onnx(with_shortlist(translator, of(translator)), tmp_path / "onnx")
