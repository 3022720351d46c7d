"""The links of guided alignment as a recipe has them: one for each pair that is trained on, or an error."""

import pytest

from keras_attn import Tokenizer
from keras_attn.training.fitting import _words, guided_alignment
from recipes.rnnsearch import Config
from recipes.studies import guided_nematus

SOURCE = ["das Haus .", "das Buch .", "", "ein\u00a0Buch ist lang ."] * 3
TARGET = ["the house .", "the book .", "", "a\u00a0book is long ."] * 3


@pytest.fixture(scope="module")
def tokenizers():
    return tuple(Tokenizer.train(lines, vocabulary_size=290) for lines in (SOURCE, TARGET))


def test_a_file_has_a_line_for_each_pair(tokenizers, tmp_path):
    path = tmp_path / "links"
    path.write_text("0-0 1-1 2p2\n1-1\n\n0-0\n" * 3)
    config = guided_nematus.Config(alignment_links=str(path), guided_alignment=0.1, shift_alignment=True)
    options = guided_nematus.data_options(config, (SOURCE, TARGET), tokenizers)
    links = [{(0, 0), (1, 1)}, {(1, 1)}, set(), {(0, 0)}] * 3
    assert options == {"links": links, "alignment_weight": 0.1, "shift_alignment": True}
    path.write_text("0-0\n" * 11)
    with pytest.raises(ValueError, match=r"a line for each of 12 training pairs\. Received: 11 lines"):
        guided_nematus.data_options(config, (SOURCE, TARGET), tokenizers)
    path.write_text("0-0\n0:0\n")
    with pytest.raises(ValueError, match=r"In line 2 of .*links'.*Received: '0:0'"):
        guided_nematus.data_options(config, (SOURCE, TARGET), tokenizers)


def test_model_1_numbers_words_as_the_tokenizer_does(tokenizers):
    """A no-break space separates no words of level "bpe", but those of level "word"."""
    words = tuple(Tokenizer.train(lines, level="word") for lines in (SOURCE, TARGET))
    for both, expected in ((tokenizers, "ein_Buch ist lang ."), (words, "ein Buch ist lang .")):
        tokenizer = both[0]
        assert _words(tokenizer, SOURCE[3]) == expected
        assert len(expected.split()) == len(tokenizer.words(tokenizer.encode(SOURCE[3])))
        options = guided_alignment(Config(guided_alignment=0.1), (SOURCE, TARGET), both)
        assert options["alignment_weight"] == 0.1
        assert [bool(one) for one in options["links"]] == [True, True, False, True] * 3
        assert all(max(link) < len(expected.split()) for link in options["links"][3])
    assert guided_alignment(Config(), (SOURCE, TARGET), words) == {}
