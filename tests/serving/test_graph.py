"""The function that is saved: chunks, limits and the order of rows."""

import keras
import pytest

from tests.serving.conftest import SENTENCES, build

if keras.backend.backend() != "tensorflow":
    pytest.skip("the graph is TensorFlow's; other backends export in a process of its own", allow_module_level=True)

import tensorflow as tf

from keras_attn.serving.graph import ServedTranslator, source_limits
from keras_attn.serving.options import Options


@pytest.fixture(scope="module")
def translator():
    return build("word")


def test_chunks_and_cuts(translator):
    """Many chunks, some of one row, say what `generate` says; after `max_source_length` nothing is read."""
    options = Options(
        beam_size=2, max_source_length=7, batch_size=3, tokens_per_batch=13, search={"early_stopping": True}
    )
    served = ServedTranslator(translator, options)
    lines = [*SENTENCES, "", "ein", "  ", *(" ".join(SENTENCES[2].split()[:n]) for n in range(9))]
    cut = [" ".join(line.split()[:6]) for line in lines]
    expected = translator.generate(cut, beam_size=2, early_stopping=True)
    found = served.functions["serving_default"](text=tf.constant(lines))
    assert [text.decode() for text in found["translation"].numpy()] == [t.text for t in expected]
    assert found["score"].numpy().tolist() == pytest.approx([t.score for t in expected], rel=1e-4)
    assert len({t.text for t in expected}) > 5


def test_limits_are_the_translators(translator):
    limits = source_limits(translator, Options(max_source_length=3001))
    assert limits.tolist() == [translator.limits().longest(length) for length in range(3002)]
    assert set(source_limits(translator, Options(max_length=5)).tolist()) == {5}
