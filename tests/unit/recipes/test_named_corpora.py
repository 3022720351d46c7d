"""The named corpora: downloads (from `file://` copies, without the network), hashes, splits and refusals."""

import gzip
import io
import json
import lzma
import os
import random
import zipfile
from pathlib import Path

import pytest

from keras_attn.training import corpora
from recipes import named_corpora
from tests.unit.training import test_corpora
from tests.unit.training.test_corpora import hashes, write

cache = test_corpora.own_cache
DATA = os.environ.get("KERAS_ATTN_DATA")
TEXT = {
    **{"train.de": "ein Haus\nzwei Häuser\n", "train.en": "a house\ntwo houses\n", "train.fr": "un\ndeux\n"},
    **{"val.de": "vier\n", "val.en": "four\n", "val.fr": "quatre\n"},
    **{"test.de": "fünf\nsechs\n", "test.en": "five\nsix\n", "test.fr": "cinq\nsix\n"},
}
MULTI30K = "multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1"
TATOEBA = "genimind/seq2seq/4f3f8eb0adde54fcc8b89394336b002e7961244c/fra-eng.zip"
SIGMORPHON = "sigmorphon/2021-task1/821bcdece5a47820872215969f275004b0abe80c/data"
KINDS = [name for name in named_corpora.SOURCES if not name.startswith("wikipron/")] + ["wikipron/ben_beng_broad"]
PAGE = b"<html><body>Please log in to use this network.</body></html>"


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Stands in for the upstream repositories: `owner/name/commit/path` below a `file://` address."""

    def write(files):
        for path, content in files.items():
            (tmp_path / "upstream" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "upstream" / path).write_bytes(content if isinstance(content, bytes) else content.encode())
        monkeypatch.setattr(named_corpora, "BASE", (tmp_path / "upstream").as_uri())

    return write


@pytest.fixture
def built(serve):
    """Makes the lines of a corpus from upstream files."""

    def build(name, files):
        serve(files)
        return named_corpora.SOURCES[name].build(lambda address: Path(address.removeprefix("file://")))

    return build


@pytest.fixture
def known(monkeypatch):
    """Makes these texts those that a name stands for."""

    def expect(name, texts):
        monkeypatch.setitem(named_corpora.SHA256, name, hashes(texts))

    return expect


@pytest.fixture
def multi30k(serve, known):
    """Upstream's files of multi30k and multi30k-tok."""
    files = {}
    for name, text in TEXT.items():
        split, language = name.replace("test", "test_2016_flickr").split(".")
        files[f"{MULTI30K}/raw/{split}.{language}.gz"] = gzip.compress(text.encode())
        files[f"{MULTI30K}/tok/{split}.lc.norm.tok.{language}"] = text
    serve(files)
    for name in ("multi30k", "multi30k-tok"):
        known(name, TEXT)


@pytest.mark.parametrize("below", ["data/multi30k-tok", "multi30k-tok"])
def test_a_named_corpus_in_the_data_folder(tmp_path, monkeypatch, known, below):
    known("multi30k-tok", TEXT)
    write(tmp_path / below, TEXT, zipped=True)
    assert corpora.load("multi30k-tok", data=tmp_path).splits["test"] == (["fünf", "sechs"], ["five", "six"])
    monkeypatch.setenv("KERAS_ATTN_DATA", str(tmp_path))
    assert corpora.load("multi30k-tok", "en", "de").source == "en"
    with pytest.raises(ValueError, match=r"Expected a language of multi30k-tok \(de, en, fr\)\. Received: 'es'"):
        corpora.load("multi30k-tok", "es", "en")


def test_a_changed_copy_is_refused_but_not_deleted(tmp_path, known):
    known("multi30k-tok", TEXT)
    folder = write(tmp_path / "multi30k-tok", TEXT | {"val.en": "fore\n"}, zipped=True)
    with pytest.raises(ValueError, match=r"Expected val\.en of multi30k-tok .* Give the folder instead of the name"):
        corpora.load("multi30k-tok", data=tmp_path)
    assert corpora.load(folder, "de", "en").splits["val"] == (["vier"], ["fore"])


