"""Vocabularies of Marian: the ids of its files, and an error for every file that is none."""

import io
import json

import pytest
import sentencepiece

from keras_attn import SpecialIds, Tokenizer
from keras_attn.converters import marian_tokenizer

HEAD = "</s>: 0\n<unk>: 1\n"


@pytest.fixture
def vocabulary(tmp_path):
    def write(text, name="vocab.yml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_words_have_the_ids_of_the_file(vocabulary):
    quoted = """'it''s': 3\n"a\\"b\\\\\\u00e9\\x41\\U0001F600": 4\r\n"""
    text = f'---\n# words\n{HEAD}null: 2\n{quoted}a:b: 5\n":": 6\n1.5: 7\n\n'
    tokenizer = marian_tokenizer(vocabulary(text))
    words = ["</s>", "<unk>", "null", "it's", 'a"b\\éA😀', "a:b", ":", "1.5", "<pad>", "<s>"]
    assert tokenizer.vocabulary == words
    assert tokenizer.special_ids == SpecialIds(pad=8, unknown=1, start=9, end=0)
    assert tokenizer.encode("null it's : 1.5 </s> <pad> <s> other\n") == [2, 3, 6, 7, 1, 1, 1, 1]
    assert tokenizer.encode("null\u00a0it's\tnull") == [1]  # Marian separates words by the blank alone
    assert tokenizer.decode([2, 5, 0, 2]) == "null a:b"


def test_the_size_of_the_model_decides(vocabulary):
    path = vocabulary(f"{HEAD}a: 2\nb: 4\n<pad>: 5\n")
    assert marian_tokenizer(path).vocabulary == ["</s>", "<unk>", "a", "<unused 3>", "b", "<pad>", "<pad>_", "<s>"]
    smaller, larger = (marian_tokenizer(path, size=size) for size in (3, 7))
    assert (smaller.vocabulary_size, smaller.encode("a b")) == (5, [2, 1])
    assert (larger.vocabulary_size, larger.special_ids.pad, larger.encode("a b")) == (9, 7, [2, 4])


def test_json_and_the_names_of_nematus(vocabulary):
    words = {"eos": 0, "UNK": 1, "</s>": 2, "ä": 3, "😀": 4, 'a"\\/': 5}
    tokenizer = marian_tokenizer(vocabulary(json.dumps(words, ensure_ascii=False), "vocab.json"))
    assert (tokenizer.special_ids.end, tokenizer.special_ids.unknown, tokenizer.encode("ä </s> 😀")) == (
        0,
        1,
        [3, 2, 4],
    )


WRONG = {
    "nothing": ("", r"Expected words with their ids in .*\. Received: none"),
    "no end": ("<unk>: 1\na: 0\n", "an entry </s>. Received: 2 words"),
    "two words": (f"{HEAD}a: 2\nb: 2\n", "ids of their own. Received: 'a' and 'b', both with id 2"),
    "a word twice": (f"{HEAD}a: 2\na: 3\n", "words that occur once"),
    "an id too large": (f"{HEAD}a: 999999999\n", "ids below 16,777,216. Received: 'a' with id 999999999"),
    "no word": (f"{HEAD}'': 2\n", "Expected a word and its id. Received: '' with '2'"),
    "a negative id": ('{"a": -1}', "Received: 'a' with '-1'"),
    "nested": (f"{HEAD}a:\n  b: 2\n", "Received in line 4: MappingStart"),
    "nested deeply": ("{a: " * 10_000, "Received in line 1: MappingStart|YAML"),
    "an alias": (f"{HEAD}a: &b 2\nc: *b\n", "Received in line 4: Alias"),
    "an open quotation mark": (f'{HEAD}"a: 2\n', "Expected YAML. Received: .*line 3"),
    "half a pair": (f'{HEAD}"\\ud800": 2\n', "as `word: id`"),
    "no UTF-8": (b"\xff: 2\n", "in UTF-8. .*can't decode"),
    "an end that is cut off": ("a: 0\n<unk>: 1\n</s>: 7\n", "an end and an unknown word among the 3 words"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_with_a_sentence(case, vocabulary):
    text, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        marian_tokenizer(vocabulary(text), size=3)


def test_other_files_are_refused(vocabulary, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        marian_tokenizer(tmp_path / "none.yml")
    with pytest.raises(ValueError, match=r"in \.yml, \.yaml, \.json or \.spm"):
        marian_tokenizer(vocabulary("a", "vocab.fsv"))
    for content in (b"", b"no model" * 9):
        with pytest.raises(ValueError, match="to be a SentencePiece model with the pieces </s> and <unk>"):
            marian_tokenizer(vocabulary(content, "vocab.spm"))


def test_pieces_are_sentencepieces(vocabulary, tmp_path):
    """Trained as Marian does: unigram, with its table of normalization, and a blank before the text."""
    model = io.BytesIO()
    lines = ["zwei Hunde laufen über die schöne Wiese", "ein Hund läuft", "die Wiesen sind schön", "zwei Männer"] * 5
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=60, hard_vocab_limit=False, minloglevel=2,
        bos_id=-1, pad_id=-1, eos_id=0, unk_id=1,
    )  # fmt: skip
    pieces = model.getvalue()
    path = vocabulary(pieces, "vocab.spm")
    tokenizer, processor = marian_tokenizer(path), sentencepiece.SentencePieceProcessor(model_proto=pieces)
    size = processor.get_piece_size()
    assert tokenizer.special_ids == SpecialIds(pad=size, unknown=1, start=size + 1, end=0)
    assert tokenizer.vocabulary[-2:] == ["<pad>", "<s>"]
    for text in ("ein Hund", "  zwei  ﬁnden 漢字 ", "", "</s> <pad>"):
        ids = tokenizer.encode(text)
        assert ids == processor.encode(text)
        assert tokenizer.decode(ids) == processor.decode(ids)
        assert len(tokenizer.spans(text)) == len(tokenizer.pieces(text)) == len(ids)
    assert [text[a:b] for text in ("ein 漢字",) for a, b in tokenizer.spans(text)][-1] == "漢字"
    ids = tokenizer.encode("ein 漢字 Hund")
    assert tokenizer.decode([*ids, 0, 5], unknown=["XY"]) == "ein XY Hund"
    assert [word for word, _ in tokenizer.words([*tokenizer.encode("ein Hund"), 0])] == ["ein", "Hund", "</s>"]
    tokenizer.save(tmp_path / "saved")
    again = Tokenizer.load(tmp_path / "saved")
    assert (again.fingerprint, again.special_ids) == (tokenizer.fingerprint, tokenizer.special_ids)
    with pytest.raises(ValueError, match=f"to have 999 pieces, as the model has. Received: {size}"):
        marian_tokenizer(path, size=999)
