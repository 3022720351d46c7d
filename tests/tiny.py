"""A tiny translator with large random weights, so that no two translations are about as good; it as fixtures."""

import pytest

LINES = [f"w{n % 7} w{n % 11} w{n}" for n in range(40)]


def make():
    import numpy as np

    from keras_attn import Tokenizer, Translator
    from keras_attn.models import RNNSearch

    random = np.random.default_rng(3)
    words, pieces = Tokenizer.train(LINES, level="word"), Tokenizer.train(LINES, vocabulary_size=290)
    sizes = {"units": 3, "embedding_size": 4, "readout_size": 4, "attention_units": 3, "decoder_units": 3}
    model = RNNSearch(words.vocabulary_size, pieces.vocabulary_size, **sizes)
    model.set_weights([random.normal(0, 0.8, weight.shape) for weight in model.get_weights()])
    return Translator(model, words, pieces)


@pytest.fixture(scope="module")
def translator():
    return make()


@pytest.fixture(scope="module")
def preset(translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("presets") / "tiny"
    translator.save_to_preset(folder)
    return folder
