"""Options of a single sentence (lengths, prefix, random draws), banned tokens, and replacement of unknown words."""

import math
import warnings

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.search import Limits
from keras_attn.text import END_ID, SPECIAL_TOKENS, UNKNOWN_ID
from keras_attn.translation import Translator
from keras_attn.translation.batching import Sentence, search_inputs
from tests.models import test_golden

pytestmark = pytest.mark.by_turns

LINES = ["s1 s2 s3 s4", "s20 Ärzte", "", "s7 s8 s9", "s11"]
SOURCE_LENGTHS = [5, 3, 0, 4, 2]  # end token included


@pytest.fixture(scope="module")
def plain(translator):
    return translator.generate(LINES, beam_size=2)


def texts(translations):
    return [translation.text for translation in translations]


def lengths(translations):
    return [len(translation.token_ids) for translation in translations]


# Lengths.


def test_lengths_follow_the_sentences_own_source(translator, plain):
    options = {"min_length_ratio": 1.4, "max_length_ratio": 1.6, "max_length": 7}
    found = translator.generate(LINES, beam_size=2, **options)
    longest = [min(7, math.ceil(1.6 * n)) for n in SOURCE_LENGTHS]
    shortest = [math.ceil(1.4 * n) for n in SOURCE_LENGTHS]
    assert all(low <= n <= high for low, n, high in zip(shortest, lengths(found), longest, strict=True))
    assert not all(low <= n <= high for low, n, high in zip(shortest, lengths(plain), longest, strict=True))
    alone = translator.generate(LINES, beam_size=2, batch_size=1, **options)
    assert texts(alone) == texts(found)
    assert lengths(translator.generate(LINES, beam_size=2, min_length=9, max_length=9)) == [9, 9, 0, 9, 9]


@pytest.mark.once
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


@pytest.mark.once
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


def test_a_mixed_policy_of_the_process_does_not_round_the_weights_of_a_model_in_float32(translator):
    keras.config.set_dtype_policy("mixed_bfloat16")
    same = Translator(translator.model, translator.source_tokenizer, translator.target_tokenizer)
    found = same.generate(LINES[:1], beam_size=2, max_length=9)
    keras.config.set_dtype_policy("float32")
    expected = translator.generate(LINES[:1], beam_size=2, max_length=9)
    np.testing.assert_allclose(found[0].token_log_probs, expected[0].token_log_probs, rtol=1e-6)


# Prefixes.


PREFIXES = ["t5 t5", "", "t1", "t9 Zürich t2", "t1 t2 t3 t4 t5 t6 t7"]


def test_every_sentence_has_a_prefix_of_its_own(translator, plain):
    found = translator.generate(LINES, beam_size=2, prefixes=PREFIXES)
    assert found[1].text == plain[1].text
    assert found[2].text == ""
    for translation, prefix in zip(found, PREFIXES, strict=True):
        assert translation.text[: len(prefix) + 1].strip() in ("", prefix) or not prefix
    assert found[3].tokens[:3] == ("t9", "<unk>", "t2")
    assert lengths(found)[4] > translator.limits().longest(2)  # longer than the limit: it ends at once
    assert lengths(found)[4] == 8
    alone = translator.generate(LINES, beam_size=2, prefixes=PREFIXES, batch_size=1)
    assert texts(alone) == texts(found)
    scores = translator.score(LINES, [t.token_ids if t.token_ids else "" for t in found])
    np.testing.assert_allclose([t.score for t in found], [t.score for t in scores], atol=1e-5)


@pytest.mark.once
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


# Banned tokens, and words for unknown ones.


def test_banned_tokens_are_never_produced(translator, plain):
    said = {token for translation in plain for token in translation.tokens}
    banned = sorted(said - {"</s>"})[:3]
    found = translator.generate(LINES, beam_size=2, banned_tokens=[*banned, "<unk>", 7])
    ids = {i for translation in found for i in translation.token_ids}
    assert not ids & {*map(translator.target_tokenizer.vocabulary.index, banned), UNKNOWN_ID, 7}
    assert len(ids) > 1


