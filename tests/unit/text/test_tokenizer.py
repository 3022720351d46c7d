"""Ids and back on every level; files that are loaded again or refused."""

import re
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.text import (
    BLANKS,
    END_ID,
    PAD_ID,
    SPECIAL_TOKENS,
    START_ID,
    UNKNOWN_ID,
    Tokenizer,
    encode_lines,
)

LINES = [
    "Zwei junge weiße Männer sind im Freien.",
    "Ein kleines Mädchen klettert in ein Spielhaus.",
    "Two young, White males are outside near bushes.",
    "Several men in hard hats operate a giant pulley system.",
    "Été à l'île: « Ça va ? »  Œuvre — 3,50 €",
] * 3
# What breaks tokenizers: blanks of all kinds, controls, combining and wide characters, the models' own signs.
WEIRD = [
    *("", " ", "  ", " Männer", "Männer ", "  Zwei   Männer  ", "\tmen\t", "\n", " \n ", "\r\n"),
    *("men\x00in", "\x01\x1f\x7f", "\u00a0men\u202f\u2003\u3000in", "\u2028men\u2029", "men\u200bin\ufeff"),
    *("e\u0301 é ﬁ Ｆｕｌｌ", "a" + "\u0301" * 20, "🙂 men 👨\u200d👩\u200d👧", "日本語 テスト क्षि ٣"),
    *("ΟΔΟΣ İSTANBUL ẞ Ǆ", "<s> </s> <pad> <unk> <0x41>", "\u2585 \u2047 ⁇ \ufffd \U0010ffff", "men" * 2000),
]


@pytest.fixture(scope="module")
def bpe():
    return Tokenizer.train(LINES, vocabulary_size=353)


@pytest.fixture(scope="module")
def words():
    return Tokenizer.train(LINES, level="word", lowercase=True)


def test_bpe_gives_back_every_character(bpe):
    for text in LINES + WEIRD:
        assert bpe.decode(bpe.encode(text)) == text
    assert bpe.encode_batch(300 * WEIRD) == 300 * [bpe.encode(text) for text in WEIRD]  # few and many texts


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
def test_bpe_gives_back_any_text(bpe, text):
    ids = bpe.encode(text)
    assert bpe.decode(ids) == text
    assert len(bpe.pieces(text)) == len(ids)
    assert not {PAD_ID, UNKNOWN_ID, START_ID, END_ID} & set(ids)


def test_bpe_loses_its_blank_mark_and_without_bytes_unseen_characters(bpe):
    assert bpe.decode(bpe.encode("Zwei▁Männer")) == "Zwei Männer"
    tokenizer = Tokenizer.train(LINES, byte_fallback=False)
    assert tokenizer.decode(tokenizer.encode("Zwei 🙂 men")) == "Zwei <unk> men"
    assert "🙂" in tokenizer.pieces("Zwei 🙂 men")
    assert tokenizer.decode(tokenizer.encode(LINES[4])) == LINES[4]


def test_words_by_hand():
    tokenizer = Tokenizer.train(["b a b", "c  b\ta"], level="word", min_frequency=2)
    assert tokenizer.vocabulary == [*SPECIAL_TOKENS, "b", "a"]
    assert tokenizer.encode("a c\u00a0b ") == [5, UNKNOWN_ID, 4]
    assert tokenizer.pieces("a c\u00a0b ") == ["a", "c", "b"]
    assert tokenizer.decode([START_ID, 5, UNKNOWN_ID, 4, END_ID, 5, PAD_ID]) == "a <unk> b"
    assert tokenizer.tokens(np.array([5, 1, END_ID, 0])) == ["a", "<unk>", "</s>", "<pad>"]
    assert Tokenizer.train(["b a b c a b"], level="word", vocabulary_size=6).vocabulary[4:] == ["b", "a"]


def test_special_tokens_never_come_from_text(bpe):
    for level in ("word", "symbol"):
        tokenizer = Tokenizer.train(["<pad> <s> </s> <unk> a"], level=level)
        assert tokenizer.encode("<pad> <s> </s> <unk> a") == [1, 1, 1, 1, 4]
    assert min(bpe.encode("<pad> <s> </s> <unk>")) > END_ID


def test_symbols_and_characters():
    phones = Tokenizer.train(["HH AH0 L OW1", "W ER1 L D"], level="symbol")
    assert phones.decode(phones.encode("W ER1 L D")) == "W ER1 L D"
    letters = Tokenizer.train(["wörter  und\tZeichen"], level="character")
    assert letters.decode(letters.encode(" wer\tund ")) == " wer\tund "
    assert letters.decode(letters.encode("wo?")) == "w<unk><unk>"


