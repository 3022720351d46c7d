"""The corpora that have a name: where they come from, how their splits are built, and the SHA-256 of every file.

A named corpus is looked for in a folder of the user's, else in Keras' cache, where it is downloaded and split once.
Every source is a file of a GitHub repository at a pinned commit, and `named_corpora.sha256` has the SHA-256 of each
resulting file, decompressed: training always reads the same bytes. To train on a changed copy give its folder.

`g2p/LANGUAGE` are those of the second SIGMORPHON shared task (Ashby et al. 2021), words of Wiktionary with their phones
in the task's own splits, collected by WikiPron (CC BY-SA 3.0): 33,344 words of American English to train on ("high"),
8,000 of seven languages ("medium") and 800 of eight others ("low"). Letters are NFC code points; a blank in a word is
"_". The side "decomposed" has the same letters as NFD code points, which are the consonants and vowels of Korean's
syllables: 67 of them instead of 1,089 letters.

`wikipron/LANGUAGE` are WikiPron's lists of 2,000 words and more, 85 of them by its names, such as `ara_arab_broad`;
`wikipron/*` is all (Wiktionary, CC BY-SA). Words are in lower case and NFD. A word's SHA-256 decides its split, so that
a word that is held out in one list is trained on in none; at most 6,000 words of a list are for training, 500 for the
test, 50 for validation, with all their pronunciations.

`keras_attn.training.corpora` finds this module beside the recipes, and adds the corpus of its package, `phrases`.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import textwrap
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from keras_attn import downloads, files
from keras_attn.text import read_lines, read_parallel
from keras_attn.training import corpora

BASE = "https://raw.githubusercontent.com"
G2P_LANGUAGES = {  # by the amount of training data
    "high": ("eng_us",),
    "medium": ("arm_e", "bul", "dut", "fre", "geo", "jpn_hira", "kor"),
    "low": ("ady", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "wel_sw"),
}
_LARGEST = 1 << 26  # bytes of a file in an archive
# The errors of `build` for files of another kind, such as a portal's page: no JSON, no zip file, no lines.
_NOT_THE_CORPUS = (
    *(ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)

Fetch = Callable[[str], Path]
Lines = dict[str, list[str]]
_LETTERS = ("letters", "phones")


class Origin(NamedTuple):
    """The origin of a corpus.

    Args:
        name: The corpus.
        title: What it is.
        licence: Its licence, by Hugging Face's identifier where it has one; None where none is stated, or research
            alone is allowed: then a model that was trained on it is not shipped.
        address: Where it comes from; "" for text that is nowhere else.
        note: The attribution that the licence asks for, or what else is to be known.
    """

    name: str
    title: str
    licence: str | None
    address: str
    note: str


class Source(NamedTuple):
    """A named corpus.

    Args:
        languages: The languages of its files.
        direction: The default source and target.
        build: Makes the lines of each file `<split>.<language>`. It takes a function that downloads an address and
            returns the path.
        derived: Sides that are made of another one's lines: by name, that other one and the function.
    """

    languages: tuple[str, ...]
    direction: tuple[str, str]
    build: Callable[[Fetch], Lines]
    derived: Mapping[str, tuple[str, Callable[[str], str]]] = {}


def _by_file(languages: tuple[str, str], rows: Iterable[tuple[str, str, str]]) -> Lines:
    """The lines of each file, of rows of a split and a line in either language."""
    texts: Lines = {f"{split}.{language}": [] for split in corpora.SPLITS for language in languages}
    for split, *lines in rows:
        for language, line in zip(languages, lines, strict=True):
            texts[f"{split}.{language}"].append(line)
    return texts


def _multi30k(names: str, fetch: Fetch) -> Lines:
    root = f"{BASE}/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1"
    upstream = {"train": "train", "val": "val", "test": "test_2016_flickr"}
    return {
        f"{split}.{language}": read_lines(fetch(f"{root}/{names.format(split=name, language=language)}"))
        for split, name in upstream.items()
        for language in ("de", "en", "fr")
    }


def _news(fetch: Fetch) -> Lines:
    root = f"{BASE}/Helsinki-NLP/OPUS-MT-testsets/ac0f19c0be3cb4e0d9450fcb2d7a9847c4bdd180/testsets/eng-fra"
    years = ["news-test2008", "newssyscomb2009", *(f"newstest{year}" for year in range(2009, 2013))]
    sets = {"train": years, "val": ["newstest2013"], "test": ["newstest2014"]}
    return {
        f"{split}.{language}": [line for name in sets[split] for line in read_lines(fetch(f"{root}/{name}.{upstream}"))]
        for split in corpora.SPLITS
        for language, upstream in (("en", "eng"), ("fr", "fra"))
    }


def _bible(fetch: Fetch) -> Lines:
    """Verses aligned one to one, split by chapter: index mod 15 = 7 is test, mod 30 = 3 is val."""
    english = f"{BASE}/aruljohn/Bible-kjv/a9aa4e55afbb3e095f57e4b14cd1f22c5ee8d7c9"
    spanish = f"{BASE}/thiagobodruk/bible/13225a15fa5e3e3043495b0c82df56c3fdfeb7f4/json/es_rvr.json"
    books = json.loads(fetch(f"{english}/Books.json").read_text("utf-8-sig"))
    king_james = [
        [next(iter(verse.values())) for verse in chapter["verses"]]
        for book in books
        for chapter in json.loads(fetch(f"{english}/{book.replace(' ', '')}.json").read_text("utf-8-sig"))["chapters"]
    ]
    reina_valera = [
        [re.sub(r"^\s*\(\d+-\d+\)", "", verse) for verse in chapter]
        for book in json.loads(fetch(spanish).read_text("utf-8-sig"))
        for chapter in book["chapters"]
    ]
    rows = []
    for index, chapters in enumerate(zip(king_james, reina_valera, strict=False)):
        split = "test" if index % 15 == 7 else "val" if index % 30 == 3 else "train"
        rows += [(split, *(" ".join(verse.split()) for verse in verses)) for verses in zip(*chapters, strict=False)]
    return _by_file(("en", "es"), rows)


def _tatoeba(fetch: Fetch) -> Lines:
    """2,000 English sentences for test and 2,000 for val, each with its first translation; the others, with all."""
    path = fetch(f"{BASE}/genimind/seq2seq/4f3f8eb0adde54fcc8b89394336b002e7961244c/fra-eng.zip")
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo("fra.txt").file_size > _LARGEST:
            raise ValueError(f"fra.txt has more than {_LARGEST:,} bytes")
        text = archive.read("fra.txt").decode("utf-8")
    pairs = [line.split("\t")[:2] for line in text.split("\n") if line]
    held = corpora.held_out((english for english, _ in pairs), 17, 2000, 2000)
    rows, seen = [], set()
    for english, french in pairs:
        split = held.get(english, "train")
        if split == "train" or english not in seen:
            seen.add(english)
            rows.append((split, english, french))
    return _by_file(("en", "fr"), rows)


def _cmudict(fetch: Fetch, stress: bool = False) -> Lines:
    """A tenth of the words for test, 2,000 for val; the same words with and without stress.

    Without it, its marks are dropped, and so are the pronunciations that differed only in them.
    """
    path = fetch(f"{BASE}/cmusphinx/cmudict/0f8072f814306c5ee4fbf992ed853601b12c01f9/cmudict.dict")
    entries: dict[tuple[str, str], None] = {}
    for line in read_lines(path):
        word, *phones = line.split("#")[0].split()
        pronunciation = " ".join(phones) if stress else re.sub(r"\d", "", " ".join(phones))
        entries[re.sub(r"\(\d+\)$", "", word), pronunciation] = None
    held = corpora.held_out((word for word, _ in entries), 23, len({word for word, _ in entries}) // 10, 2000)
    words = sorted(entries, key=lambda entry: entry[0])
    return _by_file(_LETTERS, [(held.get(word, "train"), " ".join(word), phones) for word, phones in words])


def _pronunciations(amount: str, language: str, fetch: Fetch) -> Lines:
    root = f"{BASE}/sigmorphon/2021-task1/821bcdece5a47820872215969f275004b0abe80c/data/{amount}"
    texts: Lines = {}
    for split, name in (("train", "train"), ("val", "dev"), ("test", "test")):
        path = fetch(f"{root}/{language}_{name}.tsv")
        words, pronunciations = zip(*(line.split("\t") for line in read_lines(path)), strict=True)
        texts[f"{split}.letters"] = [" ".join(word.replace(" ", "_")) for word in words]
        texts[f"{split}.phones"] = list(pronunciations)
    return texts


def _wikipron(name: str, fetch: Fetch) -> Lines:
    """A list, its words in the order of their SHA-256, a number from 0 to 1: below 0.05 test, below 0.06 val."""
    path = fetch(f"{BASE}/CUNY-CL/wikipron/185dfcf514fe37fe4cfddddeacff1eda3afdca55/data/scrape/tsv/{name}.tsv")
    words: dict[str, dict[str, None]] = {}
    for line in read_lines(path):
        word, phones = line.split("\t")
        words.setdefault(unicodedata.normalize("NFD", word.lower()), {})[phones] = None
    shares = {word: int(hashlib.sha256(word.encode("utf-8")).hexdigest()[:8], 16) / 16**8 for word in words}
    rows, counts = [], dict.fromkeys(corpora.SPLITS, 0)
    for word in sorted(words, key=lambda word: (shares[word], word)):
        split = "test" if shares[word] < 0.05 else "val" if shares[word] < 0.06 else "train"
        counts[split] += 1
        if counts[split] <= {"test": 500, "val": 50, "train": 6000}[split]:
            rows += [(split, " ".join(word.replace(" ", "_")), phones) for phones in words[word]]
    return _by_file(_LETTERS, rows)


def _decomposed(letters: str) -> str:
    """Letters with blanks between, as NFD code points with blanks between."""
    return " ".join(unicodedata.normalize("NFD", letters.replace(" ", "")))


def _hashes() -> dict[str, dict[str, str]]:
    """The SHA-256 of each decompressed file of each corpus."""
    found: dict[str, dict[str, str]] = {}
    for line in read_lines(Path(__file__).with_name("named_corpora.sha256")):
        sha256, path = line.split()
        corpus, _, file = path.rpartition("/")
        found.setdefault(corpus, {})[file] = sha256
    return found


SHA256 = _hashes()
SOURCES = {
    "multi30k": Source(("de", "en", "fr"), ("de", "en"), partial(_multi30k, "raw/{split}.{language}.gz")),
    "multi30k-tok": Source(("de", "en", "fr"), ("de", "en"), partial(_multi30k, "tok/{split}.lc.norm.tok.{language}")),
    "bible-en-es": Source(("en", "es"), ("en", "es"), _bible),
    "tatoeba-en-fr": Source(("en", "fr"), ("en", "fr"), _tatoeba),
    "news-en-fr": Source(("en", "fr"), ("en", "fr"), _news),
    **{
        f"g2p/{language}": Source(
            _LETTERS, _LETTERS, partial(_pronunciations, amount, language), {"decomposed": ("letters", _decomposed)}
        )
        for amount, languages in G2P_LANGUAGES.items()
        for language in languages
    },
    **{
        name: Source(_LETTERS, _LETTERS, partial(_wikipron, name.removeprefix("wikipron/")))
        for name in SHA256
        if name.startswith("wikipron/")
    },
    "cmudict": Source(_LETTERS, _LETTERS, _cmudict),
    "cmudict-stress": Source(_LETTERS, _LETTERS, partial(_cmudict, stress=True)),
}


_ORIGINS = {
    origin.name: origin
    for origin in (
        Origin(
            "phrases",
            "English and French sentences that a grammar of this project generated",
            "apache-2.0",
            "",
            "They are made of a few hundred words: a model of them translates nothing else.",
        ),
        Origin(
            "bible-en-es",
            "The King James Version and the Reina-Valera of 1909",
            "public-domain",
            "https://github.com/aruljohn/Bible-kjv and https://github.com/thiagobodruk/bible",
            "The English text is under Crown copyright in the United Kingdom.",
        ),
        Origin(
            "tatoeba-en-fr",
            "Sentences of Tatoeba with their translations, selected by the Tab-delimited Bilingual Sentence Pairs",
            "cc-by-2.0",
            "https://github.com/genimind/seq2seq",
            "Attribution: https://tatoeba.org and https://www.manythings.org/anki.",
        ),
        *(
            Origin(
                name,
                "The CMU Pronouncing Dictionary",
                "bsd-2-clause",
                "https://github.com/cmusphinx/cmudict",
                "Copyright (C) 1993-2015 Carnegie Mellon University.",
            )
            for name in ("cmudict", "cmudict-stress")
        ),
        Origin(
            "g2p",
            "Words and pronunciations of Wiktionary, collected with WikiPron for the SIGMORPHON shared task of 2021",
            "cc-by-sa-3.0",
            "https://github.com/sigmorphon/2021-task1",
            "Attribution: https://www.wiktionary.org.",
        ),
        Origin(
            "wikipron",
            "Words and pronunciations of Wiktionary, collected by WikiPron",
            "cc-by-sa-4.0",
            "https://github.com/CUNY-CL/wikipron",
            "Attribution: https://www.wiktionary.org.",
        ),
        Origin("multi30k", "Captions of Multi30k", None, "https://github.com/multi30k/dataset", "For research."),
        Origin("multi30k-tok", "Captions of Multi30k", None, "https://github.com/multi30k/dataset", "For research."),
        Origin(
            "news-en-fr",
            "News of the WMT test sets",
            None,
            "https://github.com/Helsinki-NLP/OPUS-MT-testsets",
            "For research.",
        ),
    )
}


def read(
    name: str, source: str | None, target: str | None, data: str | os.PathLike | None
) -> tuple[str, str, dict[str, tuple[list[str], list[str]]]]:
    """Returns source, target and the splits of a corpus of `SOURCES`.

    Args:
        name: The corpus.
        source, target: Languages; None: the corpus' default.
        data: As for `find`.

    Raises:
        ValueError: For another language, or text that is not this corpus.
        FileNotFoundError: If it cannot be downloaded, or a file is missing.
    """
    languages, direction, _, derived = SOURCES[name]
    source, target = source or direction[0], target or direction[1]
    if source == target and (source, target) != direction:  # only one was given, and it is the other's default
        raise ValueError(f"Expected both a source and a target language for {name}. Received: {source} twice")
    corpora.check_languages(name, source, target, [*languages, *derived])
    sides = [derived[side][0] if side in derived else side for side in (source, target)]
    folder = find(name, data)
    is_cached = folder is None
    folder = download(name) if is_cached else folder
    try:
        splits = {split: read_parallel(folder, split, *sides) for split in corpora.SPLITS}
        for split, both in splits.items():
            for language, lines in zip(sides, both, strict=True):
                file = f"{split}.{language}"
                received, expected = _digest(lines), SHA256[name][file]
                if received != expected:
                    raise ValueError(
                        f"Expected {file} of {name} in {folder} to have the SHA-256 {expected}. Received: {received}."
                    )
    except (ValueError, FileNotFoundError) as error:
        if is_cached:
            shutil.rmtree(folder, ignore_errors=True)
            remedy = "The folder was deleted; run again to download it anew."
        else:
            remedy = "Give the folder instead of the name to train on it as it is."
        raise type(error)(f"{error}{'' if str(error).endswith('.') else '.'} {remedy}") from None
    for number, side in enumerate((source, target)):
        if side in derived:
            for both in splits.values():
                both[number][:] = map(derived[side][1], both[number])
    return source, target, splits


def origins(corpus: str, from_preset: Mapping[str, str | None] | None = None) -> list[Origin]:
    """Returns the origins of a named corpus, or of several joined by "+", each once; a folder's is its name alone.

    Args:
        corpus: Its name, as in a report. "NAME/PART" is a part of the corpus NAME, and "NAME:3" has a weight.
        from_preset: Of the report of a run that began from a preset: what that was trained on is an origin, too.
    """
    parts = corpus.split("+")
    unknown = []
    if from_preset and from_preset["corpus"]:
        parts += from_preset["corpus"].split("+")
    elif from_preset:
        name = from_preset["name"]
        unknown = [Origin(name, f"What the preset {name} was trained on, which it does not say", None, "", "")]
    names = dict.fromkeys(re.split("[/:]", part)[0] for part in parts)
    return [_ORIGINS.get(part, Origin(part, f"The folder {part}", None, "", "")) for part in names] + unknown


def find(name: str, data: str | os.PathLike | None) -> Path | None:
    """Returns the folder of a corpus, `data/NAME` or `NAME` below `data`, else below `$KERAS_ATTN_DATA`; else None."""
    data = data or os.environ.get("KERAS_ATTN_DATA")
    if not data:
        return None
    if not Path(data).is_dir():
        raise FileNotFoundError(f"Expected the data folder to exist. Received: {os.fspath(data)!r}")
    return next((folder for folder in (Path(data, "data", name), Path(data, name)) if folder.is_dir()), None)


def download(name: str) -> Path:
    """Downloads and splits a corpus into Keras' cache, once. Returns its folder.

    Raises:
        FileNotFoundError: If a file cannot be downloaded.
        ValueError: If the result is not the corpus of these hashes; it is deleted.
    """
    folder = downloads.cache_folder() / name
    if folder.is_dir():
        files.remove_leftovers(folder.parent)
        return folder
    with files.staging(folder.parent) as temporary:
        texts = _built(name, temporary)
        new = temporary / folder.name
        new.mkdir()
        for file, lines in texts.items():
            with gzip.GzipFile(new / f"{file}.gz", "wb", mtime=0) as out:
                out.write(_bytes(lines))
        files.publish(new, folder)  # unless another process was faster
    return folder


def _built(name: str, folder: Path) -> Lines:
    """The lines of each file of a corpus; what is downloaded for it goes into `folder`."""
    try:
        texts = SOURCES[name].build(lambda address: _fetch(name, address, folder))
    except FileNotFoundError:
        raise
    except _NOT_THE_CORPUS as error:
        reason = textwrap.shorten(str(error), 600) or type(error).__name__
        raise ValueError(
            _advice(name, f"The files received are not this corpus, and were deleted ({reason}).")
        ) from error
    for file, sha256 in SHA256[name].items():
        received = _digest(texts.get(file, []))
        if received != sha256:
            raise ValueError(
                _advice(name, f"Its {file} has the SHA-256 {received} instead of {sha256}, and was deleted.")
            )
    return texts


def _fetch(name: str, address: str, folder: Path) -> Path:
    """Downloads one file into `folder`, named by its whole path, since two sources may have a `train.en`."""
    file = re.sub(r"[^\w.]+", "-", address.split("://")[-1])[-120:].lstrip("-.")
    try:
        return downloads.download(address, folder / file)
    except OSError as error:
        raise FileNotFoundError(_advice(name, str(error))) from None


def _advice(name: str, what: str) -> str:
    wanted = ", ".join(f"{file}.gz" for file in SHA256[name])
    return (
        f"Expected to download the corpus {name}. {what} To use a copy of your own, put {wanted} (or the same without "
        f".gz) into a folder DATA/{name} and give --data DATA."
    )


def _bytes(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode("utf-8")


def _digest(lines: list[str]) -> str:
    return hashlib.sha256(_bytes(lines)).hexdigest()
