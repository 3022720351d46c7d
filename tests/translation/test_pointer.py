"""Scores of translations with copied words are those of their search."""

import numpy as np
import pytest

from keras_attn import Translator
from keras_attn.models import RNNSearch
from keras_attn.text import Tokenizer

LINES = ["Ada saw Bo and Ada", "we saw Cy", "", "Dee"]
SIZES = {"units": 5, "embedding_size": 7, "readout_size": 11, "attention_units": 13}


def copying_translator():
    """One that mostly copies."""
    tokenizer = Tokenizer.train(["we saw and were seen by"], level="word")
    size = tokenizer.vocabulary_size
    model = RNNSearch(size, size, **SIZES, initializer="glorot_uniform", pointer=True)
    random = np.random.default_rng(0)  # of NumPy: the same weights on every backend
    for weight in model.trainable_weights:
        weight.assign(2 * random.normal(size=weight.shape))
    model.pointer_generator.bias.assign([-12.0])
    return Translator(model, tokenizer, tokenizer, max_length_constant=3)


def test_scores_are_those_of_search():
    translator = copying_translator()
    found = translator.generate(LINES, beam_size=3)
    for targets in ([one.token_ids or (3,) for one in found], [one.text for one in found]):
        scored = translator.score(LINES, targets)
        np.testing.assert_allclose([one.score for one in scored], [one.score for one in found], atol=1e-4)
        assert [one.text for one in scored] == [one.text for one in found]
    size = translator.target_tokenizer.vocabulary_size
    with pytest.raises(ValueError, match=f"Expected ids from 0 to {size - 1}. Received: {size + 1}"):
        translator.score(["Ada saw Bo"], [[size + 1, 3]])  # `saw` is known: it has no temporary id
