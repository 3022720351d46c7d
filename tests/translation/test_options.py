"""Batches, options of a single sentence (lengths, prefix, random draws), banned tokens, and weights of other dtypes."""

import math

import keras
import numpy as np
import pytest

from keras_attn.text import UNKNOWN_ID
from keras_attn.translation import Translator
from tests.translation.test_scoring import random_model

LINES = ["s1 s2 s3 s4", "s20 Ärzte", "", "s7 s8 s9", "s11"]
SOURCE_LENGTHS = [5, 3, 0, 4, 2]  # end token included


@pytest.fixture(scope="module")
def plain(translator):
    return translator.generate(LINES, beam_size=2)


def texts(translations):
    return [translation.text for translation in translations]


def lengths(translations):
    return [len(translation.token_ids) for translation in translations]


def test_batching_changes_nothing(translator):
    whole = translator.generate(LINES, beam_size=3)
    again = translator.generate(LINES[::-1], beam_size=3, batch_size=3)[::-1]  # three sentences, and one alone
    assert texts(again) == texts(whole)
    np.testing.assert_allclose([t.score for t in again], [t.score for t in whole], rtol=1e-5)


def test_one_text_gives_one_translation(translator, plain):
    alone = translator.generate(LINES[0], beam_size=2)
    assert (alone.text, alone.token_ids) == (plain[0].text, plain[0].token_ids)
    (first, *_) = alone.text.split()
    assert translator.generate(LINES[0], prefixes=first).text.split()[0] == first


def test_neither_a_shape_seen_before_nor_another_seed_is_traced_again(translator, monkeypatch):
    calls, traced = [], []
    encode = type(translator.model).encode
    monkeypatch.setattr(type(translator.model), "encode", lambda *args: calls.append(1) or encode(*args))
    fresh = Translator(translator.model, translator.source_tokenizer, translator.target_tokenizer)
    for lines in (["s1 s2", "s3"], ["s3 s20 s5", "s4 s11"]):
        fresh.generate(lines, beam_size=2)
        traced.append(len(calls))
    drawn = {}
    for seed in (5, 2**40, 7):
        drawn[seed] = fresh.sample(["s1 s2", "s3"], seed=seed, row_ids=[2**33 + 1, 1])[0].text
        traced.append(len(calls))
    is_eager = keras.backend.backend() == "torch"
    assert np.diff(traced).astype(bool).tolist() == [is_eager, True, is_eager, is_eager]
    assert len(set(drawn.values())) > 1


def test_lengths_follow_the_sentences_own_source(translator, plain):
    options = {"min_length_ratio": 1.4, "max_length_ratio": 1.6, "max_length": 7}
    found = translator.generate(LINES, beam_size=2, **options)
    longest = [min(7, math.ceil(1.6 * n)) for n in SOURCE_LENGTHS]
    shortest = [math.ceil(1.4 * n) for n in SOURCE_LENGTHS]
    assert all(low <= n <= high for low, n, high in zip(shortest, lengths(found), longest, strict=True))
    assert not all(low <= n <= high for low, n, high in zip(shortest, lengths(plain), longest, strict=True))
    assert texts(translator.generate(LINES[:1], beam_size=2, **options)) == texts(found[:1])
    assert lengths(translator.generate(LINES, beam_size=2, min_length=9, max_length=9)) == [9, 9, 0, 9, 9]


def test_a_mixed_policy_of_the_process_does_not_round_the_weights_of_a_model_in_float32(translator, plain):
    keras.config.set_dtype_policy("mixed_bfloat16")
    parts = translator.model, translator.source_tokenizer, translator.target_tokenizer
    found = Translator(*parts, **translator.length_arguments).generate(LINES, beam_size=2)
    np.testing.assert_allclose(found[0].token_log_probs, plain[0].token_log_probs, rtol=1e-6)


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
    alone = translator.generate(LINES[3:4], beam_size=2, prefixes=PREFIXES[3:4])
    assert texts(alone) == texts(found[3:4])
    scores = translator.score(LINES, [t.token_ids if t.token_ids else "" for t in found])
    np.testing.assert_allclose([t.score for t in found], [t.score for t in scores], atol=1e-5)


def test_banned_tokens_are_never_produced(translator, plain):
    said = {token for translation in plain for token in translation.tokens}
    banned = sorted(said - {"</s>"})[:3]
    found = translator.generate(LINES, beam_size=2, banned_tokens=[*banned, "<unk>", 7])
    ids = {i for translation in found for i in translation.token_ids}
    assert not ids & {*map(translator.target_tokenizer.vocabulary.index, banned), UNKNOWN_ID, 7}
    assert len(ids) > 1


def test_samples_do_not_depend_on_the_batch(translator):
    whole = translator.sample(LINES, num_samples=3, seed=11, temperature=0.8)
    assert [len(t.n_best) for t in whole] == [3, 3, 0, 3, 3]
    assert whole[0].n_best[0].text == whole[0].text
    rows = [4, 3]
    part = translator.sample([LINES[row] for row in rows], num_samples=3, seed=11, temperature=0.8, row_ids=rows)
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


@pytest.fixture
def broken(translator):
    """The translator, whose weights a test may change."""
    before = translator.model.get_weights()
    yield translator
    translator.model.set_weights(before)


CALLS = {
    "greedy": lambda t: t.generate(LINES, beam_size=1),
    "beam": lambda t: t.generate(LINES, beam_size=2),
    "sample": lambda t: t.sample(LINES, num_samples=3, temperature=0.8),
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


def test_double_precision_translates_alike(translator, plain):
    if keras.backend.backend() == "jax":
        pytest.skip("JAX has no float64 unless it is told so at its start")
    keras.config.set_dtype_policy("float64")
    parts = random_model(), translator.source_tokenizer, translator.target_tokenizer
    double = Translator(*parts, **translator.length_arguments)
    assert texts(double.generate(LINES, beam_size=2)) == texts(plain)
    double.sample(LINES, max_length=5)
    scores = [[t.score for t in one.score(LINES, ["t1"] * 5)] for one in (double, translator)]
    np.testing.assert_allclose(*scores, rtol=1e-5)


def test_decoding_leaves_the_precision_of_products_alone(translator, monkeypatch):
    if keras.backend.backend() != "torch":
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
