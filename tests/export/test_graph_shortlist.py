"""A graph searches in the tokens that `Shortlist.reduced` gives; test_every_model.py compares translations."""

import keras
import numpy as np
import pytest

from keras_attn import SpecialIds
from tests.export.small import NEEDS_TENSORFLOW, shortlist_of

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason=NEEDS_TENSORFLOW)


def ids(*values):
    return SpecialIds(**dict(zip(("pad", "unknown", "start", "end"), values, strict=True)))


class Model:
    """The ids of a model, and its output as ids."""

    source_vocabulary_size, target_vocabulary_size = 320, 340

    def __init__(self, source: SpecialIds, target: SpecialIds):
        self.source_special_ids, self.target_special_ids = source, target

    def output_part(self, token_ids):
        return token_ids


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
    shortlist, both = shortlist_of(model), (source, target)
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
