"""Scores of given translations against the NumPy oracle, and against the scores of search."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attn import MultiHeadAttention
from keras_attn.models import RNNSearch
from keras_attn.search import score_tokens
from keras_attn.text import END_ID, START_ID, UNKNOWN_ID, Tokenizer
from keras_attn.translation import Translator
from tests.models import test_golden
from tests.oracles import rnnsearch

pytestmark = pytest.mark.by_turns

SOURCES = ["s1 s2 s3 s4", "s20 s4", "s7 nothing s9", "s11"]
TARGETS = ["t5 t1", "t3 t3 nonsense t30 t2", "", "t9 t8 t7 <unk> t6 t5"]


def word_tokenizer(letter, size):
    return Tokenizer.train([" ".join(f"{letter}{i}" for i in range(size - 4))], level="word")


@pytest.fixture(scope="module")
def weights():
    return test_golden.load()[2]


@pytest.fixture(scope="module")
def translator(weights):
    tokenizers = word_tokenizer("s", test_golden.SOURCE), word_tokenizer("t", test_golden.TARGET)
    return Translator(test_golden.model_with(weights), *tokenizers, max_length_ratio=1.5, max_length_constant=3)


@pytest.fixture(scope="module")
def scored(translator):
    return translator.score(SOURCES, TARGETS)


def log_softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_a_translator_over_a_model_with_heads():
    tokenizers = word_tokenizer("s", test_golden.SOURCE), word_tokenizer("t", test_golden.TARGET)
    heads = MultiHeadAttention(2, score="additive", head_units=3)
    model = RNNSearch(test_golden.SOURCE, test_golden.TARGET, **test_golden.SIZES, attention=heads)
    for i, weight in enumerate(model.trainable_weights):
        weight.assign(keras.random.normal(weight.shape, stddev=0.5, seed=i))
    translator = Translator(model, *tokenizers, max_length_ratio=0.0, max_length_constant=4)
    found = translator.generate(SOURCES[:2], beam_size=2, batch_size=2)
    scored = translator.score(SOURCES[:2], [t.token_ids for t in found], each_head=True)
    for translation, again in zip(found, scored, strict=True):
        assert again.head_alignments.shape == (2, *translation.alignment.shape)
        np.testing.assert_allclose(again.head_alignments.mean(0), translation.alignment, atol=1e-5)
        assert np.abs(again.head_alignments[0] - again.head_alignments[1]).max() > 1e-3


def test_scores_are_those_of_the_oracle(translator, weights, scored):
    """Each pair alone, without padding, in NumPy."""
    for source, target, found in zip(SOURCES, TARGETS, scored, strict=True):
        source_ids = np.array([[*translator.source_tokenizer.encode(source), END_ID]])
        ids = [*translator.target_tokenizer.encode(target), END_ID]
        logits = rnnsearch(weights, source_ids, np.array([[START_ID, *ids[:-1]]]))[0]
        expected = log_softmax(logits)[range(len(ids)), ids]
        np.testing.assert_allclose(found.token_log_probs, expected, atol=1e-5)
        np.testing.assert_allclose(found.score, expected.sum() / ((5 + len(ids)) / 6), atol=1e-5)
        assert list(found.token_ids) == ids
        assert found.text == target
        assert found.alignment.shape == (len(ids), source_ids.size)
        np.testing.assert_allclose(found.alignment.sum(-1), 1, atol=1e-5)
    assert scored[1].tokens == ("t3", "t3", "<unk>", "t30", "t2", "</s>")
    assert scored[3].token_ids[3] == UNKNOWN_ID


@pytest.mark.parametrize(
    ("beam_size", "options"),
    [
        (3, {"normalization": "gnmt", "length_penalty": 0.6, "coverage_penalty": 0.3}),
        (1, {"normalization": "average", "length_penalty": 1.0, "coverage_penalty": 0.2}),
    ],
)
def test_search_and_score_agree(translator, beam_size, options):
    n_best = min(2, beam_size)
    # So short that not every source token is looked at: else there is nothing to penalise.
    found = translator.generate(SOURCES, beam_size=beam_size, n_best=n_best, max_length=3, **options)
    assert any((t.alignment.sum(0) < 0.9).any() for t in found)
    for n in range(n_best):
        hypotheses = [translation.n_best[n] if n_best > 1 else translation for translation in found]
        again = translator.score(SOURCES, [h.token_ids for h in hypotheses], **options)
        texts = translator.score(SOURCES, [h.text for h in hypotheses], **options)
        for expected, by_ids, by_text in zip(hypotheses, again, texts, strict=True):
            assert by_ids.text == expected.text
            assert by_ids.token_ids == by_text.token_ids == expected.token_ids
            assert by_ids.source_tokens == expected.source_tokens
            assert abs(by_ids.score - expected.score) < 1e-5
            np.testing.assert_allclose(by_ids.token_log_probs, expected.token_log_probs, atol=1e-5)
            np.testing.assert_allclose(by_ids.alignment, expected.alignment, atol=1e-5)


def test_batch_mates_and_order_change_nothing(translator, scored):
    alone = translator.score(SOURCES, TARGETS, batch_size=1)
    backwards = translator.score(SOURCES[::-1], TARGETS[::-1], tokens_per_batch=17)[::-1]
    for expected, *others in zip(scored, alone, backwards, strict=True):
        for other in others:
            assert other.text == expected.text
            np.testing.assert_allclose(other.token_log_probs, expected.token_log_probs, atol=1e-5)
            np.testing.assert_allclose(other.alignment, expected.alignment, atol=1e-5)


def test_a_blank_source_has_one_translation(translator):
    blank, impossible = translator.score(["", " \t"], ["  ", "t1 t2"])
    assert (blank.text, blank.score, blank.token_ids) == ("", 0.0, translator.generate([""])[0].token_ids)
    assert (impossible.text, impossible.score) == ("t1 t2", -np.inf)
    assert impossible.token_log_probs.tolist() == [-np.inf] * 3
    assert translator.score([], []) == []


def test_without_alignments(translator, scored):
    found = translator.score(SOURCES, TARGETS, return_alignments=False)
    assert all(translation.alignment is None for translation in found)
    np.testing.assert_allclose([t.score for t in found], [t.score for t in scored], atol=1e-6)


@pytest.mark.once
@pytest.mark.parametrize(
    ("sources", "targets", "options", "message"),
    [
        (["s1"], "t1", {}, "`targets` to be a list"),
        ("s1", ["t1"], {}, "`sources` to be a list"),
        (["s1"], ["t1", "t2"], {}, "each of 1 sentences. Received: 2"),
        (["s1"], ["t\ud800"], {}, "surrogate U"),
        (["s1"], [None], {}, "NoneType"),
        (["s1"], [[5, 6]], {}, "end in the end token 3"),
        (["s1"], [[]], {}, "end in the end token 3"),
        (["s1"], [[5, 0, 3]], {}, "no other special token"),
        (["s1"], [[99, 3]], {}, "Received: 99"),
    ],
)
def test_invalid_arguments_are_refused(translator, sources, targets, options, message):
    with pytest.raises(ValueError, match=message):
        translator.score(sources, targets, **options)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_logits_are_scored_in_float32(dtype, rng):
    logits = ops.cast(rng.normal(0, 5, (3, 5, 37)), dtype)  # (B, T, V)
    alignments = ops.cast(rng.dirichlet(np.ones(7), (3, 5)), dtype)  # (B, T, S)
    token_ids = np.array([[5, 6, END_ID, 0, 0], [9, 9, 9, 9, END_ID], [END_ID, 0, 0, 0, 0]], "int32")
    mask = np.ones((3, 7), bool)
    result = score_tokens(logits, ops.convert_to_tensor(token_ids), alignments, mask, coverage_penalty=0.2)
    result = {name: ops.convert_to_numpy(x) for name, x in result._asdict().items()}
    rounded = ops.convert_to_numpy(ops.cast(logits, "float32")).astype("float64")
    expected = np.take_along_axis(log_softmax(rounded), token_ids[..., None], -1)[..., 0] * (token_ids > 0)
    np.testing.assert_allclose(result["token_log_probs"][:, 0], expected, atol=1e-5)
    assert result["lengths"].tolist() == [[3], [5], [1]]
    assert {x.dtype.name for x in result.values()} == {"float32", "int32"}
    assert not result["alignments"][0, 0, 3:].any()


def test_search_and_score_agree_under_a_low_precision_policy(weights, translator):
    keras.config.set_dtype_policy("mixed_float16")
    model = test_golden.model_with(weights)
    low = Translator(model, translator.source_tokenizer, translator.target_tokenizer)
    found = low.generate(SOURCES, beam_size=1)
    again = low.score(SOURCES, [t.token_ids for t in found])
    for expected, other in zip(found, again, strict=True):
        assert expected.token_log_probs.dtype == np.float32
        # The logits of a step and of a whole pass are rounded at other places.
        np.testing.assert_allclose(other.token_log_probs, expected.token_log_probs, atol=0.02)
        assert np.isfinite(expected.score)
