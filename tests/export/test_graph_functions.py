"""The function that is saved: chunks, limits and the order of rows."""

from copy import copy

import keras
import pytest

from tests.export.small import NEEDS_TENSORFLOW, SENTENCES, build

if keras.backend.backend() != "tensorflow":
    pytest.skip(NEEDS_TENSORFLOW, allow_module_level=True)

import tensorflow as tf

from keras_attn.export import ExportOptions
from keras_attn.export.search import RequestOptions
from keras_attn.export.signatures import ServedTranslator, run_in_chunks


@pytest.fixture(scope="module")
def translator():
    return build("word")


def test_chunks_and_cuts(translator):
    """Many chunks, some of one row, say what `generate` says; after `max_source_length` nothing is read."""
    options = ExportOptions(
        beam_size=2,
        max_source_length=7,
        batch_size=3,
        tokens_per_batch=13,
        early_stopping=True,
        no_repeat_ngram_size=2,
    )
    served = ServedTranslator(translator, options)
    lines = [*SENTENCES, "", "ein", "  ", *(" ".join(SENTENCES[2].split()[:n]) for n in range(9))]
    cut = [" ".join(line.split()[:6]) for line in lines]
    expected = translator.generate(cut, beam_size=2, early_stopping=True, no_repeat_ngram_size=2)
    found = served.functions["serving_default"](text=tf.constant(lines))
    assert [text.decode() for text in found["translation"].numpy()] == [t.text for t in expected]
    assert found["score"].numpy().tolist() == pytest.approx([t.score for t in expected], rel=1e-4)
    assert len({t.text for t in expected}) > 5


def test_rows_that_are_apart_have_chunks_of_their_own():
    """The longest ones; a blank row is in no chunk, though its limits may set it apart."""
    chunks = []

    def function(rows):
        chunks.append(rows.numpy().tolist())
        return {"row": tf.cast(rows, tf.float32) + 1}

    lengths, apart = tf.constant([3, 0, 9, 2, 0]), tf.constant([False, True, True, False, True])
    for chosen, expected in ((apart, [[2], [0, 3]]), (None, [[2, 0, 3]]), (lengths >= 0, [[2, 0, 3]])):
        chunks.clear()
        found = run_in_chunks(lengths, 4, 100, function, {"row": tf.TensorSpec((None,))}, chosen)
        assert (chunks, found["row"].numpy().tolist()) == (expected, [1, 0, 3, 4, 0])


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"max_length": 5},
        {"max_length_ratio": 1.1},
        {"max_length": 41, "max_length_ratio": 0.7},
        {"min_length": 3, "min_length_ratio": 0.3},
        {"max_length": 7, "max_length_ratio": 2.3, "min_length": 7, "min_length_ratio": 1.7},
    ],
    ids=str,
)
def test_limits_are_the_translators(translator, said):
    """For every length; and the same whether they came with the export or, as float32, with a request."""
    translator, lengths = copy(translator), range(1, 3001)
    translator.trained_length = 700  # longer sources than 1,400 have the limit of those
    expected = translator.limits(**said)
    assert said or expected.longest(1400) == expected.longest(3000) == 1823
    longest = [expected.longest(length) for length in lengths]
    shortest = [min(expected.shortest(length), 10**5) for length in lengths]
    fixed = RequestOptions.default(ExportOptions(**said))
    for request in (fixed.constants(), fixed.constants("float32").validated()):
        found = request.limits(tf.constant(lengths), translator, 10**5)
        assert [row.numpy().tolist() for row in found] == [longest, shortest]
    most = request.limits(tf.constant(lengths), translator, 11)
    assert [row.numpy().max() for row in most] == [min(11, max(longest)), min(11, max(shortest))]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("length_penalty", -0.5),
        ("length_penalty", float("nan")),
        ("max_length", -1),
        ("min_length_ratio", 1e39),
    ],
)
def test_a_request_out_of_range_is_refused(name, value):
    request = RequestOptions.default(ExportOptions())._replace(**{name: value})
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"Expected {name} to be a number of at least 0"):
        request.constants("float32").validated()