@pytest.mark.parametrize("level", ["bpe", "word", "character"])
def test_lowercase_is_one_character_for_one(level):
    tokenizer = Tokenizer.train(["ΟΔΟΣ İstanbul ẞ ÉTÉ", "οδοσ istanbul ß été"], level=level, lowercase=True)
    assert tokenizer.decode(tokenizer.encode("ΟΔΟΣ İSTANBUL ẞ ÉTÉ")) == "οδοσ istanbul ß été"


def test_blanks_are_unicodes():
    assert len(BLANKS) == len(set(BLANKS)) == 25
    tokenizer = Tokenizer.train(["a b"], level="word")
    assert tokenizer.encode(BLANKS.join("aba")) == [4, 5, 4]
    assert tokenizer.encode("a\x1cb\u200b") == [UNKNOWN_ID]  # str.split would cut at U+001C


def test_words_of_words_and_characters(words):
    ids = [START_ID, *words.encode("Zwei Hunde"), END_ID, PAD_ID]
    assert words.words(ids) == [("zwei", [1]), ("<unk>", [2]), ("</s>", [3])]
    tokenizer = Tokenizer.train(["ab cd"], level="character")
    assert tokenizer.words(tokenizer.encode("ab  cd")) == [("ab", [0, 1]), ("cd", [2, 3, 4, 5])]


@pytest.mark.parametrize("text", ["Zwei 🙂 Mädchen klettern", "  Zwei  weiße Mädchen ", "Zwei"])
def test_words_of_pieces(bpe, text):
    ids = bpe.encode(text)
    merged = bpe.words([*ids, END_ID])
    assert [word for word, _ in merged] == [*text.split(), "</s>"]
    assert [position for _, group in merged for position in group] == list(range(len(ids) + 1))
    assert bpe.words([]) == []


def test_training_is_repeatable(bpe):
    again = Tokenizer.train(iter(LINES), vocabulary_size=353)
    assert again.sentencepiece_model == bpe.sentencepiece_model
    assert again.fingerprint == bpe.fingerprint != Tokenizer.train(LINES).fingerprint
    assert bpe.vocabulary[:4] == list(SPECIAL_TOKENS)
    assert bpe.vocabulary_size == len(bpe.vocabulary) == 353


def test_the_bounds_of_the_vocabulary_are_named_and_work():
    for size, match in ((8000, "at most ([0-9]+), the largest"), (10, r"at least ([0-9]+), so that it has every")):
        with pytest.raises(ValueError, match=match) as caught:
            Tokenizer.train(LINES, vocabulary_size=size)
        bound = int(re.search(match, str(caught.value))[1])
        assert Tokenizer.train(LINES, vocabulary_size=bound).vocabulary_size == bound
        if size == 8000:
            assert Tokenizer.train(LINES).vocabulary_size == bound


