"""A translator with a tokenizer of the target alone: arrays in, text out."""

import keras
import numpy as np
import pytest

from keras_attn import Translator
from keras_attn.text import Tokenizer
from tests.contracts.model_rows import VT, inputs_of, make

NAME = "attention, two memories"


@pytest.fixture(scope="module")
def translator():
    tokenizer = Tokenizer.train([" ".join(f"w{i}" for i in range(VT - 4))], level="word")
    return Translator(make(NAME), None, tokenizer, trained_length=3)


def test_translations_are_the_texts_of_what_the_model_finds(translator):
    model, tokenizer = translator.model, translator.target_tokenizer
    source = model.source_of(inputs_of(NAME))
    options = {"beam_size": 3, "n_best": 2}
    found = model.generate(source, max_length=6, banned_tokens=[tokenizer.vocabulary.index("w3")], **options)
    translations = translator.generate(source, banned_tokens=["w3"], **options)  # at most twice the trained length
    drawn = translator.sample(source, seed=3, num_samples=2, max_length=4)
    assert len(translations) == len(drawn) == len(found.lengths)
    for row, translation in enumerate(translations):
        assert len(translation.n_best) == np.count_nonzero(found.lengths[row])
        for n, one in enumerate(translation.n_best):
            length = found.lengths[row, n]
            assert one.token_ids == tuple(found.token_ids[row, n, :length])
            assert one.text == tokenizer.decode(one.token_ids)
            assert one.score == pytest.approx(found.scores[row, n], abs=1e-5)
            side_by_side = np.concatenate([x[row, n, :length] for x in found.alignments], axis=1)
            np.testing.assert_allclose(one.alignment, side_by_side / 2, atol=1e-6)
        assert len(drawn[row].n_best) == 2


def test_prefixes_and_logits_processors_work_and_what_needs_text_is_refused(translator, tmp_path):
    source = translator.model.source_of(inputs_of(NAME))

    def never(logits, token_ids, position, state):
        return logits - 1e9 * keras.ops.one_hot(7, VT)

    found = translator.generate(source, prefixes=["w9 w8"] * 3, logits_processor=never, return_alignments=False)
    assert all(one.text.startswith("w9 w8") and 7 not in one.token_ids for one in found)
    assert found[0].alignment is None
    for call in (
        lambda: translator.score(["a"], ["w1"]),
        lambda: translator.save_to_preset(tmp_path / "preset"),
        lambda: translator.generate(source, replace_unknown=True),
    ):
        with pytest.raises(ValueError, match=r"Expected a source of text.*Received: source_tokenizer=None"):
            call()


def test_sides_that_are_no_text_have_no_tokenizer_and_a_target_needs_one(translator):
    model, tokenizer = translator.model, translator.target_tokenizer
    with pytest.raises(ValueError, match=r"`model\.generate` finds ids\. Received: target_tokenizer=None"):
        Translator(model, tokenizer, None)
    with pytest.raises(ValueError, match=r"a model whose source is text, with a `source_vocabulary_size`"):
        Translator(model, tokenizer, tokenizer)
