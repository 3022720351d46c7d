"""Copies of a translator, in float32 and in int8."""

import copy
import pickle

import pytest

import keras_attn
from tests.translation.test_options import LINES, texts


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "deepcopy", "pickle"]
)
@pytest.mark.parametrize("quantized", [False, True])
def test_a_copy_translates_alike(translator, copied, quantized):
    original = keras_attn.quantize(translator) if quantized else translator
    expected = original.generate(LINES, beam_size=2)
    other = copied(original)
    found = other.generate(LINES, beam_size=2)
    assert texts(found) == texts(expected)
    assert [t.score for t in found] == pytest.approx([t.score for t in expected], rel=1e-6)
    assert (other.model is original.model) == (copied is copy.copy)
    assert other.limits() == original.limits()
    assert texts(original.generate(LINES, beam_size=2)) == texts(expected)  # the original is as before
