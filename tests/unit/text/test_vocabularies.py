"""Vocabularies of other programs: their own ids for any text, also after saving; wrong ones are refused."""

import json
import os
import pickle

import pytest

from keras_attn.text import SpecialIds, Tokenizer
from tests.unit.text.test_tokenizer import LINES, WEIRD

WORDS = ["a", "<s>", "b", "</s>", "<unk>", "<pad>", "c"]


def check_kept(tokenizer, folder, texts=LINES):
    tokenizer.save(folder)
    loaded = Tokenizer.load(folder)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert (loaded.special_ids, loaded.vocabulary) == (tokenizer.special_ids, tokenizer.vocabulary)
    for other in (loaded, pickle.loads(pickle.dumps(tokenizer))):
        assert other.encode_batch(texts) == tokenizer.encode_batch(texts)


def test_a_list_keeps_its_ids(tmp_path):
    tokenizer = Tokenizer.from_vocabulary(WORDS)
    assert tokenizer.special_ids == SpecialIds(pad=5, unknown=4, start=1, end=3)
    assert tokenizer.encode("a  b\u3000x <s> c") == [0, 2, 4, 4, 6]
    assert tokenizer.decode([1, 0, 2, 4, 5, 3, 6]) == "a b <unk>"
    assert tokenizer.words([0, 4, 3]) == [("a", [0]), ("<unk>", [1]), ("</s>", [2])]
    check_kept(tokenizer, tmp_path / "list", ["a b x", ""])
    characters = Tokenizer.from_vocabulary(
        ["[U]", "A", *"ab"], level="character", pad="A", unknown=0, start=None, end=None
    )
    assert characters.encode("abc") == [2, 3, 0]
    assert characters.decode([2, 0, 3]) == "a[U]b"
    assert Tokenizer.from_vocabulary(WORDS, lowercase=True).encode("A B") == [0, 2]


def test_a_trained_vocabulary_given_as_a_list_is_the_same_tokenizer(tmp_path):
    trained = Tokenizer.train(LINES, level="word")
    (tmp_path / "tokens.txt").write_bytes(("\r\n".join(trained.vocabulary) + "\r\n").encode())
    for vocabulary in (trained.vocabulary, tmp_path / "tokens.txt", str(tmp_path / "tokens.txt")):
        assert Tokenizer.from_vocabulary(vocabulary).fingerprint == trained.fingerprint
    (tmp_path / "marked.txt").write_text("\n".join(trained.vocabulary), "utf-8-sig")  # as editors do
    assert Tokenizer.from_vocabulary(tmp_path / "marked.txt").vocabulary == trained.vocabulary


def test_words_of_a_hugging_face_file_need_no_package(tmp_path, monkeypatch):
    document = {
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "decoder": None,
        "added_tokens": [{"id": 0, "content": "[PAD]", "special": True}, {"id": 4, "content": "</s>", "special": True}],
        "model": {"type": "WordLevel", "vocab": {"[PAD]": 0, "a": 2, "b": 1, "[UNK]": 3}, "unk_token": "[UNK]"},
    }
    (tmp_path / "words.json").write_text(json.dumps(document))
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    tokenizer = Tokenizer.from_vocabulary(tmp_path / "words.json", pad="[PAD]", start=None)
    assert tokenizer.special_ids == SpecialIds(pad=0, unknown=3, start=None, end=4)
    assert tokenizer.encode("b a\u2003c [PAD]") == [1, 2, 3, 3]
    (tmp_path / "words.json").write_text(json.dumps(document | {"normalizer": {"type": "Lowercase"}}))
    with pytest.raises(ModuleNotFoundError, match=r"Expected the package tokenizers .*: pip install tokenizers"):
        Tokenizer.from_vocabulary(tmp_path / "words.json", pad="[PAD]", start=None)


