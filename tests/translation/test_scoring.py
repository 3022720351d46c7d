"""Scores of given translations against the NumPy oracle, and against the scores of search."""

import numpy as np
import pytest
from keras import ops

from keras_attn.search import score_tokens
from keras_attn.text import END_ID, START_ID, UNKNOWN_ID, Tokenizer
from keras_attn.translation import Translator
from tests.contracts.model_rows import VS, VT, make, values_of
from tests.oracles import rnnsearch
from tests.search.searching import log_softmax

SOURCES = ["s1 s2 s3 s4", "s20 s4", "s7 nothing s9", "s11"]
TARGETS = ["t5 t1", "t3 t3 nonsense t30 t2", "", "t9 t8 t7 <unk> t6 t5"]


def word_tokenizer(letter, size):
    return Tokenizer.train([" ".join(f"{letter}{i}" for i in range(size - 4))], level="word")


def random_model(**options):
    """An RNNsearch with the same weights on every backend, large enough that translations differ."""
    model, random = make("rnnsearch", **options), np.random.default_rng(2015)
    for weight in model.trainable_weights:
        weight.assign(random.normal(scale=0.5, size=weight.shape))
    return model


def random_translator():
    tokenizers = word_tokenizer("s", VS), word_tokenizer("t", VT)
    return Translator(random_model(), *tokenizers, max_length_ratio=1.5, max_length_constant=3)


def test_scores_are_those_of_the_oracle(translator):
    """Each pair alone, without padding, in NumPy."""
    weights, scored = values_of(translator.model), translator.score(SOURCES, TARGETS)
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
