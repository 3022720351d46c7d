"""A translator with a tokenizer of one side alone: arrays in and text out, or text in and ids out."""

import shutil

import keras
import numpy as np
import pytest

from keras_attn import Translator, teacher_forcing
from keras_attn.text import Tokenizer
from recipes.tasks.pointer_network import pointer_network
from tests.contracts.model_rows import VS, VT, inputs_of, make

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


def test_prefixes_and_logits_processors_work_and_what_needs_text_is_refused(translator):
    source = translator.model.source_of(inputs_of(NAME))

    def never(logits, token_ids, position, state):
        return logits - 1e9 * keras.ops.one_hot(7, VT)

    found = translator.generate(source, prefixes=["w9 w8"] * 3, logits_processor=never, return_alignments=False)
    assert all(one.text.startswith("w9 w8") and 7 not in one.token_ids for one in found)
    assert found[0].alignment is None
    for call in (
        lambda: translator.score(["a"], ["w1"]),
        lambda: translator.generate(source, replace_unknown=True),
    ):
        with pytest.raises(ValueError, match=r"Expected a source of text.*Received: source_tokenizer=None"):
            call()


@pytest.fixture(scope="module")
def to_ids():
    tokenizer = Tokenizer.train([" ".join(f"w{i}" for i in range(VS - 4))], level="word")
    return Translator(make("rnnsearch"), tokenizer, None)


def test_ids_are_those_that_the_model_finds_and_their_own_tokens(to_ids):
    model, lines = to_ids.model, ["w3 w1 w4 w1", "w5 w9"]
    rows, options = to_ids.source_tokenizer.encode_batch(lines), {"beam_size": 3, "n_best": 2, "max_length": 6}
    found = model.generate(teacher_forcing(rows)[1], banned_tokens=[7], **options)
    translations = to_ids.generate(lines, banned_tokens=["7"], **options)
    for row, translation in enumerate(translations):
        for n, one in enumerate(translation.n_best):
            length = found.lengths[row, n]
            assert one.token_ids == tuple(found.token_ids[row, n, :length])
            assert one.tokens == tuple(map(str, one.token_ids))
            assert one.text == " ".join(token for token in one.tokens if token != "3")  # the end
            assert one.score == pytest.approx(found.scores[row, n], abs=1e-5)
            alignment = found.alignments[row, n, :length, : len(rows[row]) + 1]
            np.testing.assert_allclose(one.alignment, alignment, atol=1e-5)
    again = to_ids.score(lines, [one.token_ids for one in translations])
    assert [one.score for one in again] == pytest.approx([one.score for one in translations], abs=1e-4)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_preset_has_what_a_translator_with_one_tokenizer_finds(side, translator, to_ids, tmp_path):
    source = translator.model.source_of(inputs_of(NAME))
    saved, texts = (to_ids, ["w3 w1", "w5"]) if side == "source" else (translator, source)
    saved.save_to_preset(tmp_path / "preset")
    card = (tmp_path / "preset" / "README.md").read_text("utf-8")
    assert ('generate("...").text' if side == "source" else "generate(source)[0].text") in card
    loaded = Translator.from_presets([tmp_path / "preset"] * 2, average="weights")
    expected = saved.generate(texts, beam_size=3, max_length=5)
    for one, other in zip(loaded.generate(texts, beam_size=3, max_length=5), expected, strict=True):
        assert (one.text, one.token_ids) == (other.text, other.token_ids)
    tokenizers = sorted((tmp_path / "preset").glob("*_tokenizer"))
    assert len(tokenizers) == (2 if side == "source" else 1)
    shutil.rmtree(tokenizers[0])
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        Translator.from_preset(tmp_path / "preset")


def test_a_side_without_text_has_no_tokenizer_and_the_other_needs_one(translator):
    model, tokenizer = translator.model, translator.target_tokenizer
    with pytest.raises(ValueError, match=r"`model\.generate` finds ids from arrays\. Received: None twice"):
        Translator(model, None, None)
    with pytest.raises(ValueError, match=r"a model whose source is text, with a `source_vocabulary_size`"):
        Translator(model, tokenizer, tokenizer)
    with pytest.raises(ValueError, match=r"a `target_vocabulary_size` for a target of ids.*finds those of a model"):
        Translator(pointer_network(units=2), tokenizer, None)
