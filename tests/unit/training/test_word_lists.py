"""Pronunciation of word lists: the recipe `g2p`, from nothing and from a run of another language."""

import json

import pytest

from keras_attn import G2P
from keras_attn.cli import train
from keras_attn.training import corpora

SIZES = ["units=4", "num_layers=1", "embedding_size=5", "decoder_units=6", "readout_size=7", "max_steps=2"]
SOUNDS = {"a": "A1", "b": "B", "é": "E:", "n": "n"}


def write(path, letters: str, between: str) -> None:
    words = [first + second + third for first in letters for second in letters for third in letters]
    path.write_text("".join(f"{word}{between}{' '.join(map(SOUNDS.get, word.lower()))}\n" for word in words))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The run of a lexicon, and one of a table that goes on from it."""
    folder = tmp_path_factory.mktemp("words")
    write(folder / "abc.dict", "aBn", " ")
    write(folder / "xyz.tsv", "abé", "\t")
    first, second = folder / "first", folder / "second"
    line = ["g2p", "--no-export", "--beam", "2", "--corpus"]
    assert train.main([*line, str(folder / "abc.dict"), "--out", str(first), "--set", *SIZES]) == 0
    more = ["--from", str(first), "--tags", "corpus", "--set", "max_steps=2"]
    assert train.main([*line, str(folder / "xyz.tsv"), "--out", str(second), *more]) == 0
    return first, second


def test_a_run_reads_words_as_they_are(runs):
    report = json.loads((runs[0] / "report.json").read_text())
    assert report["config"]["level"] == "letter"
    assert report["wer"]["signature"].startswith("items:")
    g2p = G2P.from_preset(runs[0])
    letters, phones = g2p.translator.source_tokenizer, g2p.translator.target_tokenizer
    assert letters.pieces("BÁN") == ["b", "a", "n"]
    assert set(phones.vocabulary[4:]) == {"A1", "B", "n"}
    assert g2p.pronounce("Ban")[0].unknown == ()


def test_another_language_goes_on_with_a_tag(runs):
    letters = G2P.from_preset(runs[1], tag="<2xyz>").translator.source_tokenizer
    old = G2P.from_preset(runs[0]).translator.source_tokenizer
    assert letters.vocabulary[: old.vocabulary_size] == old.vocabulary
    assert set(letters.vocabulary[old.vocabulary_size :]) == {"<2xyz>", "é"}
    assert letters.pieces("<2xyz> Bé") == ["<2xyz>", "b", "é"]


def test_words_of_a_lexicon_are_held_out_with_all_pronunciations(tmp_path):
    entries = [f"w{n} A{n}\nw{n}(2) B{n}\n" for n in range(40)]
    (tmp_path / "v1.2.dict").write_text("".join(entries))
    corpus = corpora.load(tmp_path / "v1.2.dict", tags="corpus")
    assert corpus.tags == ("<2v1.2>",)
    assert [len(corpus.splits[split][0]) for split in corpora.SPLITS] == [72, 4, 4]
    for sources, targets in corpus.splits.values():
        assert all(line.split()[1][1:] == phones[1:] for line, phones in zip(sources, targets, strict=True))
    assert len({target[0] for target in corpus.splits["test"][1]}) == 2
