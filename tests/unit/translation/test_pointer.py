"""Translations with copied words: text, tokens, ids, prefixes, replacement, plots and presets."""

import pytest

from keras_attn import Translator
from keras_attn.plots import align_words
from keras_attn.text import Tokenizer
from tests.translation.test_pointer import LINES, copying_translator


@pytest.fixture(scope="module")
def translator():
    return copying_translator()


def test_unknown_words_come_from_the_source(translator):
    found = translator.generate(LINES, beam_size=3, n_best=2, min_length_ratio=0.7)
    size = translator.target_tokenizer.vocabulary_size
    assert found[2].text == ""
    copied = 0
    for line, best in zip(LINES, found, strict=True):
        words = line.split()
        for one in best.n_best:
            assert one.source_tokens == (*words, "</s>")
            assert one.text == " ".join(one.tokens[:-1])
            for token, token_id in zip(one.tokens, one.token_ids, strict=True):
                if token_id >= size:
                    assert token == words[token_id - size]
                    assert token not in translator.target_tokenizer.vocabulary
                    copied += 1
    assert copied > 3
    again = translator.generate(LINES, beam_size=3, n_best=2, min_length_ratio=0.7, batch_size=1)
    assert [one.text for one in again] == [one.text for one in found]
    greedy = translator.generate(LINES[:1], beam_size=1)[0]
    aligned = align_words(greedy, translator.source_tokenizer, translator.target_tokenizer)
    assert aligned.source_tokens == [*LINES[0].split(), "</s>"]
    assert aligned.target_tokens == list(greedy.tokens)


def test_a_prefix_names_words_of_the_source(translator):
    found = translator.generate(["Ada saw Bo"], prefixes=["Bo seen Eve"], beam_size=2)[0]
    size = translator.target_tokenizer.vocabulary_size
    assert found.token_ids[:3] == (size + 2, translator.target_tokenizer.encode("seen")[0], 1)
    assert found.text.startswith("Bo seen Eve")
    replaced = translator.generate(["Ada saw Bo"], beam_size=2, replace_unknown={"Ada": "Adam"})[0]
    assert replaced.token_ids == translator.generate(["Ada saw Bo"], beam_size=2)[0].token_ids


def test_samples_and_presets(translator, tmp_path):
    translator.save_to_preset(tmp_path / "preset")
    again = Translator.from_preset(tmp_path / "preset")
    assert again.model.pointer
    for seed in (1, 2):
        one, other = (t.sample(LINES[:2], seed=seed, num_samples=2) for t in (translator, again))
        assert [[n.text for n in x.n_best] for x in one] == [[n.text for n in x.n_best] for x in other]
    best = [translator.sample(LINES[:2], top_k=1)[n].text for n in range(2)]
    assert best == [found.text for found in translator.generate(LINES[:2], beam_size=1)]


def test_two_tokenizers_are_refused(translator):
    other = Tokenizer.train(["we saw and were seen on"], level="word")
    with pytest.raises(ValueError, match="Expected the same tokenizer for source and target"):
        Translator(translator.model, translator.source_tokenizer, other)
