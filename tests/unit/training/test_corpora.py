"""Corpora: folders, tables, two files, several joined, the embedded one, and refusals."""

import gzip
import hashlib
import json
import lzma
from pathlib import Path

import pytest

from keras_attn.training import corpora, tables
from recipes import named_corpora

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


def test_a_folder(tmp_path) -> None:
    folder = write(tmp_path / "mine", FILES | {"README": "no text", "SOURCE": "neither"}, zipped=True)
    corpus = corpora.load(folder, "de", "en")
    assert (corpus.name, corpus.source, corpus.target) == ("mine", "de", "en")
    assert corpus.splits["train"] == (["ein Haus", "zwei Häuser", "drei"], ["a house", "two houses", "three"])
    assert {name: len(sides[0]) for name, sides in corpus.splits.items()} == {"train": 3, "val": 1, "test": 2}
    assert corpora.load(str(folder), "en", "de").splits["val"] == (["four"], ["vier"])


@pytest.mark.parametrize(
    ("source", "target", "sentence"),
    [
        ("de", "fr", r"Expected a language of .* \(de, en\)\. Received: 'fr'"),
        ("de", None, r"Expected --source and --target, two languages of .*bad \(de, en\)\. Received: --source de$"),
        (None, "en", r"Expected --source and --target, .*\. Received: --target en$"),
        (None, None, r"Expected --source and --target, .*\. Received: neither$"),
        ("de", "de", r"Expected two languages of .* \(de, en\)\. Received: 'de' twice"),
    ],
)
def test_languages_that_a_folder_has_not_are_refused(tmp_path, source, target, sentence) -> None:
    folder = write(tmp_path / "bad", FILES)
    with pytest.raises(ValueError, match=sentence):
        corpora.load(folder, source, target)


def test_unknown_names_and_missing_folders_are_refused(tmp_path) -> None:
    sentence = r"Expected a corpus \(phrases, .*cmudict-stress\), a folder of .* files, .*\. Received: 'multi'"
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
    (tmp_path / "few.tsv").write_text("a\tb\na\tc\nb\tc\n\n")
    with pytest.raises(ValueError, match=r"3 different source lines or more, .*few\.tsv\. Received: 2"):
        corpora.load(tmp_path / "few.tsv")

    for side, name in enumerate(("text.en", "text.fr.xz")):
        text = "".join(f"{pair[side] or ' '}\n" for pair in pairs).encode()
        (tmp_path / name).write_bytes(lzma.compress(text) if name.endswith("xz") else text)
    (tmp_path / "text.old.en").write_text("no part of the two files\n")
    both = corpora.load(tmp_path / "text", "en", "fr")
    assert (both.name, both.splits) == ("text", corpus.splits)
    assert corpora.public_name(tmp_path / "text") == "text"
    with pytest.raises(FileNotFoundError, match=r"Expected text\.de or text\.de\.gz in"):
        corpora.load(tmp_path / "text", "en", "de")


PAIRS = [("a b", "u, v"), ('c "d"', "w\nx"), ("e", "y"), ("f", "z")]
TABLES = {
    "id.tsv": ("id\ten\tfr\n" + "".join(f"{n}\t{s}\t{t}\n" for n, (s, t) in enumerate(PAIRS)).replace("w\nx", "w x")),
    "swapped.tsv": "".join(f"{t}\t{s}\tCC-BY\n" for s, t in PAIRS).replace("w\nx", "w x"),
    "plain.csv": 'a b,"u, v"\n"c ""d""","w\nx"\ne,y\nf,z\n',
    "header.csv": 'note,fr,en\n,"u, v",a b\n,"w\nx","c ""d"""\n,y,e\n,z,f\n',
    "flat.jsonl": "\n".join(json.dumps({"en": s, "fr": t, "n": 1}) for s, t in PAIRS),
    "nested.jsonl": "\n".join(json.dumps({"translation": {"en": s, "fr": t}}) for s, t in PAIRS) + "\n\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_as_people_have_them(tmp_path, name) -> None:
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(TABLES[name].encode("utf-8-sig")))
    columns = ("2", "1") if name == "swapped.tsv" else ("en", "fr")
    table = tables.read_table(tmp_path / f"{name}.gz", *columns)
    assert list(zip(table.sources, table.targets, strict=True)) == [(s, t.replace("\n", " ")) for s, t in PAIRS]
    assert table.columns == (("1", "2") if name == "plain.csv" else columns)


