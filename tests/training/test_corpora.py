"""Corpora: folders, names, downloads (from `file://` copies, without the network), hashes and refusals."""

import gzip
import hashlib
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

pytestmark = pytest.mark.once

DATA = os.environ.get("KERAS_ATTN_DATA")
FILES = {
    "train.de": "ein Haus\nzwei Häuser\ndrei\n",
    "train.en": "a house\ntwo houses\nthree\n",
    "val.de": "vier\n",
    "val.en": "four\n",
    "test.de": "fünf\nsechs\n",
    "test.en": "five\nsix\n",
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Keeps the real cache and the real data out of sight; yields the cache of this test."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KERAS_ATTN_DATA", raising=False)
    return tmp_path / "home" / "keras_attn"


def write(folder: Path, files: dict[str, str], zipped: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        data = text.encode("utf-8")
        (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(data) if zipped else data)
    return folder


def hashes(files: dict[str, str]) -> dict[str, str]:
    return {name: hashlib.sha256(text.encode("utf-8")).hexdigest() for name, text in files.items()}


def hashes_of_lines(texts: dict[str, list[str]]) -> dict[str, str]:
    return hashes({name: "\n".join([*lines, ""]) for name, lines in texts.items()})


@pytest.mark.parametrize("zipped", [False, True])
def test_a_folder(tmp_path, zipped) -> None:
    folder = write(tmp_path / "mine", FILES | {"README": "no text", "SOURCE": "neither"}, zipped)
    corpus = corpora.load(folder, "de", "en")
    assert (corpus.name, corpus.source, corpus.target) == ("mine", "de", "en")
    assert corpus.splits["train"] == (["ein Haus", "zwei Häuser", "drei"], ["a house", "two houses", "three"])
    assert {name: len(sides[0]) for name, sides in corpus.splits.items()} == {"train": 3, "val": 1, "test": 2}
    assert corpora.load(str(folder), "en", "de").splits["val"] == (["four"], ["vier"])


def test_a_folder_without_a_test_split(tmp_path) -> None:
    folder = write(tmp_path, {name: text for name, text in FILES.items() if not name.startswith("test")})
    assert set(corpora.load(folder, "de", "en").splits) == {"train", "val"}


@pytest.mark.parametrize(
    ("changed", "source", "target", "sentence"),
    [
        ({}, "de", "fr", r"Expected a language of .* \(de, en\)\. Received: 'fr'"),
        ({}, "de", None, r"Expected --source and --target, two languages of .*bad \(de, en\)\. Received: --source de$"),
        ({}, None, "en", r"Expected --source and --target, .*\. Received: --target en$"),
        ({}, None, None, r"Expected --source and --target, .*\. Received: neither$"),
        ({}, "de", "de", r"Expected two languages of .* \(de, en\)\. Received: 'de' twice"),
        ({"val.en": "four\nfive\n"}, "de", "en", r"(?i)received:? 1 and 2"),
        ({"train.en": ""}, "de", "en", r"empty"),
    ],
)
def test_a_folder_refused(tmp_path, changed, source, target, sentence) -> None:
    folder = write(tmp_path / "bad", FILES | changed)
    with pytest.raises(ValueError, match=sentence):
        corpora.load(folder, source, target)


def test_a_folder_with_invalid_utf8_names_file_and_line(tmp_path) -> None:
    folder = write(tmp_path / "bad", FILES)
    (folder / "train.en").write_bytes(b"a\nb\xff\nc\n")
    with pytest.raises(ValueError, match=r"train\.en.*line 2"):
        corpora.load(folder, "de", "en")


def test_unknown_names_list_the_valid_ones(tmp_path) -> None:
    sentence = r"Expected a corpus \(phrases, multi30k, .*cmudict\), a folder of .* files, .*\. Received: 'multi'"
    with pytest.raises(ValueError, match=sentence):
        corpora.load("multi")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ValueError, match=r"Expected train\.<language>.* Received: an empty folder"):
        corpora.load(tmp_path / "nothing", "de", "en")
    with pytest.raises(FileNotFoundError, match=r"Expected the data folder to exist\. Received: '.*absent'"):
        corpora.load("multi30k", data=tmp_path / "absent")


