"""A served model with a shortlist searches in the tokens that Python searches in, and gives the same strings."""

import json

import keras
import numpy as np
import pytest

from keras_attn import Shortlist, SpecialIds, with_shortlist
from keras_attn.export import export_onnx, export_translator
from keras_attn.models import Ensemble, NematusSeq2Seq
from keras_attn.saving import rounded_model
from keras_attn.translation import Translator
from tests.serving import fresh
from tests.serving.conftest import LINES, READ, SENTENCES, build

NONE = -1
BEAM = 3
LIMITS = {"max_length_ratio": 1.3, "max_length_constant": 2.5}  # of `build`
on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the graph is TensorFlow's")


def of(model):
    """A shortlist of random target tokens that knows four of five source tokens."""
    random = np.random.default_rng(0)
    source, target = model.source_vocabulary_size, model.target_vocabulary_size
    candidates = random.integers(4, target, (source, 3))
    candidates[::2, 2] = NONE
    candidates[::5] = NONE
    return Shortlist(candidates.astype("int32"), np.array([5, 7], "int32"), target)


def ids(*values):
    return SpecialIds(**dict(zip(("pad", "unknown", "start", "end"), values, strict=True)))


class Model:
    """The ids of a model, and its output as ids."""

    source_vocabulary_size, target_vocabulary_size = 320, 340

    def __init__(self, source: SpecialIds, target: SpecialIds):
        self.source_special_ids, self.target_special_ids = source, target

    def output_part(self, token_ids):
        return token_ids


@on_tensorflow
@pytest.mark.parametrize(
    ("source", "target", "banned"),
    [
        (SpecialIds(), SpecialIds(), [9, 40]),
        (ids(7, 5, None, 31), ids(33, 8, 2, 61), [8, 40, 40, 5]),
        (ids(2, None, 0, 1), ids(11, None, 9, None), []),
        (ids(0, 1, None, None), ids(339, 0, 338, 1), [0, 337]),
    ],
)
def test_rows_are_those_of_python(source, target, banned):
    import tensorflow as tf

    from keras_attn.export.search import GraphShortlist

    model = Model(source, target)
    shortlist, both = of(model), (source, target)
    random = np.random.default_rng(1)
    known = [i for i in source.ordinary(model.source_vocabulary_size) if i % 5]
    token_ids = random.choice(known, (6, 5)).astype("int32")
    token_ids[5, 1] = 10  # which is not known
    token_ids[:, 3:] = [[source.filler, source.pad]]
    if source.end is None:
        token_ids[:, 3] = known[0]
    python = shortlist.reduced({"encoder_token_ids": token_ids[:5]}, 5, banned, both)
    graph = GraphShortlist(shortlist, model, banned)
    found = graph(tf.constant(token_ids[:5]))
    assert graph.arguments == python.arguments
    for row, expected in zip(found["allowed"].numpy(), python.inputs["allowed"], strict=True):
        assert set(found["token_ids"].numpy()[row]) == set(python.shortlist[expected])
    found = graph(tf.constant(token_ids))
    assert sorted(found["token_ids"].numpy()) == list(range(model.target_vocabulary_size)), "each id once"
    whole = found["allowed"].numpy().all(axis=1)
    assert whole.tolist() == [False] * 5 + [True]
    assert graph.with_output(found)["output"] is found["token_ids"]
    assert graph(tf.zeros((0, 3), tf.int32))["allowed"].shape[0] == 0


def ensemble():
    """A translator of two models; one has an output projection, the other the target embedding instead."""
    one = build("word").model
    sizes = one.source_vocabulary_size, one.target_vocabulary_size
    options = {"units": 5, "embedding_size": 7, "attention_units": 3, "tie_embeddings": "target"}
    two = NematusSeq2Seq(*sizes, **options, initializer=keras.initializers.RandomNormal(stddev=0.9))
    return build("word", Ensemble([one, two]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("translator", "options"),
    [
        pytest.param(ensemble, {}, marks=on_tensorflow),
        pytest.param(lambda: build("word"), {}, marks=on_tensorflow),
        pytest.param(
            lambda: build("word"),
            {"quantize": "int8", "banned_tokens": ["bleu", "noir"], "beam_size": 1},
            marks=on_tensorflow,
        ),
    ],
    ids=["beam-of-an-ensemble", "beam", "greedy"],
)
def test_strings_are_those_of_generate(tmp_path, translator, options):
    translator = translator()
    restricted = with_shortlist(translator, of(translator.model))
    options = {"beam_size": BEAM} | options
    folder = export_translator(restricted, tmp_path / "served", sentences=SENTENCES, **options)
    quantize = options.pop("quantize", None)
    record = json.loads((folder / "assets.extra" / "keras_attn.json").read_text())
    assert record["shortlist"] == restricted.shortlist.fingerprint
    calls = [("translate", {"text": LINES}), ("translate_n_best", {"text": LINES})]
    calls += [("translate", {"text": [line]}) for line in LINES[:4]]
    calls.append(("score", {"source": LINES[:4], "target": [b"un deux"] * 4}))
    ((best, n_best, *single, scored),) = fresh.run([(folder, calls)])
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    searched = restricted.generate(READ, **options)
    expected = [t.text for t in searched]
    found = [text.decode() for text in best["translation"]]
    assert [text.decode() for text in n_best["translations"][:, 0]] == found
    assert [one["translation"][0].decode() for one in single] == found[:4]
    if quantize:  # float32 has the strings of a model whose weights are rounded
        rounded = Translator(rounded_model(translator.model, quantize), *tokenizers, **LIMITS)
        expected = [t.text for t in with_shortlist(rounded, restricted.shortlist).generate(READ, **options)]
    else:
        np.testing.assert_allclose(best["score"], [t.score for t in searched], rtol=1e-4, atol=1e-5)
        whole = [t.token_log_probs.sum() for t in translator.score(READ[:4], ["un deux"] * 4)]
        np.testing.assert_allclose(scored["log_prob"], whole, rtol=1e-4, err_msg="that of the whole vocabulary")
    assert found == expected
    assert found != [t.text for t in translator.generate(READ, **options)], "a shortlist worth comparing"


def test_onnx_has_none(tmp_path):
    translator = build("word")
    with pytest.raises(ValueError, match="without a shortlist"):
        export_onnx(with_shortlist(translator, of(translator.model)), tmp_path / "onnx")
