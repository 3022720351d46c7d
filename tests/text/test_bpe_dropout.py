"""BPE-dropout: what p = 0 and p = 1 give is known; between them, the same seed gives the same pieces."""

import threading

import pytest

from keras_attn.text import BPEDropout, Tokenizer

LINES = ["low lower lowest", "new newer newest", "wide  wider", "slow slower", "ünïcode 三"] * 7


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(LINES, vocabulary_size=300)


def test_without_dropout_the_pieces_are_the_tokenizers(tokenizer):
    assert BPEDropout(tokenizer, 0).encode(LINES, seed=1) == tokenizer.encode_batch(LINES)


def test_without_merges_the_pieces_are_characters(tokenizer):
    drawn = BPEDropout(tokenizer, 1).encode(["low  lower"], seed=1)[0]
    assert tokenizer.tokens(drawn) == list("low▁▁lower")


def test_a_merge_is_left_out_with_the_probability():
    """Of "ab" alone there is one merge: one piece without dropout, two with it."""
    tokenizer = Tokenizer.train(["ab"] * 9, vocabulary_size=4 + 256 + 3)
    assert tokenizer.tokens(tokenizer.encode("ab")) == ["ab"]
    drawn = BPEDropout(tokenizer, 0.3).encode(["ab"] * 4000, seed=1)
    assert sum(len(ids) == 2 for ids in drawn) / 4000 == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / 4000) ** 0.5)


def test_a_seed_gives_the_same_pieces_whatever_was_drawn_before(tokenizer):
    dropout = BPEDropout(tokenizer, 0.3)
    first, other, again = (dropout.encode(LINES, seed) for seed in (1, 2, 1))
    assert first == again != other
    assert [tokenizer.decode(ids) for ids in first] == LINES
    found = []
    thread = threading.Thread(target=lambda: found.append(dropout.encode(LINES, 1)))
    thread.start()
    thread.join()
    assert found == [first]


def test_it_refuses(tokenizer):
    with pytest.raises(ValueError, match=r"from 0 to 1\. Received: 1\.5"):
        BPEDropout(tokenizer, 1.5)
    with pytest.raises(ValueError, match=r"Expected a tokenizer of level 'bpe'.*'word'"):
        BPEDropout(Tokenizer.train(LINES, level="word"), 0.1)
