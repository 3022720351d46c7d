"""Scores of given translations: each head's alignments, and blank sources; test_options.py has what is refused."""

import numpy as np

from keras_attn import MultiHeadAttention
from keras_attn.translation import Translator
from tests.translation.test_scoring import SOURCES, TARGETS, random_model


def test_a_translator_over_a_model_with_heads(translator):
    model = random_model(attention=MultiHeadAttention(2, score="additive", head_units=3))
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    translator = Translator(model, *tokenizers, max_length_ratio=0.0, max_length_constant=4)
    found = translator.generate(SOURCES[:2], beam_size=2, batch_size=2)
    scored = translator.score(SOURCES[:2], [t.token_ids for t in found], each_head=True)
    for translation, again in zip(found, scored, strict=True):
        assert again.head_alignments.shape == (2, *translation.alignment.shape)
        np.testing.assert_allclose(again.head_alignments.mean(0), translation.alignment, atol=1e-5)
        assert np.abs(again.head_alignments[0] - again.head_alignments[1]).max() > 1e-3


def test_a_blank_source_has_one_translation(translator):
    blank, impossible = translator.score(["", " \t"], ["  ", "t1 t2"])
    assert (blank.text, blank.score, blank.token_ids) == ("", 0.0, translator.generate([""])[0].token_ids)
    assert (impossible.text, impossible.score) == ("t1 t2", -np.inf)
    assert impossible.token_log_probs.tolist() == [-np.inf] * 3
    assert translator.score([], []) == []


def test_without_alignments(translator):
    scored = translator.score(SOURCES, TARGETS)
    found = translator.score(SOURCES, TARGETS, return_alignments=False)
    assert all(translation.alignment is None for translation in found)
    np.testing.assert_allclose([t.score for t in found], [t.score for t in scored], atol=1e-6)
