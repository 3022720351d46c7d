"""Text in TensorFlow's ops and Keras' text layers has the ids of the tokenizers; see also tests/serving/export."""

import keras
import numpy as np
import pytest

from keras_attn.text import END_ID, PAD_ID, START_ID, SpecialIds, Tokenizer
from tests.unit.text.test_tokenizer import LINES, WEIRD
from tests.unit.text.test_vocabularies import check_kept

pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="needs TensorFlow's ops")


def test_tensorflow_text_agrees_with_tags_and_an_extended_vocabulary():
    import tensorflow as tf
    import tensorflow_text as tf_text

    tagged = Tokenizer.train(LINES, lowercase=True, tags=["<2fr>", "<2fr_ca>"])
    other = Tokenizer.train(["Łódź płaci 7 złotych"] * 3, vocabulary_size=285, tags=["<2fr>"])
    extended = Tokenizer.train(LINES, vocabulary_size=353).extended(other)
    texts = [*LINES, *WEIRD, "▁", " ▁men", "<2fr> Łódź", "<2fr_ca>  Men<2FR><2fr>in"]
    random = np.random.default_rng(7)
    for tokenizer in (tagged, extended):
        graph = tf_text.SentencepieceTokenizer(tokenizer.sentencepiece_model)
        ids = tokenizer.encode_batch(texts)
        assert graph.tokenize(tf.constant(texts)).to_list() == ids
        # Random ids end in half a character's bytes and hold every special id.
        ids += [random.integers(0, tokenizer.vocabulary_size, random.integers(1, 17)).tolist() for _ in range(499)]
        ids = [[i for i in row if i not in (PAD_ID, START_ID, END_ID)] for row in ids]
        detokenised = graph.detokenize(tf.ragged.constant(ids, dtype=tf.int32)).numpy()
        assert [text.decode() for text in detokenised] == [tokenizer.decode(row) for row in ids]


@pytest.mark.parametrize("letters", ["a é ' œ <2it> s ß Ω", "\u1112 \u1161 \u11a8 \u1100", "か が ゚ ば は"])
def test_letters_in_the_graph(letters):
    import tensorflow as tf

    from keras_attn.export.tokenizers import graph_tokenizer

    tokenizer = Tokenizer.train([letters], level="symbol").with_letters()
    texts = [
        *LINES,
        *WEIRD,
        letters,
        letters.upper(),
        "<2it>Éa’s<2fr> <2it",
        "학교 하",
        "は\u309aが",
        "ae\u0301 İ\n\x00",
    ]
    assert graph_tokenizer(tokenizer).encode(tf.constant(texts)).to_list() == tokenizer.encode_batch(texts)


@pytest.mark.parametrize("split", ["whitespace", "character"])
@pytest.mark.parametrize("standardize", [None, "lower", "strip_punctuation", "lower_and_strip_punctuation"])
def test_a_text_vectorization_gives_the_same_ids(standardize, split, tmp_path):
    import tensorflow as tf

    from keras_attn.export.tokenizers import graph_tokenizer

    layer = keras.layers.TextVectorization(standardize=standardize, split=split)
    layer.adapt(LINES)
    tokenizer = Tokenizer.from_vocabulary(layer, start=None, end=None)
    assert tokenizer.special_ids == SpecialIds(pad=0, unknown=1, start=None, end=None)
    texts = [*LINES, *WEIRD]
    found, ids = layer(texts).numpy(), tokenizer.encode_batch(texts)
    assert ids == [row[: len(own)].tolist() for row, own in zip(found, ids, strict=True)]
    assert np.count_nonzero(found) == sum(map(len, ids))
    assert graph_tokenizer(tokenizer).encode(tf.constant(texts)).to_list() == ids
    for text in texts:
        parts = [text[start:end].translate(tokenizer.character_table) for start, end in tokenizer.spans(text)]
        assert parts == tokenizer.pieces(text)
    check_kept(tokenizer, tmp_path / "vectorization", texts)


def test_a_string_lookup_gives_its_vocabulary_and_tokens():
    layer = keras.layers.StringLookup(vocabulary=["b", "a"], mask_token="<m>", oov_token="<o>")
    tokenizer = Tokenizer.from_vocabulary(layer, start=None, end=None)
    assert tokenizer.vocabulary == ["<m>", "<o>", "b", "a"]
    assert (tokenizer.special_ids.pad, tokenizer.special_ids.unknown) == (0, 1)
    assert tokenizer.encode("a b z") == layer(["a", "b", "z"]).numpy().tolist()
    with pytest.raises(ValueError, match=r"Expected a StringLookup with one id for unknown tokens at most"):
        Tokenizer.from_vocabulary(keras.layers.StringLookup(vocabulary=["b"], num_oov_indices=2))
    with pytest.raises(ValueError, match=r"for a function, apply it to the text before"):
        Tokenizer.from_vocabulary(keras.layers.TextVectorization(standardize=lambda x: x, vocabulary=["b"]))