@pytest.mark.parametrize(
    ("lines", "options", "sentence"),
    [
        (LINES, {"level": "unigram"}, "one of bpe, word, symbol, character, letter. Received: 'unigram'"),
        ("one line", {}, "Received: a single str"),
        (None, {}, "Received: a single NoneType"),
        (LINES, {"vocabulary_size": "100"}, "whole number of at least 5, 4 of them special. Received: '100'"),
        (LINES, {"level": "word", "min_frequency": "2"}, "Received: '2' for level word"),
        (LINES, {"vocabulary_size": 4}, "at least 5"),
        (LINES, {"min_frequency": 2}, "Received: 2 for level bpe"),
        (LINES, {"level": "word", "min_frequency": 0}, "Received: 0 for level word"),
        (LINES, {"level": "word", "min_frequency": 1000}, "occurs 1000 times or more. Received: none"),
        (["", " \u2003"], {}, "Received: 2 blank lines"),
        ([" "], {"level": "word"}, "Received: none"),
        ([b"bytes"], {}, "Received: bytes"),
        (["a\ud800b"], {}, "U\\+D800 at character 1"),
        (LINES, {"tags": ["<2fr>"], "level": "character"}, "no tags for the level character"),
        (LINES, {"tags": "<2fr>"}, "a list of tokens that differ from each other. Received: '<2fr>'"),
        (LINES, {"tags": ["a", "a"]}, "that differ"),
        (LINES, {"tags": ["<2 fr>"]}, "without blanks and commas, such as '<2fr>'. Received: '<2 fr>'"),
        (LINES, {"tags": ["<s>"], "level": "word"}, "Received: '<s>'"),
        (LINES, {"tags": ["<2FR>"], "lowercase": True}, "in lower case with lowercase=True. Received: '<2FR>'"),
        (LINES, {"tags": ["<2fr>"], "vocabulary_size": 5, "level": "word"}, "of at least 6, 5 of them special"),
    ],
)
def test_training_refuses(lines, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Tokenizer.train(lines, **options)


@pytest.mark.parametrize("level", ["bpe", "word", "character"])
def test_encoding_and_decoding_refuse(level):
    tokenizer = Tokenizer.train(LINES, level=level)
    with pytest.raises(ValueError, match=r"lone surrogate U\+DC80 at character 3"):
        tokenizer.encode("men\udc80")
    with pytest.raises(ValueError, match="lone surrogate"):
        tokenizer.pieces("\ud800")
    with pytest.raises(ValueError, match="use encode"):
        tokenizer.encode_batch("men")
    with pytest.raises(ValueError, match=f"from 0 to {tokenizer.vocabulary_size - 1}. Received: -1"):
        tokenizer.decode([4, -1])
    with pytest.raises(ValueError, match=f"Received: {tokenizer.vocabulary_size}"):
        tokenizer.tokens([tokenizer.vocabulary_size])


def test_lines_with_the_character_that_sentencepiece_reserves_are_trained_on():
    assert Tokenizer.train(["hallo welt \u2585"] * 20).pieces("hallo") == ["hallo"]


@pytest.mark.parametrize("lines", [None, "men", b"men", ["men", None], [["men"]]])
def test_lines_that_are_no_text_are_refused(words, lines):
    with pytest.raises(ValueError, match=r"Expected (a list of lines|text as a str)"):
        encode_lines(lines, words)


@pytest.mark.parametrize("level", ["bpe", "word", "symbol", "character"])
def test_a_saved_tokenizer_is_the_same_and_is_not_overwritten(level, tmp_path):
    tokenizer, folder = Tokenizer.train(LINES, level=level, lowercase=True), tmp_path / "new" / "folder"
    tokenizer.save(folder)
    tokenizer.save(folder)
    loaded = Tokenizer.load(folder)
    assert type(loaded) is type(tokenizer)
    assert (loaded.level, loaded.lowercase, loaded.fingerprint) == (level, True, tokenizer.fingerprint)
    assert loaded.vocabulary == tokenizer.vocabulary
    assert loaded.encode_batch(LINES + WEIRD) == tokenizer.encode_batch(LINES + WEIRD)
    files = {path.name for path in folder.iterdir()}
    assert files == {"tokenizer.json"} | ({"sentencepiece.model"} if level == "bpe" else set())
    with pytest.raises(ValueError, match=r"Received: a folder with another tokenizer\.json"):
        Tokenizer.train(["other"], level="word").save(folder)
    assert Tokenizer.load(folder).fingerprint == tokenizer.fingerprint


def test_a_vocabulary_that_could_not_be_loaded_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_attn.text.tokenizer._LARGEST", 99)
    with pytest.raises(ValueError, match=r"Expected tokenizer\.json of at most 99 bytes\. Received: "):
        Tokenizer.train(LINES, level="word").save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_equal_text_has_equal_models_wherever_temporary_files_are(tmp_path, monkeypatch):
    expected = Tokenizer.train(LINES, lowercase=True).fingerprint
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert Tokenizer.train(LINES, lowercase=True).fingerprint == expected


@pytest.mark.parametrize(("name", "level"), [("tokenizer.json", "word"), ("sentencepiece.model", "bpe")])
def test_damaged_files_are_refused(level, tmp_path, name):
    Tokenizer.train(LINES, level=level).save(tmp_path)
    path = tmp_path / name
    whole = path.read_bytes()
    changed = whole.replace(b"Zwei", b"Drei")
    assert changed != whole
    for damaged in (b"", whole[: len(whole) // 2], whole[:-1], b"\xff" + whole[1:], b"[]", b"{}", whole * 2, changed):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"Expected .*{name} to be .* truncated"):
            Tokenizer.load(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=name):
        Tokenizer.load(tmp_path)


def test_a_tag_is_one_token_wherever_it_stands():
    tags = ["<2fr>", "<2fr_ca>"]
    pieces = Tokenizer.train(LINES, lowercase=True, tags=tags)
    for tokenizer in (pieces, Tokenizer.train(LINES, level="word", tags=tags, vocabulary_size=9)):
        assert tokenizer.vocabulary[4:6] == tags
        ids = tokenizer.encode("<2fr_ca> Zwei Männer")
        assert (ids[0], tokenizer.encode("<2fr>")) == (5, [4])
        assert tokenizer.words(ids)[0] == ("<2fr_ca>", [0])
        assert tokenizer.spans("<2fr> Zwei")[0] == (0, 5)
        assert tokenizer.encode(tokenizer.decode(ids)) == ids
    assert pieces.pieces("men<2fr_ca>in")[-2:] == ["<2fr_ca>", "in"]


def _is_partly_unknown(tokenizer, text):
    return any(token == "<unk>" or token.startswith("<0x") for token in tokenizer.tokens(tokenizer.encode(text)))


@pytest.mark.parametrize("level", ["bpe", "word", "symbol", "character"])
def test_an_extended_vocabulary_has_the_same_ids_for_what_it_could_spell(level, tmp_path):
    size = {"bpe": 340, "word": None, "symbol": None, "character": None}[level]
    more = ["Łódź płaci 7 złotych", "Χωρίς ψωμί και άλλα", "Zwei Männer żyją"] * 3
    old = Tokenizer.train(LINES, level=level, vocabulary_size=size)
    tags = [] if level == "character" else ["<2pl>"]
    other = Tokenizer.train(more, level=level, vocabulary_size=None if size is None else 330, tags=tags)
    new = old.extended(other)
    assert new.vocabulary[: old.vocabulary_size] == old.vocabulary
    assert len(set(new.vocabulary)) == new.vocabulary_size > old.vocabulary_size
    for text in LINES + WEIRD + [line[n:] for line in LINES[:5] for n in range(9)]:
        if not _is_partly_unknown(old, text):
            assert new.encode(text) == old.encode(text)
    for text in [*more, *LINES, *WEIRD[:9]]:
        assert new.decode(new.encode(text)) == text or level in ("word", "symbol") or text not in more
    assert not any(_is_partly_unknown(new, text) for text in more)
    if level == "bpe":
        assert new.pieces("<2pl> Łódź płaci")[0] == "<2pl>"
        assert len(new.encode(more[0])) < len(more[0]) < len(old.encode(more[0])), "pieces, no bytes"
        for piece in new.vocabulary[old.vocabulary_size :]:
            assert new.pieces(piece.replace("▁", " ")) == [piece], "none is out of reach"
    new.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.vocabulary, again.encode_batch(more)) == (new.vocabulary, new.encode_batch(more))
    assert old.extended(old).encode_batch(LINES + WEIRD) == old.encode_batch(LINES + WEIRD)


def test_extension_refuses(bpe, words, monkeypatch):
    with pytest.raises(ValueError, match=r"of level 'bpe' and lowercase=False\. Received: level 'word'"):
        bpe.extended(words)
    with pytest.raises(ValueError, match=r"lowercase=False\. Received: level 'bpe' and lowercase=True"):
        bpe.extended(Tokenizer.train(LINES, lowercase=True))
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    with pytest.raises(ModuleNotFoundError, match="protobuf for extending a vocabulary of level 'bpe'"):
        bpe.extended(bpe)


def test_letters_of_words(tmp_path):
    """Case, Unicode form, accents that the vocabulary has not, apostrophes and tags."""
    symbols = Tokenizer.train(["<2it> a e é s '", "c"], level="symbol", tags=["<2it>"])
    letters = symbols.with_letters()
    assert letters.pieces("<2it> Càsé’") == ["<2it>", "c", "a", "s", "é", "'"]
    assert letters.pieces("Se\u0301x<2it>") == ["s", "é", "x", "<2it>"]
    assert letters.encode("<2it>  a  É") == symbols.encode("<2it> a é")
    assert letters.spans("a <2it>Se\u0301") == [(0, 1), (2, 7), (7, 8), (8, 10)]
    letters.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.fingerprint, again.unicode_form, again.lowercase) == (letters.fingerprint, "NFC", True)
    assert again.encode("CÀ") == letters.encode("ca")
    wider = letters.extended(Tokenizer.train(["à k"], level="symbol").with_letters())
    assert wider.encode("<2it> Sék") == [*letters.encode("<2it> Sé"), wider.vocabulary.index("k")]
    assert wider.pieces("À") == ["à"]
    capitals = Tokenizer.train(["A a"], level="symbol").with_letters()
    assert (capitals.lowercase, capitals.pieces("Aa")) == (False, ["A", "a"])
    korean = Tokenizer.train(["\u1112 \u1161 \u11a8"], level="symbol").with_letters()
    assert (korean.unicode_form, korean.encode("학")) == ("NFD", [4, 5, 6])
    with pytest.raises(ValueError, match=r"Expected a vocabulary of single characters and tags .*Received: HH"):
        Tokenizer.train(["HH a"], level="symbol").with_letters()
    with pytest.raises(ValueError, match=r'Expected a tokenizer of level "symbol" or "word". Received: level .bpe'):
        Tokenizer.train(LINES).with_letters()
