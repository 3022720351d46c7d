"""BPE-dropout with p = 0 and p = 1; between them, the paper's distribution and the same pieces for a seed."""

import random

import pytest

from keras_attn.text import BPEDropout, Tokenizer

LINES = ["low lower lowest", "new newer newest", "wide  wider", "slow slower", "ünïcode 三"] * 7


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(LINES, vocabulary_size=300)


TAGGED = {"lowercase": True, "tags": ["<2lo>", "<2low>", "<2l."]}


@pytest.mark.parametrize("options", [{}, {"lowercase": True}, TAGGED, {"byte_fallback": False, "vocabulary_size": 60}])
def test_without_dropout_the_pieces_are_the_tokenizers(options):
    tokenizer, draws = Tokenizer.train(LINES, **{"vocabulary_size": 300, **options}), random.Random(3)
    texts = [*LINES, "", " ", "  low", "LOW\u00a0Wider İstanbul Σ <s> <0x41> ▁new 😀😀 三三 x"]
    texts += ["<2low> low<2lower> <2LOW>", "<2l.<2l,<2lo<2lo>"]
    texts += ["".join(draws.choice("lowernwsti  ▁üçï三😀") for _ in range(30)) for _ in range(200)]
    assert BPEDropout(tokenizer, 0).encode(texts, seed=1) == tokenizer.encode_batch(texts)


def test_tags_are_never_cut():
    tokenizer = Tokenizer.train(LINES, vocabulary_size=300, tags=["<2fr>"])
    extended = tokenizer.extended(Tokenizer.train(["Łódź"] * 9, vocabulary_size=268, tags=["<2pl>"]))
    for one, tag in ((tokenizer, "<2fr>"), (extended, "<2fr>"), (extended, "<2pl>")):
        drawn = BPEDropout(one, 1).encode([f"{tag} low"], seed=1)[0]
        assert one.tokens(drawn) == [tag, *"▁low"]


def test_a_seed_gives_the_same_pieces_whatever_was_drawn_before(tokenizer):
    dropout = BPEDropout(tokenizer, 0.3)
    first, other, again = (dropout.encode(LINES, seed) for seed in (1, 2, 1))
    assert first == again != other
    assert [tokenizer.decode(ids) for ids in first] == LINES
    assert BPEDropout(tokenizer, 0.3).encode(LINES, 1) == first, "whatever it has seen"


def test_pieces_have_the_papers_distribution():
    """Of "abc" with the merges ab, then abc, and bc, which is worse: by hand, with q = 1 - p.

    Step 1 has ab and bc: ab is made with q, bc with p q, nothing with p^2. After ab there is abc; after bc, abc.
    """
    tokenizer = Tokenizer.train(["abc"] * 9 + ["ab"] * 9 + ["bc"] * 3, vocabulary_size=4 + 256 + 3 + 3)
    assert {"ab", "abc", "bc"} <= {*tokenizer.vocabulary}
    p, draws = 0.4, 6000
    q = 1 - p
    expected = {"abc": q * q + p * q * q, "ab c": q * p, "a bc": p * q * p, "a b c": p * p}
    assert sum(expected.values()) == pytest.approx(1)
    rows = BPEDropout(tokenizer, p).encode(["abc"] * draws, seed=1)
    found = [" ".join(tokenizer.tokens(row)) for row in rows]
    for pieces, share in expected.items():
        assert found.count(pieces) / draws == pytest.approx(share, abs=4 * (share * (1 - share) / draws) ** 0.5)


def test_it_refuses(tokenizer):
    with pytest.raises(ValueError, match=r"from 0 to 1\. Received: 1\.5"):
        BPEDropout(tokenizer, 1.5)
    with pytest.raises(ValueError, match=r"of level 'bpe' that was trained here\. Received: 'word'"):
        BPEDropout(Tokenizer.train(LINES, level="word"), 0.1)