@pytest.mark.parametrize("kind", ["ByteLevelBPETokenizer", "SentencePieceUnigramTokenizer", "BertWordPieceTokenizer"])
def test_a_hugging_face_tokenizer_gives_its_own_ids(kind, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    trained, path = getattr(tokenizers, kind)(), str(tmp_path / "file.json")
    bert = kind.startswith("Bert")
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] if bert else ["<pad>", "<unk>", "<s>", "</s>"]
    options = {"unk_token": "<unk>"} if "Unigram" in kind else {}
    trained.train_from_iterator(LINES, vocab_size=350, special_tokens=specials, show_progress=False, **options)
    trained.save(path)
    names = dict(zip(("pad", "unknown", "start", "end"), specials, strict=False)) if bert else {}
    tokenizer = Tokenizer.from_vocabulary(path, **names)
    reference = tokenizers.Tokenizer.from_file(path)
    assert tokenizer.vocabulary == [reference.id_to_token(i) for i in range(reference.get_vocab_size())]
    texts = [text for text in (*LINES, *WEIRD) if "<s>" not in text]
    encodings = reference.encode_batch(texts, add_special_tokens=False)
    assert tokenizer.encode_batch(texts) == [encoding.ids for encoding in encodings]
    for text, encoding in zip(texts, encodings, strict=True):
        assert tokenizer.spans(text) == encoding.offsets
        ordinary = [i for i in encoding.ids if i not in tokenizer.special_ids.reserved]
        assert tokenizer.decode(encoding.ids) == reference.decode(ordinary, skip_special_tokens=False)
    words = "".join(word for word, _ in tokenizer.words(tokenizer.encode(LINES[1])))
    assert words == tokenizer.decode(tokenizer.encode(LINES[1])).replace(" ", "")
    special = tokenizer.special_ids  # which are never read from text
    assert not special.reserved.intersection(tokenizer.encode("".join(specials)))
    ids = tokenizer.encode(LINES[0])
    ids.insert(2, special.unknown)
    if special.unknown not in tokenizer.encode(LINES[0]):
        assert tokenizer.decode(ids, ["XY"]).replace("XY", tokenizer.unknown_token) == tokenizer.decode(ids)
    check_kept(tokenizer, tmp_path / "saved")


def test_wrong_vocabularies_are_refused(tmp_path):
    (tmp_path / "twice.txt").write_text("x\ny\n<pad>\nx\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "other.json").write_text('{"vocab": []}')
    (tmp_path / "large.json").touch()
    os.truncate(tmp_path / "large.json", 1 << 30)
    gaps = {"type": "WordLevel", "vocab": {"a": 0, "b": 2}}
    (tmp_path / "gaps.json").write_text(json.dumps({"model": gaps, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    two = {"pad": 0, "unknown": 1, "start": None, "end": None}
    wrong = {
        r"once each in .*twice.txt. Received: 'x' twice, in lines 1 and 4": (tmp_path / "twice.txt", {}),
        r"once each in the list. Received: 'a' twice, as ids 0 and 2": (["a", "b", "a"], {}),
        r"Expected lines of text in .*empty.txt": (tmp_path / "empty.txt", {}),
        r"Expected .*other.json to be a tokenizer of Hugging Face": (tmp_path / "other.json", {}),
        r"large.json' to have at most 134,217,728 bytes. Received: 1,073,741,824": (tmp_path / "large.json", {}),
        r"have the ids from 0 to 1. Received: 'b' with id 2": (tmp_path / "gaps.json", {}),
        r"to have the token '<pad>'; `pad` may name another entry or its id\. Received: 2": (["a", "b"], {}),
        r"to have the token '</s>'; `end` may name another entry or its id, or be None": (
            ["a", "b"],
            two | {"end": "</s>"},
        ),
        r"Expected special ids below the vocabulary's size, 2. Received: .*end=7": (["a", "b"], two | {"end": 7}),
        r"Expected special ids that differ from each other": (["a", "b"], two | {"end": 1}),
        r"Expected a vocabulary as a list of tokens .* Received: dict": ({"a": 0}, {}),
        r"Expected at least one token in the list": ([], {}),
        r"Expected text as a str. Received: int": (["a", 5], {}),
        r"Expected level to be one of word, symbol, character, letter. Received: 'bpe'": (["a"], {"level": "bpe"}),
    }
    for message, (vocabulary, options) in wrong.items():
        with pytest.raises(ValueError, match=message):
            Tokenizer.from_vocabulary(vocabulary, **options)
    with pytest.raises(FileNotFoundError, match="Expected a text file"):
        Tokenizer.from_vocabulary(tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError, match="Expected a tokenizer's file"):
        Tokenizer.from_vocabulary(tmp_path / "none.json")
    closed = Tokenizer.from_vocabulary(["a", "b"], **two | {"unknown": None})
    with pytest.raises(ValueError, match=r"because it has no unknown token. Received: 'q'"):
        closed.encode("b q")
