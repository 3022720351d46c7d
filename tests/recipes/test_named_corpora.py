"""The named corpora: downloads (from `file://` copies, without the network), hashes, splits and refusals."""

import gzip
import io
import json
import os
import random
import zipfile
from pathlib import Path

import pytest

from keras_attn.training import corpora
from recipes import named_corpora
from tests.training.test_corpora import DATA, FILES, hashes, write

pytestmark = pytest.mark.once

ALL = FILES | {f"{split}.fr": "un\n" for split in ("train", "val", "test")}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Keeps the real cache and the real data out of sight; returns the cache of this test."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KERAS_ATTN_DATA", raising=False)
    return tmp_path / "home" / "keras_attn"


@pytest.mark.parametrize("below", ["data/multi30k-tok", "multi30k-tok"])
def test_a_named_corpus_in_the_data_folder(tmp_path, monkeypatch, below) -> None:
    monkeypatch.setitem(named_corpora.SHA256, "multi30k-tok", hashes(FILES))
    write(tmp_path / below, FILES, zipped=True)
    assert corpora.load("multi30k-tok", data=tmp_path).splits["test"] == (["fünf", "sechs"], ["five", "six"])
    monkeypatch.setenv("KERAS_ATTN_DATA", str(tmp_path))
    assert corpora.load("multi30k-tok", "en", "de").source == "en"
    sentence = r"Expected a language of multi30k-tok \(de, en, fr\)\. Received: 'es'"
    with pytest.raises(ValueError, match=sentence):
        corpora.load("multi30k-tok", "es", "en")