def test_unknown_words_are_copied_from_the_aligned_source_word(translator):
    """All words are banned, so that the model can only produce `<unk>`."""
    words = translator.target_tokenizer.vocabulary[len(SPECIAL_TOKENS) :]
    options = {"beam_size": 1, "min_length": 4, "max_length": 4, "banned_tokens": words}
    plain = translator.generate(LINES, **options)
    assert texts(plain) == ["<unk> <unk> <unk>"] * 2 + [""] + ["<unk> <unk> <unk>"] * 2
    dictionary = {"Ärzte": "medici", "s3": "x y"}
    copied = translator.generate(LINES, replace_unknown=True, return_alignments=False, **options)
    translated = translator.generate(LINES, replace_unknown=dictionary, **options)
    for line, translation, copy, other in zip(LINES, plain, copied, translated, strict=True):
        if not line:
            continue
        looked = translation.alignment[:3, :-1].argmax(1)
        words = [line.split()[j] for j in looked]
        assert copy.text == " ".join(words)
        assert other.text == " ".join(dictionary.get(word, word) for word in words)
        assert copy.alignment is None
        assert copy.tokens == translation.tokens == other.tokens
    assert len({translation.text for translation in copied}) > 3
    prefixed = translator.generate(LINES[:2], replace_unknown=True, prefixes=["Zürich", "t1"], **options)
    assert texts(prefixed) == [
        " ".join(["Zürich", *copied[0].text.split()[1:]]),
        " ".join(["t1", *prefixed[1].text.split()[1:]]),
    ]


# Samples.


def test_samples_do_not_depend_on_the_batch(translator):
    whole = translator.sample(LINES, num_samples=3, seed=11, temperature=0.8)
    assert [len(t.n_best) for t in whole] == [3, 3, 0, 3, 3]
    assert whole[0].n_best[0].text == whole[0].text
    for rows, batch_size in (([4, 3, 0], 3), ([1], 64)):
        part = translator.sample(
            [LINES[row] for row in rows], num_samples=3, seed=11, temperature=0.8, row_ids=rows, batch_size=batch_size
        )
        for row, translation in zip(rows, part, strict=True):
            assert texts(translation.n_best) == texts(whole[row].n_best)
    alike = ["s1 s2 s3 s4"] * 3
    first, second, third = texts(translator.sample(alike, num_samples=1, seed=11, temperature=0.8, row_ids=[0, 9, 9]))
    assert first == whole[0].text != second == third
    fewer = translator.sample(LINES, num_samples=1, seed=11, temperature=0.8)
    assert texts(fewer) == texts(whole)
    assert texts(translator.sample(LINES, num_samples=1, seed=12, temperature=0.8)) != texts(whole)
    samples = [(line, one) for line, t in zip(LINES, whole, strict=True) for one in t.n_best]
    scores = translator.score(
        *zip(*[(line, one.token_ids) for line, one in samples], strict=True), normalization="none"
    )
    np.testing.assert_allclose([one.score for _, one in samples], [t.score for t in scores], atol=1e-4)


def test_a_new_seed_is_not_traced_again(translator, monkeypatch):
    calls = []
    encode = type(translator.model).encode
    monkeypatch.setattr(type(translator.model), "encode", lambda *args: calls.append(1) or encode(*args))
    fresh = Translator(translator.model, translator.source_tokenizer, translator.target_tokenizer)
    drawn, traced = {}, []
    for seed in (5, 2**40, 7):
        drawn[seed] = fresh.sample(["s1 s2", "s3"], seed=seed, row_ids=[2**33 + 1, 1])[0].text
        traced.append(len(calls))
    assert traced == ([1, 2, 3] if keras.backend.backend() == "torch" else traced[:1] * 3)  # torch runs eagerly
    assert len(set(drawn.values())) > 1


@pytest.mark.once
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
        ("score", {"targets": [[37, 3]] * 5}, "ids from 0 to 36. Received: 37"),
        ("score", {"targets": [[-1, 3]] * 5}, "ids from 0 to 36. Received: -1"),
        ("score", {"targets": [[4.5, 3]] * 5}, "whole numbers. Received: .4.5, 3"),
        ("sample", {"seed": 1.5}, "`seed` to be a whole number.* Received: 1.5"),
        ("sample", {"row_ids": ["a"] * 5}, "`row_ids` to be a whole number.* Received: 'a'"),
        ("generate", {"prefixes": 7}, "`prefixes` to be a list. Received: 7"),
        ("generate", {"banned_tokens": ["</s>"]}, "without the end token"),
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
    with pytest.raises(ValueError, match=message):
        getattr(translator, method)(LINES, **options)