@pytest.mark.parametrize("text", ["English,FRENCH\n\na,b\n\n", "\nEnglish\tFRENCH\na\tb\n\n"])
def test_a_header_has_names_in_either_case_and_blank_lines_are_skipped(tmp_path, text) -> None:
    path = tmp_path / ("a.csv" if "," in text else "a.tsv")
    path.write_text(text)
    assert tables.read_table(path, "french", "english") == (["b"], ["a"], ("french", "english"))
    path.write_text(text.replace("FRENCH", "Francais"))
    assert tables.read_table(path, "french", "english").columns == ("1", "2"), "no header"
    for name in ("blank.csv", "blank.tsv", "blank.jsonl"):
        (tmp_path / name).write_text("\n \n")
        with pytest.raises(ValueError, match=r"Expected pairs of text in .*blank\.\w+\. Received: none"):
            tables.read_table(tmp_path / name)


def test_what_is_printed_shows_a_header_that_was_read_as_a_pair(tmp_path) -> None:
    rows = [f"{n}\tsource {n}\ttarget {n}\n" for n in range(30)]
    (tmp_path / "a.tsv").write_text("id\tenglish\tfrench\n" + "".join(rows))
    numbered = corpora.describe(corpora.load(tmp_path / "a.tsv", "2", "3"))
    assert numbered.startswith("a.tsv (columns 2 and 3, the first pair: english | french, val and test are held out")
    named = f"{tmp_path / 'a.tsv'}+{tmp_path / 'a.tsv'}"
    joined = corpora.describe(corpora.load(named, "English", "french")).splitlines()[0]
    assert joined.count("a.tsv: columns English and french, the first pair: source 0 | target 0") == 2


def test_pairs_of_val_and_test_that_are_trained_on_are_noted(tmp_path) -> None:
    files = {"val.de": "vier\ndrei\n", "val.en": "four\nfour\n", "test.de": "x\ndrei\n", "test.en": "y\nthree\n"}
    folder = write(tmp_path / "own", FILES | files)
    notes = corpora.describe(corpora.load(folder, "de", "en")).splitlines()[1:]
    assert notes == ["Note: 1 of 2 test pairs are training pairs; the first is pair 2: drei | three"]
    write(folder, {"train.more.de": "vier\n", "train.more.en": "four\n"})
    assert "own (train without train.more.de), de to en" in corpora.describe(corpora.load(folder, "de", "en"))
    for language in ("de", "en"):
        (folder / f"train.{language}").rename(folder / f"train.all.{language}")
    lines = corpora.describe(corpora.load(folder, "de", "en")).splitlines()
    assert lines[0].startswith("own (train of train.all.de, train.more.de), de to en, pairs: train 4")
    assert lines[1] == "Note: 1 of 2 val pairs are training pairs; the first is pair 1: vier | four"
    assert len(corpora.describe(corpora.load(folder, "de", "en", stream=True)).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "text", "columns", "sentence"),
    [
        ("a.csv", "a;b\n", (), r"Expected 'source, comma, target' in line 1 .*Received: 'a;b', which has semicolons$"),
        ("a.csv", "a,b\nc\n", (), r"Expected 'source, comma, target' in line 2 .*Received: 'c'$"),
        ("a.tsv", "a\tb\nc\n", (), r"Expected 'source, tab, target' in line 2 of .*a\.tsv\. Received: 'c'"),
        ("a.tsv", "a\tb\tc\n", ("1", "9"), r"Expected column 9 in line 1 of .*Received: 3 columns, 'a b c'$"),
        ("a.jsonl", '{"en": "a", "fr": "b"}', ("en",), r" \(en, fr\)\. Received: --source en$"),
        ("a.tsv", "source\tfr\na\tb\n", (), r"of .*a\.tsv \(source, fr\)\. Received: neither$"),
        ("a.jsonl", '[\n{"en": "a"}\n]', (), r"Expected one object on each line of .*Received in line 1: an array$"),
        ("a.tsv", "english\tfr\na\tb\n", ("englis", "fr"), r"\(english, fr\)\..*'englis' \(did you mean 'english'\?\)"),
        ("a.csv", 'a,"b\n', (), r"Expected .*a\.csv to be CSV\. Received in line 1: "),
        ("a.jsonl", "{", (), r"Expected an object of JSON in line 1 of .*a\.jsonl"),
        ("a.jsonl", '{"en": "a"}', ("en", "fr"), r"to name two columns of line 1 of .*Received: 'fr'"),
        ("a.jsonl", '{"en": "a", "fr": 3}', ("en", "fr"), r"Expected text in en and fr of line 1 of .*\['a', 3\]"),
        ("a.tsv", "a\tb\n", ("0", "2"), r"to be two numbers of columns, from 1\. Received: '0' and '2'"),
        ("a.tsv", "en\tfr\n", ("en", "2"), r"to be two numbers of columns, from 1\. Received: 'en' and '2'"),
    ],
)
def test_refusals_of_tables_name_what_was_given(tmp_path, name, text, columns, sentence) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=sentence):
        tables.read_table(tmp_path / name, *columns)


