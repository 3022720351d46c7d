"""Temporary ids: unknown words of a source, in both of its lines."""

import pytest

from keras_attn.text import (
    Tokenizer,
    add_temporary_ids,
    encode_lines,
    temporary_ids,
    with_temporary_ids,
    without_temporary_ids,
)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(["we met in Rome"], level="word", lowercase=True)  # 8 ids


def test_an_unknown_word_has_the_id_of_its_first_place(tokenizer):
    assert tokenizer.vocabulary_size == 8
    assert temporary_ids(tokenizer, "Ada met Bo , ada <unk>") == {"ada": 8, "bo": 10, ",": 11, "<unk>": 13}
    assert temporary_ids(tokenizer, "we met") == {}
    assert temporary_ids(tokenizer, " ") == {}


def test_both_lines_of_a_pair_have_the_ids_of_its_source(tokenizer):
    sources, targets = ["Ada met Bo", "", "we met Bo"], ["Bo met ADA in Oslo", "Ada", "in Bo"]
    rows = tuple(encode_lines(lines, tokenizer) for lines in (sources, targets))
    add_temporary_ids((tokenizer, tokenizer), (sources, targets), rows)
    met, we, into = (tokenizer.encode(word)[0] for word in ("met", "we", "in"))
    assert rows == ([[8, met, 10], [], [we, met, 10]], [[10, met, 8, into, 1], [1], [into, 10]])
    assert without_temporary_ids(tokenizer, rows[0][0]) == tokenizer.encode(sources[0])


def test_letters_are_copied_and_pieces_have_no_temporary_ids(tokenizer):
    letters = Tokenizer.train(["abc"], level="character")
    words = temporary_ids(letters, "axbx")
    assert words == {"x": 8}  # 7 ids, and the second place
    assert with_temporary_ids(letters, "xyx", letters.encode("xyx"), words) == [words["x"], 1, words["x"]]
    pieces = Tokenizer.train(["a house and a horse"] * 9, level="bpe", vocabulary_size=20, byte_fallback=False)
    assert temporary_ids(pieces, "a 家 house") == {}