def test_a_changed_copy_is_refused_but_not_deleted(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(named_corpora.SHA256, "multi30k-tok", hashes(FILES))
    folder = write(tmp_path / "multi30k-tok", FILES | {"val.en": "fore\n"})
    sentence = r"Expected val\.en of multi30k-tok .* Give the folder instead of the name"
    with pytest.raises(ValueError, match=sentence):
        corpora.load("multi30k-tok", data=tmp_path)
    assert corpora.load(folder, "de", "en").splits["val"] == (["vier"], ["fore"])


# --- downloads


def serve(tmp_path: Path, monkeypatch, files: dict[str, bytes]) -> None:
    """Stand-ins for the upstream repositories, `owner/name/commit/path` below a `file://` base."""
    root = tmp_path / "upstream"
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    monkeypatch.setattr(named_corpora, "BASE", root.as_uri())


MULTI30K = "multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1"


def upstream_multi30k(ending: str, pack) -> dict[str, bytes]:
    upstream = {"train": "train", "val": "val", "test": "test_2016_flickr"}
    names = {name: ending.format(upstream[name.split(".")[0]], name.split(".")[1]) for name in ALL}
    return {f"{MULTI30K}/{names[name]}": pack(text.encode("utf-8")) for name, text in ALL.items()}


def test_multi30k_is_downloaded_once_and_checked(tmp_path, monkeypatch, own_cache) -> None:
    pack = lambda data: gzip.compress(data, mtime=0)  # noqa: E731
    serve(tmp_path, monkeypatch, upstream_multi30k("raw/{}.{}.gz", pack))
    monkeypatch.setitem(named_corpora.SHA256, "multi30k", hashes(ALL))
    corpus = corpora.load("multi30k")
    assert corpus.splits["test"] == (["fünf", "sechs"], ["five", "six"])
    assert sorted(path.name for path in own_cache.iterdir()) == ["multi30k"]  # no downloads left
    monkeypatch.setattr(named_corpora, "BASE", "file:///nowhere")
    assert corpora.load("multi30k") == corpus  # from the cache

    with gzip.open(own_cache / "multi30k" / "val.en.gz", "wb") as file:
        file.write(b"tampered\n")
    with pytest.raises(ValueError, match=r"Expected val\.en of multi30k .*folder was deleted; run again"):
        corpora.load("multi30k")
    assert not (own_cache / "multi30k").exists()


def test_a_wrong_download_is_refused_and_deleted(tmp_path, monkeypatch, own_cache) -> None:
    serve(tmp_path, monkeypatch, upstream_multi30k("raw/{}.{}.gz", gzip.compress))
    with pytest.raises(ValueError, match=r"Expected to download the corpus multi30k\. .*SHA-256.*--data DATA"):
        corpora.load("multi30k")
    assert not list(own_cache.rglob("*.gz"))


def test_no_network_is_a_sentence(monkeypatch, own_cache) -> None:
    monkeypatch.setattr(named_corpora, "BASE", "file:///nowhere")
    for name in named_corpora.SOURCES:
        sentence = rf"the corpus {name}\. Could not download .*folder DATA/{name}"
        with pytest.raises(FileNotFoundError, match=sentence):
            corpora.load(name)
    assert not [path for path in own_cache.rglob("*") if path.is_file()]


TATOEBA = "genimind/seq2seq/4f3f8eb0adde54fcc8b89394336b002e7961244c/fra-eng.zip"


def zipped(name: str, text: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, text)
    return file.getvalue()


PAGE = b"<html><body>Please log in to use this network.</body></html>"
CONTENTS = {
    "a page": PAGE,
    "nothing": b"",
    "half a zip file": zipped("fra.txt", b"Go.\tVa !\n" * 999)[:-99],
    "a damaged zip file": zipped("fra.txt", b"Go.\tVa !\n" * 999).replace(b"\x04", b"\x05"),
    "another zip file": zipped("deu.txt", b"Go.\tGeh !\n"),
    "a bomb": zipped("fra.txt", bytes(70_000_000)),
    "no UTF-8": zipped("fra.txt", b"\xff\xff"),
    "one column": zipped("fra.txt", b"Go.\n"),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_what_is_no_corpus_is_not_kept(tmp_path, monkeypatch, own_cache, content) -> None:
    """As when a portal answers with its page: the next attempt would take it for the corpus again."""
    serve(tmp_path, monkeypatch, {TATOEBA: CONTENTS[content]})
    with pytest.raises(ValueError, match=r"Expected to download the corpus tatoeba-en-fr\. .* deleted.*--data DATA"):
        corpora.load("tatoeba-en-fr")
    assert not own_cache.exists() or not list(own_cache.iterdir())


@pytest.mark.parametrize("name", [name for name in named_corpora.SOURCES if name != "tatoeba-en-fr"])
def test_a_page_is_no_corpus(tmp_path, monkeypatch, own_cache, name) -> None:
    def portal(origin, path, **_):
        path.write_bytes(PAGE)
        return path

    monkeypatch.setattr(named_corpora.downloads, "download", portal)
    with pytest.raises(ValueError, match=rf"Expected to download the corpus {name}\. .* deleted.*--data DATA"):
        corpora.load(name)
    assert not own_cache.exists() or not list(own_cache.iterdir())


def test_what_a_killed_download_left_is_removed(tmp_path, monkeypatch, own_cache) -> None:
    (own_cache / f".tmp-{'a' * 32}" / "downloads").mkdir(parents=True)
    (own_cache / f".multi30k-{os.getpid()}").mkdir()  # of an earlier version
    serve(tmp_path, monkeypatch, upstream_multi30k("tok/{}.lc.norm.tok.{}", bytes))
    monkeypatch.setitem(named_corpora.SHA256, "multi30k-tok", hashes(ALL))
    corpora.load("multi30k-tok")
    assert sorted(path.name for path in own_cache.iterdir()) == [f".multi30k-{os.getpid()}", "multi30k-tok"]


@pytest.mark.parametrize("damage", ["truncated", "missing", "invalid", "empty"])
def test_a_damaged_cache_is_deleted(tmp_path, monkeypatch, own_cache, damage) -> None:
    serve(tmp_path, monkeypatch, upstream_multi30k("tok/{}.lc.norm.tok.{}", bytes))
    monkeypatch.setitem(named_corpora.SHA256, "multi30k-tok", hashes(ALL))
    corpora.load("multi30k-tok")
    path = own_cache / "multi30k-tok" / "train.de.gz"
    if damage == "missing":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes({"truncated": whole[:-9], "invalid": gzip.compress(b"\xff"), "empty": b""}[damage])
    with pytest.raises((ValueError, FileNotFoundError), match="folder was deleted; run again"):
        corpora.load("multi30k-tok")
    assert corpora.load("multi30k-tok").splits["test"][1] == ["five", "six"]


def test_two_downloads_at_once_give_one_corpus(tmp_path, monkeypatch, own_cache) -> None:
    serve(tmp_path, monkeypatch, upstream_multi30k("tok/{}.lc.norm.tok.{}", bytes))
    monkeypatch.setitem(named_corpora.SHA256, "multi30k-tok", hashes(ALL))
    build, nested = named_corpora._built, []

    def both(*arguments):
        if not nested:
            nested.append(None)
            nested.append(corpora.load("multi30k-tok"))
        return build(*arguments)

    monkeypatch.setattr(named_corpora, "_built", both)
    assert corpora.load("multi30k-tok") == nested[1]
    assert [path.name for path in own_cache.iterdir()] == ["multi30k-tok"]


def built(tmp_path, monkeypatch, name: str, files: dict[str, bytes]) -> dict[str, list[str]]:
    serve(tmp_path, monkeypatch, files)
    return named_corpora.SOURCES[name].build(lambda origin, sha256=None: Path(origin.removeprefix("file://")))


def test_news_is_joined_in_the_order_of_the_years(tmp_path, monkeypatch) -> None:
    root = "Helsinki-NLP/OPUS-MT-testsets/ac0f19c0be3cb4e0d9450fcb2d7a9847c4bdd180/testsets/eng-fra"
    years = ["news-test2008", "newssyscomb2009", *(f"newstest{year}" for year in range(2009, 2015))]
    pairs = [(year, language) for year in years for language in ("eng", "fra")]
    texts = {f"{root}/{year}.{language}": f"{year} {language}\n".encode() for year, language in pairs}
    files = built(tmp_path, monkeypatch, "news-en-fr", texts)
    assert files["train.en"] == [f"{year} eng" for year in years[:6]]
    assert (files["val.fr"], files["test.en"]) == (["newstest2013 fra"], ["newstest2014 eng"])


def test_bible_is_joined_by_verse_and_split_by_chapter(tmp_path, monkeypatch) -> None:
    english = "aruljohn/Bible-kjv/a9aa4e55afbb3e095f57e4b14cd1f22c5ee8d7c9"
    spanish = "thiagobodruk/bible/13225a15fa5e3e3043495b0c82df56c3fdfeb7f4/json/es_rvr.json"

    def chapters(book: str, count: int) -> dict:
        verses = [[{str(n): f"{book} {chapter} {n} "} for n in (1, 2)] for chapter in range(count)]
        return {"chapters": [{"verses": chapter} for chapter in verses]}

    books = [
        {"chapters": [[f"(1-1) g {n} 1", f"g {n} 2"] for n in range(5)]},
        {"chapters": [[f"(así) s {n} 1", f"s {n} 2"] for n in range(5)]},
    ]
    texts = {
        f"{english}/Books.json": json.dumps(["Genesis", "1 Samuel"]).encode(),
        f"{english}/Genesis.json": json.dumps(chapters("G", 5)).encode(),
        f"{english}/1Samuel.json": json.dumps(chapters("S", 5)).encode(),
        spanish: b"\xef\xbb\xbf" + json.dumps(books, ensure_ascii=False).encode("utf-8"),
    }
    files = built(tmp_path, monkeypatch, "bible-en-es", texts)
    assert (files["val.en"], files["val.es"]) == (["G 3 1", "G 3 2"], ["g 3 1", "g 3 2"])
    assert (files["test.en"], files["test.es"]) == (["S 2 1", "S 2 2"], ["(así) s 2 1", "s 2 2"])
    assert len(files["train.en"]) == len(files["train.es"]) == 16


def test_tatoeba_holds_out_sentences_with_their_first_translation(tmp_path, monkeypatch) -> None:
    commit = "genimind/seq2seq/4f3f8eb0adde54fcc8b89394336b002e7961244c"
    sentences = [f"s{n:04}" for n in range(4100)]
    text = "".join(f"{sentence}\t{sentence} un\n{sentence}\t{sentence} deux\n" for sentence in sentences)
    path = tmp_path / "fra-eng.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fra.txt", text)
    files = built(tmp_path, monkeypatch, "tatoeba-en-fr", {f"{commit}/fra-eng.zip": path.read_bytes()})
    random.Random(17).shuffle(shuffled := list(sentences))
    assert files["test.en"] == sorted(shuffled[:2000])
    assert files["val.fr"] == [f"{sentence} un" for sentence in sorted(shuffled[2000:4000])]
    assert files["train.fr"][:2] == [f"{min(shuffled[4000:])} un", f"{min(shuffled[4000:])} deux"]
    assert len(files["train.en"]) == 200


def test_cmudict_drops_stress_comments_and_duplicates(tmp_path, monkeypatch) -> None:
    commit = "cmusphinx/cmudict/0f8072f814306c5ee4fbf992ed853601b12c01f9"
    words = ["w" + "".join(chr(97 + n // base % 17) for base in (289, 17, 1)) for n in range(2900)]
    text = "a AH0\na(2) EY1\na(3) EY2\nb B IY1 # letter\n" + "".join(f"{word} W AH0\n" for word in words)
    files = built(tmp_path, monkeypatch, "cmudict", {f"{commit}/cmudict.dict": text.encode()})
    entries = sorted(
        pair
        for split in corpora.SPLITS
        for pair in zip(files[f"{split}.letters"], files[f"{split}.phones"], strict=True)
    )
    assert entries[:4] == [("a", "AH"), ("a", "EY"), ("b", "B IY"), ("w a a a", "W AH")]
    assert len(set(files["test.letters"])) == (len(words) + 2) // 10
    assert len(set(files["val.letters"])) == 2000


G2P_WORDS = {33344: "high", 8000: "medium", 800: "low"}  # to train on


def upstream_pronunciations() -> dict[str, bytes]:
    root = "sigmorphon/2021-task1/821bcdece5a47820872215969f275004b0abe80c/data/low/wel_sw"
    texts = {"train": "cneuen gyll\tk n ə\na\ta\n", "dev": "b\tb\n", "test": "c\tk\nc\tx\n"}
    return {f"{root}_{split}.tsv": text.encode("utf-8") for split, text in texts.items()}


def test_pronunciations_are_split_into_letters_and_keep_their_blanks(tmp_path, monkeypatch) -> None:
    files = built(tmp_path, monkeypatch, "g2p/wel_sw", upstream_pronunciations())
    assert files["train.letters"] == ["c n e u e n _ g y l l", "a"]
    assert files["train.phones"] == ["k n ə", "a"]
    assert (files["val.letters"], files["test.phones"]) == (["b"], ["k", "x"])


def test_pronunciations_are_downloaded_into_a_folder_of_a_folder(tmp_path, monkeypatch, own_cache) -> None:
    texts = built(tmp_path, monkeypatch, "g2p/wel_sw", upstream_pronunciations())
    monkeypatch.setitem(
        named_corpora.SHA256, "g2p/wel_sw", hashes({name: "\n".join([*lines, ""]) for name, lines in texts.items()})
    )
    corpus = corpora.load("g2p/wel_sw")
    assert (corpus.name, corpus.source, corpus.target) == ("g2p/wel_sw", "letters", "phones")
    assert corpus.splits["test"] == (["c", "c"], ["k", "x"])
    assert sorted(path.name for path in (own_cache / "g2p").iterdir()) == ["wel_sw"]
    monkeypatch.setattr(named_corpora, "BASE", "file:///nowhere")
    assert corpora.load("g2p/wel_sw") == corpus  # from the cache


def test_syllables_of_korean_are_decomposed_by_hand(tmp_path, monkeypatch, own_cache) -> None:
    root = "sigmorphon/2021-task1/821bcdece5a47820872215969f275004b0abe80c/data/medium/kor"
    upstream = {"train": "가극\tk a̠ ɡ ɯ k̚\n", "dev": "ㄱ\tk\n", "test": "다\tt a̠\n"}
    upstream = {f"{root}_{split}.tsv": text.encode("utf-8") for split, text in upstream.items()}
    texts = built(tmp_path, monkeypatch, "g2p/kor", upstream)
    monkeypatch.setitem(
        named_corpora.SHA256, "g2p/kor", hashes({name: "\n".join([*lines, ""]) for name, lines in texts.items()})
    )
    assert corpora.load("g2p/kor").splits["train"][0] == ["가 극"]
    corpus = corpora.load("g2p/kor", "decomposed", "phones")
    assert (corpus.source, corpus.target) == ("decomposed", "phones")
    assert corpus.splits["train"] == (["\u1100 \u1161 \u1100 \u1173 \u11a8"], ["k a̠ ɡ ɯ k̚"])
    assert corpus.splits["test"] == (["\u1103 \u1161"], ["t a̠"])
    assert corpora.load("g2p/kor", "letters", "decomposed").splits["test"] == (["다"], ["\u1103 \u1161"])


# --- the real corpora, where there are any


@pytest.mark.skipif(not DATA, reason="needs KERAS_ATTN_DATA, a folder with the real corpora")
@pytest.mark.parametrize("name", list(named_corpora.SOURCES))
def test_the_real_corpora_have_the_published_hashes(name) -> None:
    corpus = corpora.load(name, data=DATA)
    assert (corpus.source, corpus.target) == named_corpora.SOURCES[name].direction
    least = {
        language: words // 10 for words, group in G2P_WORDS.items() for language in named_corpora.G2P_LANGUAGES[group]
    }
    assert all(
        len(source) == len(target) >= least.get(name.removeprefix("g2p/"), 901)
        for source, target in corpus.splits.values()
    )


@pytest.mark.skipif(not DATA, reason="needs KERAS_ATTN_DATA, a folder with the real corpora")
def test_pronunciations_have_the_splits_of_the_task() -> None:
    for words, group in G2P_WORDS.items():
        splits = corpora.load(f"g2p/{named_corpora.G2P_LANGUAGES[group][0]}", data=DATA).splits
        assert [len(splits[split][0]) for split in corpora.SPLITS] == [words, words // 8, words // 8]


@pytest.mark.skipif(not DATA, reason="needs KERAS_ATTN_DATA, a folder with the real corpora")
def test_the_seeds_of_the_splits_are_those_of_the_real_corpora() -> None:
    """What `_tatoeba` and `_cmudict` do to the sorted union of the real splits gives the real splits."""
    for name, language, seed, tests in (("tatoeba-en-fr", "en", 17, 2000), ("cmudict", "letters", 23, 12605)):
        sides = {split: set(lines[0]) for split, lines in corpora.load(name, data=DATA).splits.items()}
        lines = set.union(*sides.values())
        shuffled = sorted(lines, key=lambda line: line.replace(" ", "") if language == "letters" else line)
        random.Random(seed).shuffle(shuffled)
        assert set(shuffled[:tests]) == sides["test"]
        assert set(shuffled[tests : tests + 2000]) == sides["val"]
