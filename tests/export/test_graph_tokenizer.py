"""Tokenizers in the graph: the ids and the text of Python's, for any bytes."""

import os

import keras
import numpy as np
import pytest

from keras_attn.text import BLANKS, DEFAULT_IDS, Tokenizer
from tests.export.small import LINES, NEEDS_TENSORFLOW, READ, SENTENCES

if keras.backend.backend() != "tensorflow":
    pytest.skip(NEEDS_TENSORFLOW, allow_module_level=True)

import tensorflow as tf

from keras_attn.export.tokenizers import graph_tokenizer, is_blank, repair, without_end, without_sentencepiece_log

ODD = [b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xef\xbb\xbf"]


def random_bytes(count):
    generator = np.random.default_rng(5)
    parts = ODD + [bytes([value]) for value in range(256)] + [c.encode() for c in "äß日😀 \u2003"] * 20
    picks = [generator.integers(0, len(parts), generator.integers(0, 13)) for _ in range(count)]
    return [b"".join(parts[i] for i in pick) for pick in picks]


TEXTS = LINES + random_bytes(3001)


def test_repair_is_pythons_replacement():
    assert [text.decode() for text in repair(tf.constant(TEXTS)).numpy()] == [b.decode(errors="replace") for b in TEXTS]


def test_blank_is_pythons_blank():
    texts = [text.decode(errors="replace") for text in TEXTS]
    texts += [*BLANKS, BLANKS, "\u200b", "\x1c", "\u180e", "\ufeff"]
    assert is_blank(tf.constant([t.encode() for t in texts])).numpy().tolist() == [not t.strip(BLANKS) for t in texts]


OPTIONS = [
    {"level": "bpe", "vocabulary_size": 320},
    {"level": "bpe", "vocabulary_size": 60, "byte_fallback": False, "lowercase": True},
    {"level": "word"},
    {"level": "word", "lowercase": True, "min_frequency": 2},
    {"level": "symbol"},
    {"level": "character"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_ids_and_text_are_pythons(options):
    tokenizer = Tokenizer.train([*SENTENCES, "<unk> İ 😀 Σ", *(text for text in READ[4:12] if text)], **options)
    graph = graph_tokenizer(tokenizer)
    encode = tf.function(lambda text: graph.encode(repair(text)), autograph=False)
    found = encode(tf.constant(TEXTS))
    assert found.dtype == tf.int32
    assert found.to_list() == tokenizer.encode_batch([text.decode(errors="replace") for text in TEXTS])

    generator = np.random.default_rng(7)
    rows = [generator.choice([1, *range(4, tokenizer.vocabulary_size)], length) for length in [0, 1, 2, 11] * 101]
    decoded = graph.decode(tf.ragged.constant([row.tolist() for row in rows], dtype=tf.int32)).numpy()
    assert [text.decode(errors="replace") for text in decoded] == [tokenizer.decode(row) for row in rows]


def test_rows_lose_their_end_and_their_padding():
    ids, lengths = tf.constant([[5, 7, 3, 0], [5, 7, 9, 4], [3, 0, 0, 0], [0, 0, 0, 0]]), tf.constant([3, 4, 1, 0])
    rows = without_end(ids, lengths, DEFAULT_IDS)
    assert rows.to_list() == [[5, 7], [5, 7, 9, 4], [], []]


def test_two_sentencepiece_models_stay_two_in_a_loaded_graph(tmp_path):
    """Resources are found again by name: two models of one name would both be the first."""
    small = Tokenizer.train(["aab aab abc"] * 5 + ["the cat sat"] * 5, vocabulary_size=270)
    large = Tokenizer.train(["un chat était là", "deux chiens mangent des pommes"] * 5, vocabulary_size=300)
    module = tf.Module()
    module.small, module.large = graph_tokenizer(small), graph_tokenizer(large)
    text = tf.TensorSpec((None,), tf.string)
    module.ids = tf.function(
        lambda x: [module.small.encode(x).to_tensor(), module.large.encode(x).to_tensor()], input_signature=[text]
    )
    tf.saved_model.save(module, str(tmp_path))
    line = "deux chats the cat"
    for ids, tokenizer in zip(tf.saved_model.load(str(tmp_path)).ids([line]), (small, large), strict=True):
        assert ids[0].numpy().tolist() == tokenizer.encode(line)


def test_a_model_of_pieces_is_read_without_a_line_on_stderr(capfd):
    """Other lines stay."""
    text = tf.constant(["ein Mann"])
    capfd.readouterr()  # what TensorFlow writes at its start
    graph_tokenizer(Tokenizer.train(SENTENCES, vocabulary_size=320)).encode(text)
    with without_sentencepiece_log():
        os.write(2, b"another line\n")
    assert capfd.readouterr().err == "another line\n"