def test_corpora_are_joined_split_by_split(tmp_path, monkeypatch) -> None:
    first = write(tmp_path / "first", FILES)
    second = write(tmp_path / "second", {"train.de": "sieben\n", "train.en": "seven\n"})
    joined = corpora.load(f"{first}+{second}+{first}", "de", "en")
    assert joined.name == "first+second+first"
    assert joined.splits["train"][0] == ["ein Haus", "zwei Häuser", "drei", "sieben", "ein Haus", "zwei Häuser", "drei"]
    assert joined.splits["train"][1][3] == "seven"
    assert joined.splits["test"] == (["fünf", "sechs"] * 2, ["five", "six"] * 2)
    assert corpora.public_name(f"{first}+phrases") == "first+phrases"

    monkeypatch.setattr(corpora, "_phrases", lambda: {"train": (["A."], ["B."])})
    english = write(tmp_path / "english", {"train.en": "a\n", "train.fr": "b\n"})
    assert corpora.load(f"phrases+{english}", "en", "fr").splits == {"train": (["A.", "a"], ["B.", "b"])}
    plus = write(tmp_path / "a+b", FILES)
    assert corpora.load(plus, "de", "en").name == corpora.public_name(plus) == "a+b"


def test_corpora_that_do_not_fit_together_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(corpora, "_phrases", lambda: {"train": (["A."], ["B."])})
    monkeypatch.setitem(named_corpora.SHA256, "multi30k-tok", hashes(FILES))
    write(tmp_path / "multi30k-tok", FILES)
    with pytest.raises(
        ValueError, match=r"or --source and --target\. Received: phrases from en to fr, multi30k-tok from de to en"
    ):
        corpora.load("phrases+multi30k-tok", data=tmp_path)
    for name, part in (("phrases+", "''"), ("phrases+nosuch", "'nosuch'")):
        with pytest.raises(ValueError, match=rf"Expected a corpus .*, a folder of .* files, .*\. Received: {part}"):
            corpora.load(name)


def test_a_table_of_pairs_is_split(tmp_path) -> None:
    path = tmp_path / "pairs.tsv.gz"
    pairs = [(f"source {n}", f"target {n}") for n in range(100)] + [("source 7", "another"), ("", "nothing")]
    path.write_bytes(gzip.compress("".join(f"{s}\t{t}\tCC-BY {n}\n" for n, (s, t) in enumerate(pairs)).encode()))
    corpus = corpora.load(path, "en")
    assert (corpus.name, corpus.source, corpus.target) == ("pairs.tsv.gz", "en", "target")
    sizes = {split: len(sides[0]) for split, sides in corpus.splits.items()}
    assert sizes["val"] == sizes["test"] == 5
    held = {line for split in ("val", "test") for line in corpus.splits[split][0]}
    assert len(held) == 10
    assert sizes["train"] == 90 + ("source 7" not in held)
    assert not held & set(corpus.splits["train"][0])
    assert {pair for sides in corpus.splits.values() for pair in zip(*sides, strict=True)} <= set(pairs[:101])
    assert corpora.load(path) == corpora.load(str(path), None, None)

    for side, name in enumerate(("text.en", "text.fr.xz")):
        text = "".join(f"{pair[side] or ' '}\n" for pair in pairs).encode()
        (tmp_path / name).write_bytes(lzma.compress(text) if name.endswith("xz") else text)
    both = corpora.load(tmp_path / "text", "en", "fr")
    assert (both.name, both.splits) == ("text", corpus.splits)
    assert corpora.public_name(tmp_path / "text") == "text"
    with pytest.raises(FileNotFoundError, match=r"Expected text\.de or text\.de\.gz in"):
        corpora.load(tmp_path / "text", "en", "de")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc\n", r"Expected 'source, tab, target' in line 2 of .*pairs\.tsv\. Received: 'c'"),
        ("a\tb\na\tc\nb\tc\n", r"3 different source lines or more, .*pairs\.tsv\. Received: 2"),
        ("", "an empty file"),
    ],
)
def test_a_table_that_is_none_is_refused(text, message, tmp_path) -> None:
    (tmp_path / "pairs.tsv").write_text(text)
    with pytest.raises(ValueError, match=message):
        corpora.load(tmp_path / "pairs.tsv")


