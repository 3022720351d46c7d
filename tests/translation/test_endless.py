"""A target without an end token: every translation has its longest length."""

import keras
import numpy as np

from keras_attn import Tokenizer, Translator
from keras_attn.models import RNNSearch

SIZES = {"units": 5, "embedding_size": 7, "readout_size": 11, "attention_units": 3, "decoder_units": 13}


def endless_translator():
    """A translator whose target has no end token, with its longest output a fixed length."""
    keras.utils.set_random_seed(7)
    source = Tokenizer.from_vocabulary(["", "[UNK]", *"abcdef"], pad="", unknown="[UNK]", start=None, end=None)
    target = Tokenizer.from_vocabulary(["_", "^", *"pqrst"], pad="_", unknown=None, start="^", end=None)
    ids = {"source_special_ids": source.special_ids, "target_special_ids": target.special_ids}
    sizes = SIZES | {"initializer": keras.initializers.RandomNormal(stddev=0.9)}
    model = RNNSearch(source.vocabulary_size, target.vocabulary_size, **sizes, **ids)
    return Translator(model, source, target, max_length_ratio=0, max_length_constant=4)


def test_without_an_end_token_every_translation_has_its_longest_length():
    endless = endless_translator()
    lines = ["a b c", "", "f", "d e a a"]
    for options in ({"beam_size": 1}, {"beam_size": 4, "n_best": 2, "max_length": 2}):
        for line, translation in zip(lines, endless.generate(lines, **options), strict=True):
            length = options.get("max_length", 4) if line else 0
            assert len(translation.tokens) == len(translation.text.split()) == length
            if line:
                assert translation.source_tokens == tuple(line.split())
                (again,) = endless.score([line], [translation.text])
                np.testing.assert_allclose(again.score, translation.score, atol=1e-5)
    assert all(len(t.tokens) == 4 for t in endless.sample(lines[2:], seed=1))
    assert [t.score for t in endless.score(["a", "", "", "a"], ["", "", "p", "p"])[:3]] == [-np.inf, 0.0, -np.inf]