def test_a_table_comes_in_parts_or_alone(tmp_path) -> None:
    others = {f"{split}.tsv": "en\tfr\na\tb\n" for split in ("val", "test")}
    parts = {"train.1.tsv": "en\tfr\na\tb\n", "train.2.csv": "en,fr\nc,d\n"}
    folder = write(tmp_path / "own", others | parts)
    assert corpora.load(folder, "en", "fr").splits["train"] == (["a", "c"], ["b", "d"])
    write(folder, {"train.3.tsv": "e\tf\n"})
    with pytest.raises(ValueError, match=r"parts of the same columns\. Received: columns en and fr in train\.1\.tsv"):
        corpora.load(folder, "en", "fr")
    write(folder, {"train.tsv": "en\tfr\na\tb\n"})
    with pytest.raises(ValueError, match=r"or its parts alone\. Received: train\.1\.tsv, .*train\.tsv$"):
        corpora.load(folder, "en", "fr")


def test_each_split_of_a_folder_is_text_or_a_table(tmp_path) -> None:
    text = {name: lines for name, lines in FILES.items() if name.startswith("train")}
    folder = write(tmp_path / "own", text | {f"{split}.tsv": f"{split}\tb\n" for split in ("dev", "test")})
    corpus = corpora.load(folder, "de", "en")
    held_out = {"val": (["dev"], ["b"]), "test": (["test"], ["b"])}
    assert (
        corpus.splits == {"train": (["ein Haus", "zwei Häuser", "drei"], ["a house", "two houses", "three"])} | held_out
    )
    assert "own (val of columns 1 and 2, the first pair: dev | b), de to en, pairs: train 3" in corpora.describe(corpus)
    with pytest.raises(ValueError, match=r"Expected --source and --target, two languages of .*own \(de, en\)"):
        corpora.load(folder)
    write(folder, {"train.tsv": "de\ten\na\tb\n"}, zipped=True)
    for languages, received in ((("de", "fr"), "train.de, train.tsv"), ((None, None), "train.de, train.en, train.tsv")):
        with pytest.raises(ValueError, match=f"text files or a table of train in .*own. Received: {received}$"):
            corpora.load(folder, *languages)
    for language in ("de", "en"):
        (folder / f"train.{language}").rename(folder / f"train.{language}.log")
    assert corpora.load(folder, "de", "en").splits == {"train": (["a"], ["b"])} | held_out


def test_a_folder_of_tables_with_other_names_of_splits(tmp_path) -> None:
    folder = write(
        tmp_path / "own", {f"{split}.tsv": "en\tfr\na\tb\n" for split in ("train", "dev", "test")}, zipped=True
    )
    corpus = corpora.load(folder, "fr", "en")
    expected = "own (columns fr and en, the first pair: b | a), fr to en, pairs: train 1, val 1, test 1"
    assert corpora.describe(corpus).splitlines()[0] == expected
    assert (corpus.source, corpus.target, corpus.splits) == ("fr", "en", dict.fromkeys(corpora.SPLITS, (["b"], ["a"])))
    moses = write(tmp_path / "moses", {name.replace("val", "valid"): text for name, text in FILES.items()})
    assert corpora.load(moses, "de", "en").splits["val"] == (["vier"], ["four"])
    write(moses, {"dev.de": "acht\n", "dev.en": "eight\n"})
    with pytest.raises(ValueError, match=r"Expected one validation split in .*moses\. Received: dev, valid"):
        corpora.load(moses, "de", "en")


def test_the_embedded_corpus_is_that_of_the_reports(monkeypatch, tmp_path) -> None:
    """The file's digest is checked whenever it is read."""
    with pytest.raises(ValueError, match=r"Expected phrases from en to fr\. Received: fr to en"):
        corpora.load("phrases", "fr", "en")
    splits = corpora.load("phrases").splits
    sizes = {split: [len(side) for side in sides] for split, sides in splits.items()}
    assert sizes == {"train": [20000] * 2, "val": [1000] * 2, "test": [1000] * 2, "lengths": [1200] * 2}
    (tmp_path / "phrases").write_bytes(corpora.PHRASES.read_bytes()[:-1])
    monkeypatch.setattr(corpora, "PHRASES", tmp_path / "phrases")
    with pytest.raises(ValueError, match=r"Expected .*phrases to have the SHA-256 .*\. Received: "):
        corpora.load("phrases")


def test_pairs_of_at_most_so_many_words_on_each_side() -> None:
    lines = (["a b", "a b c", "a", "a"], ["x y", "x", "x y z", "x"], [1, 2, 3, 4])
    assert [*zip(*corpora.pairs_up_to(2, lines), strict=True)] == [("a b", "x y", 1), ("a", "x", 4)]
    assert corpora.pairs_up_to(None, lines) is lines
    with pytest.raises(ValueError, match=r"at most 1 words a side\. There are none"):
        corpora.pairs_up_to(1, (["a b"], ["x"]))