def test_phrases_has_one_direction() -> None:
    with pytest.raises(ValueError, match=r"Expected a language of phrases \(en, fr\)\. Received: 'de'"):
        corpora.load("phrases", "de", "en")
    with pytest.raises(ValueError, match=r"Expected phrases from en to fr\. Received: fr to en"):
        corpora.load("phrases", "fr", "en")


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
    texts = FILES | {f"{split}.fr": "un\n" for split in upstream}
    names = {name: ending.format(upstream[name.split(".")[0]], name.split(".")[1]) for name in texts}
    return {f"{MULTI30K}/{names[name]}": pack(text.encode("utf-8")) for name, text in texts.items()}


def test_multi30k_is_downloaded_once_and_checked(tmp_path, monkeypatch, own_cache) -> None:
    texts = FILES | {f"{split}.fr": "un\n" for split in ("train", "val", "test")}
    pack = lambda data: gzip.compress(data, mtime=0)  # noqa: E731
    serve(tmp_path, monkeypatch, upstream_multi30k("raw/{}.{}.gz", pack))
    monkeypatch.setitem(named_corpora.SHA256, "multi30k", hashes(texts))
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


def test_a_wrong_split_is_refused_and_deleted(tmp_path, monkeypatch, own_cache) -> None:
    commit = "cmusphinx/cmudict/0f8072f814306c5ee4fbf992ed853601b12c01f9"
    serve(tmp_path, monkeypatch, {f"{commit}/cmudict.dict": b"a AH0\na(2) EY1\nb B IY1\n"})
    with pytest.raises(ValueError, match=r"corpus cmudict\. Its train\.letters has the SHA-256"):
        corpora.load("cmudict")
    assert not list(own_cache.rglob("*.dict"))


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
    texts = FILES | {f"{split}.fr": "un\n" for split in ("train", "val", "test")}
    serve(tmp_path, monkeypatch, upstream_multi30k("tok/{}.lc.norm.tok.{}", bytes))
    monkeypatch.setitem(named_corpora.SHA256, "multi30k-tok", hashes(texts))
    corpora.load("multi30k-tok")
    assert sorted(path.name for path in own_cache.iterdir()) == [f".multi30k-{os.getpid()}", "multi30k-tok"]


@pytest.mark.parametrize("damage", ["truncated", "missing", "invalid", "empty"])
def test_a_damaged_cache_is_deleted(tmp_path, monkeypatch, own_cache, damage) -> None:
    texts = FILES | {f"{split}.fr": "un\n" for split in ("train", "val", "test")}
    serve(tmp_path, monkeypatch, upstream_multi30k("tok/{}.lc.norm.tok.{}", bytes))
    monkeypatch.setitem(named_corpora.SHA256, "multi30k-tok", hashes(texts))
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
    texts = FILES | {f"{split}.fr": "un\n" for split in ("train", "val", "test")}
    serve(tmp_path, monkeypatch, upstream_multi30k("tok/{}.lc.norm.tok.{}", bytes))
    monkeypatch.setitem(named_corpora.SHA256, "multi30k-tok", hashes(texts))
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


def test_multi30k_tok_is_taken_as_it_is(tmp_path, monkeypatch) -> None:
    files = built(tmp_path, monkeypatch, "multi30k-tok", upstream_multi30k("tok/{}.lc.norm.tok.{}", bytes))
    assert files["test.de"] == ["fünf", "sechs"]
    assert len(files) == 9


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