def test_numbers_of_numpy_are_numbers(translator):
    options = {"beam_size": 2, "max_length": 3, "batch_size": 3, "n_best": 2, "no_repeat_ngram_size": 2}
    expected = translator.generate(LINES, **options)
    found = translator.generate(LINES, **{name: np.int64(value) for name, value in options.items()})
    assert texts(found) == texts(expected)
    assert max(lengths(found)) == 3
    translator.score(LINES, LINES, length_penalty=np.float32(1), batch_size=np.int64(3), tokens_per_batch=np.int32(64))
    translator.sample(LINES, seed=np.int64(5), num_samples=np.int64(2), row_ids=np.arange(5))


@pytest.mark.once
@pytest.mark.parametrize("texts", [None, 5, "s1", b"s1", [None], ["s1", "s\ud800"], [["s1"]]])
def test_texts_that_are_none_are_refused(translator, texts):
    with pytest.raises(ValueError, match=r"Expected .* Received"):
        translator.generate(texts)


def test_texts_may_come_from_any_iterable(translator, plain):
    assert texts(translator.generate(iter(LINES), beam_size=2)) == texts(plain)
    assert texts(translator.generate(np.array(LINES), beam_size=2)) == texts(plain)


# Weights.


@pytest.fixture
def broken(translator):
    """A translator of its own, whose weights a test may change."""
    model = test_golden.model_with(test_golden.load()[2])
    return Translator(model, translator.source_tokenizer, translator.target_tokenizer)


CALLS = {
    "greedy": lambda t: t.generate(LINES, beam_size=1),
    "beam": lambda t: t.generate(LINES, beam_size=3, n_best=2),
    "sample": lambda t: t.sample(LINES, num_samples=2, top_k=5),
    "score": lambda t: t.score(LINES, ["t1"] * 5),
}


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        ("greedy", "embedding", math.nan),
        ("beam", "bias", math.inf),
        ("sample", "kernel", math.nan),
        ("score", "embedding", math.inf),
    ],
)
def test_weights_that_are_not_finite_are_named(broken, call, name, value):
    weight = next(w for w in reversed(broken.model.weights) if w.path.split("/")[-1].startswith(name))
    weight.assign(np.full(weight.shape, value))
    with pytest.raises(ValueError, match=f"logits that are NaN. Weights that are not finite: {weight.path}"):
        CALLS[call](broken)


def test_double_precision_translates_alike(translator, plain, backend):
    if backend == "jax":
        pytest.skip("JAX has no float64 unless it is told so at its start")
    keras.config.set_dtype_policy("float64")
    model = test_golden.model_with(test_golden.load()[2])
    double = Translator(
        model, translator.source_tokenizer, translator.target_tokenizer, max_length_ratio=1.5, max_length_constant=3
    )
    assert texts(double.generate(LINES, beam_size=2)) == texts(plain)
    assert texts(double.generate(LINES, beam_size=1)) == texts(translator.generate(LINES, beam_size=1))
    double.sample(LINES, max_length=5)
    scores = [[t.score for t in one.score(LINES, ["t1 t2"] * 5)] for one in (double, translator)]
    np.testing.assert_allclose(*scores, rtol=1e-5)


# Global state.


def test_decoding_leaves_the_precision_of_products_alone(translator, monkeypatch, backend):
    if backend != "torch":
        pytest.skip("torch alone has such a setting")
    import torch

    before = torch.get_float32_matmul_precision()
    changes = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", changes.append)
    fresh = Translator(translator.model, translator.source_tokenizer, translator.target_tokenizer)
    fresh.generate(LINES[:1], beam_size=2)
    fresh.sample(LINES[:1])
    fresh.score(LINES[:1], ["t1"])
    assert not changes
    assert torch.get_float32_matmul_precision() == before