@pytest.mark.parametrize("name", ["multi30k", "multi30k-tok"])
def test_a_download_happens_once_and_is_checked(multi30k, monkeypatch, cache, name):
    corpus = corpora.load(name)
    assert corpus.splits["test"] == (["fünf", "sechs"], ["five", "six"])
    assert [path.name for path in cache.iterdir()] == [name], "no downloads are left"
    monkeypatch.setattr(named_corpora, "BASE", "file:///nowhere")
    assert corpora.load(name) == corpus  # from the cache
    (cache / name / "val.en.gz").write_bytes(gzip.compress(b"tampered\n"))
    with pytest.raises(ValueError, match=rf"Expected val\.en of {name} .*folder was deleted; run again"):
        corpora.load(name)
    assert not (cache / name).exists()


@pytest.mark.parametrize("damage", ["truncated", "missing", "invalid", "empty"])
def test_a_damaged_cache_is_deleted(multi30k, cache, damage):
    corpus = corpora.load("multi30k-tok")
    path = cache / "multi30k-tok" / "train.de.gz"
    whole = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes({"truncated": whole[:-9], "invalid": gzip.compress(b"\xff"), "empty": b""}[damage])
    with pytest.raises((ValueError, FileNotFoundError), match="folder was deleted; run again"):
        corpora.load("multi30k-tok")
    assert corpora.load("multi30k-tok") == corpus


def zipped(name, text):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return file.getvalue()


