"""Options of a translator: limits, sources longer than training, prefixes in batches, and what is refused."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.search import Limits
from keras_attn.text import END_ID
from keras_attn.translation import Translator
from keras_attn.translation.batching import Sentence, search_inputs
from tests.translation.test_options import LINES, lengths, texts


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    st.none() | st.integers(1, 50),
    st.floats(0.01, 9),
    st.floats(0, 9),
    st.none() | st.integers(1, 50),
    st.none() | st.floats(0.01, 9),
    st.integers(0, 99),
)
def test_limits_are_the_documented_ones(max_length, max_ratio, constant, min_length, min_ratio, source_length):
    if min_length and max_length and min_length > max_length:
        with pytest.raises(ValueError, match="min_length to be at most"):
            Limits(max_length, max_ratio, constant, min_length, min_ratio)
        return
    limits = Limits(max_length, max_ratio, constant, min_length, min_ratio)
    most = min(max_length or math.inf, max_ratio * source_length + constant)
    least = max(min_length or 1, (min_ratio or 0) * source_length)
    assert max(1, most) <= limits.longest(source_length) < max(1, most) + 1
    assert least <= limits.shortest(source_length) < least + 1


def test_the_translators_own_limit_is_the_default(translator):
    assert [translator.limits().longest(n) for n in (1, 2, 5)] == [5, 6, 11]
    assert translator.limits(max_length=40).longest(2) == 40
    assert translator.limits(max_length_ratio=2.0).longest(2) == 4
    assert translator.limits(min_length=3).longest(2) == 6


def test_a_source_longer_than_training_has_the_limit_of_twice_that_and_a_warning(translator):
    parts = translator.model, translator.source_tokenizer, translator.target_tokenizer
    same = Translator(*parts, max_length_ratio=0.5, trained_length=4)
    assert [same.limits().longest(n) for n in (8, 9, 4096)] == [14, 14, 14]
    assert [translator.limits().longest(n) for n in (1000, 4096)] == [1503, 1503], "a model of unknown training"
    texts = ["s1 " * 7, "s2 " * 8, "s3 " * 29]
    said = r"at most 8 tokens .* up to 4\. Received 2 longer ones: .* at most 14 tokens"
    for search in (same.generate, same.sample):
        with pytest.raises(UserWarning, match=said):  # which are errors in tests
            search(texts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert lengths(same.generate(texts, beam_size=2, min_length_ratio=2.0)) == [14] * 3
    longer = [same.generate(texts, beam_size=2, min_length=15, max_length=n)[2] for n in (15, 17)]
    longer.append(same.generate(texts, beam_size=2, min_length_ratio=0.8, max_length_ratio=0.8)[2])
    longer.append(same.score(texts, ["t1 " * 29] * 3)[2])
    assert [len(translation.token_ids) > 14 for translation in longer] == [True] * 4


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40), st.integers(0, 70)), min_size=1, max_size=7))
def test_there_is_room_for_every_prefix_and_its_end(rows):
    """`beam_search` truncates a prefix that fills the last position: a row would then depend on its batch mates."""
    sentences = [
        Sentence("", [4] * 5 + [END_ID], longest, shortest, [5] * prefix) for longest, shortest, prefix in rows
    ]
    inputs, room = search_inputs(sentences, (8, 8))
    assert room in (64, 128)
    assert inputs["encoder_token_ids"].shape == (8, 8)
    assert inputs["row_max_length"][: len(rows)].tolist() == [max(n, p + 1) for n, _, p in rows]
    assert inputs["row_max_length"].max() <= room
    if "forced_prefix" in inputs:
        assert inputs["forced_prefix"].shape[1] <= room
        assert (inputs["forced_prefix"] > 0).sum(1)[: len(rows)].tolist() == [p for *_, p in rows]
    else:
        assert not any(p for *_, p in rows)
    minimums = inputs.get("row_min_length", np.ones(8, "int32"))
    assert minimums[: len(rows)].tolist() == [n for _, n, _ in rows]
    # Rows that only fill the batch are empty sentences and end at once.
    assert (inputs["encoder_token_ids"][len(rows) :] == [END_ID, *[0] * 7]).all()
    assert (inputs["row_max_length"][len(rows) :] == 1).all()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("generate", {"prefixes": "t1"}, "`prefixes` to be a list"),
        ("generate", {"prefixes": ["t1"]}, "an entry for each of 5 sentences. Received: 1"),
        ("generate", {"prefixes": ["t\ud800"] * 5}, "surrogate"),
        ("generate", {"banned_tokens": "<unk>"}, "a list of tokens or ids"),
        ("generate", {"banned_tokens": ["nonsense"]}, "Received: 'nonsense'"),
        ("generate", {"banned_tokens": [99]}, "Received: 99"),
        ("generate", {"banned_tokens": [-1]}, "Received: -1"),
        ("generate", {"banned_tokens": [4.5]}, "Received: 4.5"),
        ("score", {"sources": "s1", "targets": ["t1"]}, "`sources` to be a list"),
        ("score", {"targets": "t1"}, "`targets` to be a list"),
        ("score", {"targets": ["t1", "t2"]}, "each of 5 sentences. Received: 2"),
        ("score", {"targets": ["t\ud800"] * 5}, "surrogate U"),
        ("score", {"targets": [None] * 5}, "NoneType"),
        ("score", {"targets": [[5, 6]] * 5}, "end in the end token 3"),
        ("score", {"targets": [[]] * 5}, "end in the end token 3"),
        ("score", {"targets": [[5, 0, 3]] * 5}, "no other special token"),
        ("score", {"targets": [[37, 3]] * 5}, "ids from 0 to 36. Received: 37"),
        ("score", {"targets": [[-1, 3]] * 5}, "ids from 0 to 36. Received: -1"),
        ("score", {"targets": [[4.5, 3]] * 5}, "whole numbers. Received: .4.5, 3"),
        ("sample", {"seed": 1.5}, "`seed` to be a whole number.* Received: 1.5"),
        ("sample", {"row_ids": ["a"] * 5}, "`row_ids` to be a whole number.* Received: 'a'"),
        ("generate", {"prefixes": 7}, "`prefixes` to be a list. Received: 7"),
        ("generate", {"banned_tokens": ["</s>"]}, "^Expected `banned_token_ids` without the end token"),
        ("generate", {"replace_unknown": 3}, "a dictionary. Received: 3"),
        ("generate", {"forced_prefix": [[4]]}, "search options among: .*no_repeat_ngram_size"),
        ("generate", {"seed": 1}, "Received: seed"),
        ("sample", {"row_ids": [1]}, "`row_ids` to have an entry for each of 5"),
        ("sample", {"top_p": 1.5}, "top_p to be at most 1"),
        ("score", {"targets": ["t1"] * 5, "length_penalty": math.inf}, "Received: length_penalty=inf"),
        ("sample", {"beam_size": 5}, "search options among: length_penalty, normalization, .*, no_repeat_ngram_size"),
    ],
)
def test_invalid_arguments_are_refused(translator, method, options, message):
    given = {"sources": LINES} | options
    with pytest.raises(ValueError, match=message):
        getattr(translator, method)(given.pop("sources"), **given)


def test_numbers_of_numpy_are_numbers(translator):
    options = {"beam_size": 2, "max_length": 3, "batch_size": 3, "n_best": 2, "no_repeat_ngram_size": 2}
    expected = translator.generate(LINES, **options)
    found = translator.generate(LINES, **{name: np.int64(value) for name, value in options.items()})
    assert texts(found) == texts(expected)
    assert max(lengths(found)) == 3
    translator.score(LINES, LINES, length_penalty=np.float32(1), batch_size=np.int64(3), tokens_per_batch=np.int32(64))
    translator.sample(LINES, seed=np.int64(5), num_samples=np.int64(2), row_ids=np.arange(5))


@pytest.mark.parametrize("texts", [None, 5, b"s1", [None], ["s1", "s\ud800"], [["s1"]]])
def test_texts_that_are_none_are_refused(translator, texts):
    with pytest.raises(ValueError, match=r"Expected .* Received"):
        translator.generate(texts)


def test_texts_may_come_from_any_iterable(translator):
    plain = translator.generate(LINES, beam_size=2)
    assert texts(translator.generate(iter(LINES), beam_size=2)) == texts(plain)
    assert texts(translator.generate(np.array(LINES), beam_size=2)) == texts(plain)
