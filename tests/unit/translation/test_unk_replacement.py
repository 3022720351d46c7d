"""Unknown words: the span of each id in the text, its replacement, and the source word that it comes from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.text import BLANKS, END_ID, SPECIAL_TOKENS, UNKNOWN_ID, Tokenizer
from keras_attn.translation.text_search import words_for_unknown
from tests import adversarial
from tests.translation.test_options import LINES, texts

CORPUS = ["Zwei junge weiße Männer sind im Freien.", "Été à l'île: « Ça va ? »  Œuvre — 3,50 €"]
TEXT = st.text(st.one_of(st.sampled_from("Zwei Männer sind ΑΒΣ\t\u3000🙂日"), st.characters(exclude_categories=["Cs"])))
TOKENIZERS = {
    "bpe": {"level": "bpe", "vocabulary_size": 353},
    "lower bpe": {"level": "bpe", "lowercase": True},
    "bpe without bytes": {"level": "bpe", "byte_fallback": False},
    "word": {"level": "word"},
    "lower word": {"level": "word", "lowercase": True},
    "character": {"level": "character", "lowercase": True},
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return Tokenizer.train(CORPUS, **TOKENIZERS[request.param])


@pytest.fixture(scope="module")
def words():
    return Tokenizer.train(CORPUS, level="word")


def check_spans(tokenizer, text):
    """The piece of every id equals the text of its span, except for case, marks of blanks and bytes."""
    ids, spans, pieces = tokenizer.encode(text), tokenizer.spans(text), tokenizer.pieces(text)
    assert len(spans) == len(ids)
    lower = Tokenizer.train(["a"], level="character", lowercase=True).character_table
    bytes_of = {}
    for token_id, (start, end), piece in zip(ids, spans, pieces, strict=True):
        raw = text[start:end].translate(lower if tokenizer.lowercase else {})
        if tokenizer.level == "bpe" and tokenizer.tokens([token_id])[0].startswith("<0x"):
            assert len(raw) == 1
            bytes_of.setdefault((start, raw), bytearray()).append(int(piece[3:5], 16))
        elif tokenizer.level == "bpe":
            assert piece.replace("▁", " ") == raw.replace("▁", " ")
        else:
            assert piece == raw.translate(tokenizer.character_table)
    assert all(bytes(found).decode() == raw for (_, raw), found in bytes_of.items())
    covered = {i for start, end in spans for i in range(start, end)}
    if tokenizer.separator:
        assert covered == {i for i, character in enumerate(text) if character not in BLANKS}
    else:
        assert covered == set(range(len(text)))


def test_spans_of_weird_texts(tokenizer):
    weird = [line.decode(errors="replace") for line in adversarial.lines(64)]
    for text in CORPUS + weird + ["▁men ▁", "<0xE2><unk>", "Ⱥ ȺⱥⱧ", "a" + "\u0301" * 20, "ΟΔΟΣ İSTANBUL ẞ Ǆ"]:
        check_spans(tokenizer, text)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(TEXT)
def test_spans_of_any_text(tokenizer, text):
    check_spans(tokenizer, text)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(st.one_of(st.just(UNKNOWN_ID), st.integers(0, 60)), max_size=13),
    st.lists(st.sampled_from(["Rhône", "a b", ""]), min_size=13, max_size=13),
)
def test_decode_writes_what_is_given_for_unknown_ids(tokenizer, ids, surfaces):
    ids = [i % tokenizer.vocabulary_size for i in ids]
    before_end = ids[: ids.index(END_ID)] if END_ID in ids else ids
    count = before_end.count(UNKNOWN_ID)
    assert tokenizer.decode(ids, ["<unk>"] * count) == tokenizer.decode(ids)
    # Marks that no vocabulary holds, then replaced: nothing but the unknown ones may change.
    marked = tokenizer.decode(ids, [f"\x00{n}\x01" for n in range(count)])
    for n, surface in enumerate(surfaces[:count]):
        marked = marked.replace(f"\x00{n}\x01", surface)
    assert tokenizer.decode(ids, surfaces[:count]) == marked


def test_decode_refuses_too_few_words(words):
    with pytest.raises(ValueError, match=r"each of the 2 unknown ids\. Received: 1"):
        words.decode([UNKNOWN_ID, 4, UNKNOWN_ID, END_ID, UNKNOWN_ID], ["one"])


SOURCE = "  Zwei\tjunge Ärzte\u3000sehen den RHEIN "


def found(source, target, text, ids, alignment, dictionary=None):
    source_ids = [*source.encode(text), END_ID]
    alignment = np.asarray(alignment, "float32")
    return words_for_unknown(text, (source, source_ids), (target, ids), alignment, dictionary or {})


def rows(target_length, source_length, weights):
    """An alignment `(T, S)` to the end token, except where `weights` is {row: {column: weight}}."""
    alignment = np.zeros((target_length, source_length))
    alignment[:, -1] = 1.0
    for row, columns in weights.items():
        for column, weight in columns.items():
            alignment[row, column] = weight
    return alignment


@pytest.mark.parametrize("lowercase", [False, True])
def test_words_come_raw_from_the_source(words, lowercase):
    source = Tokenizer.train(CORPUS, level="word", lowercase=lowercase)
    ids = [4, UNKNOWN_ID, 5, UNKNOWN_ID, END_ID]
    # The first unknown word looks mostly at the end token, which is no word; the second ties: the earlier wins.
    alignment = rows(5, 7, {1: {2: 0.3, 1: 0.2}, 3: {5: 0.5, 4: 0.1}})
    assert found(source, words, SOURCE, ids, alignment) == ["Ärzte", "RHEIN"]
    dictionary = {"Ärzte": "doctors", "rhein": "Rhine", "RHEIN": "RHINE"}
    assert found(source, words, SOURCE, ids, alignment, dictionary) == ["doctors", "RHINE"]
    dictionary = {"ärzte": "doctors", "rhein": ""}
    expected = ["doctors", ""] if lowercase else ["Ärzte", "RHEIN"]
    assert found(source, words, SOURCE, ids, alignment, dictionary) == expected


def test_a_source_that_was_cut_has_the_words_that_were_read(words):
    cut, alignment = [*words.encode(SOURCE)[:2], END_ID], rows(2, 3, {0: {1: 0.2, 0: 0.1}})
    assert words_for_unknown(SOURCE, (words, cut), (words, [UNKNOWN_ID, END_ID]), alignment, {}) == ["junge"]


def test_without_a_word_to_look_at_it_stays_unknown(words):
    ids = [UNKNOWN_ID, UNKNOWN_ID, END_ID]
    assert found(words, words, SOURCE, ids, np.zeros((3, 7))) == ["<unk>", "<unk>"]
    assert found(words, words, "Zwei", ids, rows(3, 2, {1: {0: 0.1}})) == ["<unk>", "Zwei"]
    assert found(words, words, "Zwei", [4, END_ID], rows(2, 2, {})) == []


def test_a_word_of_pieces_is_copied_whole_and_a_part_of_one_in_part():
    source = Tokenizer.train(["im Haus am See", "die Stra e"], byte_fallback=False)
    target = Tokenizer.train(["la casa . Stra e"], byte_fallback=False)
    text = "im Häuschen, Straße"
    pieces, spans = source.pieces(text), source.spans(text)
    umlaut, sharp = (next(i for i, (a, b) in enumerate(spans) if character in text[a:b]) for character in "äß")
    assert source.encode(text)[umlaut] == source.encode(text)[sharp] == UNKNOWN_ID
    assert pieces[sharp] == "ß"
    alone = target.encode("la X .")
    inside = target.encode("StraXe")
    assert alone.count(UNKNOWN_ID) == inside.count(UNKNOWN_ID) == 1
    for ids, column, expected in ((alone, umlaut, "la Häuschen, ."), (inside, sharp, "Straße")):
        alignment = rows(len(ids), len(pieces) + 1, {ids.index(UNKNOWN_ID): {column: 0.9}})
        assert target.decode(ids, found(source, target, text, ids, alignment)) == expected


def test_bytes_of_a_character_lead_to_its_word():
    source = Tokenizer.train(["im Haus am See"], vocabulary_size=280)
    words = Tokenizer.train(["la casa"], level="word")
    text = "am 日本 See"
    position = source.spans(text).index((3, 4))  # the first byte of 日
    ids = [UNKNOWN_ID, END_ID]
    alignment = rows(2, len(source.encode(text)) + 1, {0: {position: 0.9}})
    assert found(source, words, text, ids, alignment) == ["日本"]


def test_unknown_words_are_copied_from_the_aligned_source_word(translator):
    """All words are banned, so that the model can only produce `<unk>`."""
    words = translator.target_tokenizer.vocabulary[len(SPECIAL_TOKENS) :]
    options = {"beam_size": 1, "min_length": 4, "max_length": 4, "banned_tokens": words}
    plain = translator.generate(LINES, **options)
    assert texts(plain) == ["<unk> <unk> <unk>"] * 2 + [""] + ["<unk> <unk> <unk>"] * 2
    dictionary = {"Ärzte": "medici", "s3": "x y"}
    copied = translator.generate(LINES, replace_unknown=True, return_alignments=False, **options)
    translated = translator.generate(LINES, replace_unknown=dictionary, **options)
    for line, translation, copy, other in zip(LINES, plain, copied, translated, strict=True):
        if not line:
            continue
        looked = translation.alignment[:3, :-1].argmax(1)
        words = [line.split()[j] for j in looked]
        assert copy.text == " ".join(words)
        assert other.text == " ".join(dictionary.get(word, word) for word in words)
        assert copy.alignment is None
        assert copy.tokens == translation.tokens == other.tokens
    assert len({translation.text for translation in copied}) > 3
    prefixed = translator.generate(LINES[:2], replace_unknown=True, prefixes=["Zürich", "t1"], **options)
    assert texts(prefixed) == [
        " ".join(["Zürich", *copied[0].text.split()[1:]]),
        " ".join(["t1", *prefixed[1].text.split()[1:]]),
    ]