CONTENTS = {
    "a damaged zip file": zipped("fra.txt", b"Go.\tVa !\n" * 999).replace(b"\x04", b"\x05"),
    "another zip file": zipped("deu.txt", b"Go.\tGeh !\n"),
    "a bomb": zipped("fra.txt", bytes(70_000_000)),
    "no UTF-8": zipped("fra.txt", b"\xff\xff"),
    "one column": zipped("fra.txt", b"Go.\n"),
    "another text": zipped("fra.txt", b"Go.\tVa !\n"),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_that_is_not_the_corpus_is_not_kept(serve, cache, content):
    """The next attempt would take it for the corpus again."""
    serve({TATOEBA: CONTENTS[content]})
    with pytest.raises(ValueError, match=r"Expected to download the corpus tatoeba-en-fr\. .* deleted.*--data DATA"):
        corpora.load("tatoeba-en-fr")
    assert not cache.exists() or not list(cache.iterdir())


@pytest.mark.parametrize("name", KINDS)
def test_neither_no_network_nor_the_page_of_a_portal_is_a_corpus(monkeypatch, cache, name):
    monkeypatch.setattr(named_corpora, "BASE", "file:///nowhere")
    with pytest.raises(FileNotFoundError, match=rf"the corpus {name}\. Could not download .*folder DATA/{name}"):
        corpora.load(name)

    def portal(address, path):
        path.write_bytes(PAGE)
        return path

    monkeypatch.setattr(named_corpora.downloads, "download", portal)
    with pytest.raises(ValueError, match=rf"Expected to download the corpus {name}\. .* deleted.*--data DATA"):
        corpora.load(name)
    assert not [path for path in cache.rglob("*") if path.is_file()]


def test_news_is_joined_in_the_order_of_the_years(built):
    root = "Helsinki-NLP/OPUS-MT-testsets/ac0f19c0be3cb4e0d9450fcb2d7a9847c4bdd180/testsets/eng-fra"
    years = ["news-test2008", "newssyscomb2009", *(f"newstest{year}" for year in range(2009, 2015))]
    texts = {f"{root}/{year}.{side}": f"{year} {side}\n" for year in years for side in ("eng", "fra")}
    files = built("news-en-fr", texts)
    assert files["train.en"] == [f"{year} eng" for year in years[:6]]
    assert (files["val.fr"], files["test.en"]) == (["newstest2013 fra"], ["newstest2014 eng"])


def test_bible_is_joined_by_verse_and_split_by_chapter(built):
    english = "aruljohn/Bible-kjv/a9aa4e55afbb3e095f57e4b14cd1f22c5ee8d7c9"
    spanish = "thiagobodruk/bible/13225a15fa5e3e3043495b0c82df56c3fdfeb7f4/json/es_rvr.json"

    def book(letter):
        verses = [[{str(n): f"{letter} {chapter} {n} "} for n in (1, 2)] for chapter in range(5)]
        return json.dumps({"chapters": [{"verses": chapter} for chapter in verses]})

    starts = {"g": "(1-1) g", "s": "(así) s"}
    books = [
        {"chapters": [[f"{start} {n} 1", f"{letter} {n} 2"] for n in range(5)]} for letter, start in starts.items()
    ]
    texts = {
        f"{english}/Books.json": json.dumps(["Genesis", "1 Samuel"]),
        f"{english}/Genesis.json": book("G"),
        f"{english}/1Samuel.json": book("S"),
        spanish: "\ufeff" + json.dumps(books, ensure_ascii=False),
    }
    files = built("bible-en-es", texts)
    assert (files["val.en"], files["val.es"]) == (["G 3 1", "G 3 2"], ["g 3 1", "g 3 2"])
    assert (files["test.en"], files["test.es"]) == (["S 2 1", "S 2 2"], ["(así) s 2 1", "s 2 2"])
    assert len(files["train.en"]) == len(files["train.es"]) == 16


def test_tatoeba_holds_out_sentences_with_their_first_translation(built):
    sentences = [f"s{n:04}" for n in range(4100)]
    text = "".join(f"{sentence}\t{sentence} un\n{sentence}\t{sentence} deux\n" for sentence in sentences)
    files = built("tatoeba-en-fr", {TATOEBA: zipped("fra.txt", text)})
    random.Random(17).shuffle(shuffled := list(sentences))
    assert files["test.en"] == sorted(shuffled[:2000])
    assert files["val.fr"] == [f"{sentence} un" for sentence in sorted(shuffled[2000:4000])]
    assert files["train.fr"][:2] == [f"{min(shuffled[4000:])} un", f"{min(shuffled[4000:])} deux"]
    assert len(files["train.en"]) == 200


def _pairs(files, split):
    return zip(files[f"{split}.letters"], files[f"{split}.phones"], strict=True)


def test_cmudict_with_stress_and_without(built):
    words = ["w" + "".join(chr(97 + n // base % 17) for base in (289, 17, 1)) for n in range(2900)]
    text = "a AH0\na(2) EY1\na(3) EY2\nb B IY1 # letter\n" + "".join(f"{word} W AH0\n" for word in words)
    source = {"cmusphinx/cmudict/0f8072f814306c5ee4fbf992ed853601b12c01f9/cmudict.dict": text}
    files, stressed = built("cmudict", source), built("cmudict-stress", source)
    entries = sorted(pair for split in corpora.SPLITS for pair in _pairs(files, split))
    assert entries[:4] == [("a", "AH"), ("a", "EY"), ("b", "B IY"), ("w a a a", "W AH")]
    random.Random(23).shuffle(shuffled := sorted([*words, "a", "b"]))
    assert set(files["test.letters"]) == {" ".join(word) for word in shuffled[: len(shuffled) // 10]}
    assert len(set(files["val.letters"])) == 2000
    entries = sorted(pair for split in corpora.SPLITS for pair in _pairs(stressed, split))
    assert entries[:4] == [("a", "AH0"), ("a", "EY1"), ("a", "EY2"), ("b", "B IY1")]
    assert all(set(stressed[f"{split}.letters"]) == set(files[f"{split}.letters"]) for split in corpora.SPLITS)


def test_pronunciations_are_split_into_letters_and_syllables_of_korean_are_decomposed(built, known, cache):
    texts = {"train": "cneuen gyll\tk n ə\na\ta\n", "dev": "b\tb\n", "test": "c\tk\nc\tx\n"}
    files = built("g2p/wel_sw", {f"{SIGMORPHON}/low/wel_sw_{split}.tsv": text for split, text in texts.items()})
    assert files["train.letters"] == ["c n e u e n _ g y l l", "a"]
    assert (files["train.phones"], files["val.letters"]) == (["k n ə", "a"], ["b"])
    known("g2p/wel_sw", {name: "\n".join([*lines, ""]) for name, lines in files.items()})
    corpus = corpora.load("g2p/wel_sw")
    assert (corpus.name, corpus.source, corpus.target) == ("g2p/wel_sw", "letters", "phones")
    assert corpus.splits["test"] == (["c", "c"], ["k", "x"])
    assert [path.name for path in (cache / "g2p").iterdir()] == ["wel_sw"]

    texts = {"train": "가극\tk a̠ ɡ ɯ k̚\n", "dev": "ㄱ\tk\n", "test": "다\tt a̠\n"}
    files = built("g2p/kor", {f"{SIGMORPHON}/medium/kor_{split}.tsv": text for split, text in texts.items()})
    known("g2p/kor", {name: "\n".join([*lines, ""]) for name, lines in files.items()})
    assert corpora.load("g2p/kor").splits["train"][0] == ["가 극"]
    corpus = corpora.load("g2p/kor", "decomposed", "phones")
    assert corpus.splits["train"] == (["\u1100 \u1161 \u1100 \u1173 \u11a8"], ["k a̠ ɡ ɯ k̚"])
    assert corpus.splits["test"] == (["\u1103 \u1161"], ["t a̠"])
    assert corpora.load("g2p/kor", "letters", "decomposed").splits["test"] == (["다"], ["\u1103 \u1161"])


def _wikipron(language):
    return f"CUNY-CL/wikipron/185dfcf514fe37fe4cfddddeacff1eda3afdca55/data/scrape/tsv/{language}.tsv"


def test_wikipron_is_split_by_the_words_of_all_languages(built):
    words = [f"Été{n}" for n in range(12000)]
    text = "".join(f"{word}\te t e\n{word}\te t e ː\n" for word in words)
    some, others = text, "".join(f"{word.lower()}\tx\n" for word in words[::2])
    swedish = built("wikipron/swe_latn_broad", {_wikipron("swe_latn_broad"): some})
    kana = built("wikipron/jpn_kana_narrow_filtered", {_wikipron("jpn_kana_narrow_filtered"): others})
    count = {split: len(set(swedish[f"{split}.letters"])) for split in corpora.SPLITS}
    assert count == {"train": 6000, "val": 50, "test": 500}
    assert swedish["val.phones"][:2] == ["e t e", "e t e ː"]
    letter = swedish["train.letters"][0]
    assert letter.startswith("e \u0301 t e \u0301 ")  # lower case, NFD
    for split in ("val", "test"):
        held = set(swedish[f"{split}.letters"]) | set(kana[f"{split}.letters"])
        assert not held & (set(swedish["train.letters"]) | set(kana["train.letters"]))


def test_a_pattern_joins_the_named_corpora_that_it_matches(monkeypatch):
    monkeypatch.setattr(named_corpora, "read", lambda name, *_: ("a", "b", {"train": ([name], [name])}))
    assert corpora.load("g2p/[ai]*", tags="corpus").splits["train"][0] == [
        f"<2{name}> g2p/{name}" for name in ("arm_e", "ady", "ice", "ita")
    ]
    assert corpora.public_name("g2p/[ai]*") == "g2p/[ai]*"
    assert [origin.name for origin in named_corpora.origins("wikipron/*")] == ["wikipron"]


@pytest.mark.skipif(not DATA, reason="needs KERAS_ATTN_DATA, a folder with the real corpora")
@pytest.mark.parametrize("language", ["kor_hang_narrow_filtered", "vot_latn_broad"])
def test_the_lists_of_wikipron_have_the_published_hashes(built, language):
    path = Path(DATA, "data", "wikipron", f"{language}.tsv.xz")
    name = f"wikipron/{language}"
    files = built(name, {_wikipron(language): lzma.decompress(path.read_bytes())})
    assert {file: named_corpora._digest(lines) for file, lines in files.items()} == named_corpora.SHA256[name]


@pytest.mark.skipif(not DATA, reason="needs KERAS_ATTN_DATA, a folder with the real corpora")
@pytest.mark.parametrize("name", KINDS)
def test_the_real_corpora_have_the_published_hashes_and_sizes(name):
    if named_corpora.find(name, DATA) is None:
        pytest.skip(f"needs {name} in KERAS_ATTN_DATA")
    corpus = corpora.load(name, data=DATA)
    assert (corpus.source, corpus.target) == named_corpora.SOURCES[name].direction
    sizes = [len(corpus.splits[split][0]) for split in corpora.SPLITS]
    amounts = {"high": 33344, "medium": 8000, "low": 800}
    for amount, languages in named_corpora.G2P_LANGUAGES.items():
        if name.removeprefix("g2p/") in languages:
            words = amounts[amount]
            assert sizes == [words, words // 8, words // 8]
    assert min(sizes) >= 100
