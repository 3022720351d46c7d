"""Where the named corpora come from, how their splits are built, and the SHA-256 of every resulting file.

Each corpus is built by a function `(fetch) -> {"<split>.<language>": lines}`, where `fetch(origin, sha256=None)`
downloads one file and returns its path. Every source is a file of a GitHub repository at a pinned commit. The project
contains no text: training always reads the same bytes, because `recipes.corpora` refuses a file whose SHA-256 is not
the one given here.
"""

import json
import random
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from keras_attn.text import read_lines
from recipes.corpora import pronunciations

BASE = "https://raw.githubusercontent.com"
SPLITS = ("train", "val", "test")
_LARGEST = 1 << 26  # bytes of a file in an archive

Fetch = Callable[..., Path]
Files = dict[str, list[str]]


class Source(NamedTuple):
    languages: tuple[str, ...]
    direction: tuple[str, str]  # the default
    build: Callable[[Fetch], Files]
    derived: Mapping[str, tuple[str, Callable[[str], str]]] = {}  # sides that are made of another one's lines


def _multi30k(fetch: Fetch) -> Files:
    root = f"{BASE}/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
    upstream = {"train": "train", "val": "val", "test": "test_2016_flickr"}
    return {
        name: read_lines(fetch(f"{root}/{upstream[name.split('.')[0]]}.{name.split('.')[1]}.gz", sha256))
        for name, sha256 in ARCHIVES.items()
    }


def _multi30k_tok(fetch: Fetch) -> Files:
    root = f"{BASE}/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/tok"
    upstream = {"train": "train", "val": "val", "test": "test_2016_flickr"}
    return {
        name: read_lines(fetch(f"{root}/{upstream[name.split('.')[0]]}.lc.norm.tok.{name.split('.')[1]}", sha256))
        for name, sha256 in SHA256["multi30k-tok"].items()
    }


def _news(fetch: Fetch) -> Files:
    root = f"{BASE}/Helsinki-NLP/OPUS-MT-testsets/ac0f19c0be3cb4e0d9450fcb2d7a9847c4bdd180/testsets/eng-fra"
    years = ["news-test2008", "newssyscomb2009", *(f"newstest{year}" for year in range(2009, 2013))]
    sets = {"train": years, "val": ["newstest2013"], "test": ["newstest2014"]}
    return {
        f"{split}.{language}": [line for name in sets[split] for line in read_lines(fetch(f"{root}/{name}.{upstream}"))]
        for split in SPLITS
        for language, upstream in (("en", "eng"), ("fr", "fra"))
    }


def _bible(fetch: Fetch) -> Files:
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
    files: Files = {f"{split}.{language}": [] for split in SPLITS for language in ("en", "es")}
    for index, chapters in enumerate(zip(king_james, reina_valera, strict=False)):
        split = "test" if index % 15 == 7 else "val" if index % 30 == 3 else "train"
        for verses in zip(*chapters, strict=False):
            for language, verse in zip(("en", "es"), verses, strict=True):
                files[f"{split}.{language}"].append(" ".join(verse.split()))
    return files


def _tatoeba(fetch: Fetch) -> Files:
    """English sentences, sorted, then shuffled with seed 17: 2,000 for test and 2,000 for val, each with its
    first translation. All translations of the others are train, in the order of the file."""
    path = fetch(f"{BASE}/genimind/seq2seq/4f3f8eb0adde54fcc8b89394336b002e7961244c/fra-eng.zip")
    with zipfile.ZipFile(path) as archive:
        if archive.getinfo("fra.txt").file_size > _LARGEST:
            raise ValueError(f"fra.txt has more than {_LARGEST:,} bytes")
        text = archive.read("fra.txt").decode("utf-8")
    pairs = [line.split("\t")[:2] for line in text.split("\n") if line]
    sentences = sorted({english for english, _ in pairs})
    random.Random(17).shuffle(sentences)
    held_out = dict.fromkeys(sentences[:2000], "test") | dict.fromkeys(sentences[2000:4000], "val")
    files: Files = {f"{split}.{language}": [] for split in SPLITS for language in ("en", "fr")}
    seen = set()
    for english, french in pairs:
        split = held_out.get(english, "train")
        if split == "train" or english not in seen:
            seen.add(english)
            files[f"{split}.en"].append(english)
            files[f"{split}.fr"].append(french)
    return files


def _cmudict(fetch: Fetch) -> Files:
    """Words, sorted, then shuffled with seed 23: a tenth for test, 2,000 for val. Stress marks are dropped, and
    so are the pronunciations that differed only in them."""
    path = fetch(f"{BASE}/cmusphinx/cmudict/0f8072f814306c5ee4fbf992ed853601b12c01f9/cmudict.dict")
    entries: dict[tuple[str, str], None] = {}
    for line in read_lines(path):
        word, *phones = line.split("#")[0].split()
        entries[re.sub(r"\(\d+\)$", "", word), re.sub(r"\d", "", " ".join(phones))] = None
    words = sorted({word for word, _ in entries})
    random.Random(23).shuffle(words)
    tenth = len(words) // 10
    held_out = dict.fromkeys(words[:tenth], "test") | dict.fromkeys(words[tenth : tenth + 2000], "val")
    files: Files = {f"{split}.{language}": [] for split in SPLITS for language in ("letters", "phones")}
    for word, phones in sorted(entries, key=lambda entry: entry[0]):
        split = held_out.get(word, "train")
        files[f"{split}.letters"].append(" ".join(word))
        files[f"{split}.phones"].append(phones)
    return files


def _pronunciations(amount: str, language: str) -> Source:
    sides = ("letters", "phones")
    derived = {"decomposed": ("letters", pronunciations.decomposed)}
    return Source(sides, sides, lambda fetch: pronunciations.build(fetch, BASE, amount, language), derived)


SOURCES = {
    "multi30k": Source(("de", "en", "fr"), ("de", "en"), _multi30k),
    "multi30k-tok": Source(("de", "en", "fr"), ("de", "en"), _multi30k_tok),
    "bible-en-es": Source(("en", "es"), ("en", "es"), _bible),
    "tatoeba-en-fr": Source(("en", "fr"), ("en", "fr"), _tatoeba),
    "news-en-fr": Source(("en", "fr"), ("en", "fr"), _news),
    **{
        pronunciations.corpus_name(language): _pronunciations(amount, language)
        for amount, languages in pronunciations.LANGUAGES.items()
        for language in languages
    },
    "cmudict": Source(("letters", "phones"), ("letters", "phones"), _cmudict),
}

SHA256 = {  # of each decompressed file
    "multi30k": {
        "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
        "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
        "train.fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
        "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
        "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
        "val.fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
        "test.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
        "test.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
        "test.fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    },
    "multi30k-tok": {
        "train.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
        "train.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
        "train.fr": "8fa41bb718412bcb7c5dfa58603842810a01543eae86a51279f9886b901266e1",
        "val.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
        "val.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
        "val.fr": "b303e301aa21fe7822a846b2b3fb2d5a1121ec807cd5b1d006fb7b2b5507168a",
        "test.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
        "test.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
        "test.fr": "1463bd5960f9bfe098ec3cd752d3df0c49c84dc646fb518964a29232658cd836",
    },
    "bible-en-es": {
        "train.en": "b0507d0a019cb5e4285bb2023ef49f2d5a5c7e65898b0b115d82e36d5917f738",
        "train.es": "a95627687aef9da3448c7d67b73322d9d65d856a733ea354ee8dd6c60566a284",
        "val.en": "15c9601821c893e5e4fd4ea1d6174608fb4d0b46b413902ca1de3e2c44691e3b",
        "val.es": "22d82e147a5438e4f69589c0df49d55cec82a5fcfa6cb99d57ae8982be6861d5",
        "test.en": "3e4dd037f7be30a0e6b80b3253310313d33b7b003ec684f6511c1f3979c850cc",
        "test.es": "0cc7defa58d76a4713d79ef982f84ff3352a43f149a43efe9dee391ffa9867d4",
    },
    "tatoeba-en-fr": {
        "train.en": "6afe3bbf8a873be0a43d366570d6b561764579e5458e197d8b3c549d2aa0fe84",
        "train.fr": "03885cd3f2f8702a7ec709b23cb22f6244ae0ea4625cf1b8d2cc9ad0d3973eb4",
        "val.en": "5c565267fd10143a6b930a51c6d75f94135f9dbf8c70e31197b0048f17d30485",
        "val.fr": "692390470591ded1079b014a52faadc2686387e388c0169e7eb41a2a6c35508a",
        "test.en": "fe00ba3a28c28b7941a0f32a44cd23facf4096ac9289102a4c8ef7c92095b012",
        "test.fr": "f31fb0c777a295bdb3ddcbf558005e728ff34122a9b7c265a68f7a8267663902",
    },
    "news-en-fr": {
        "train.en": "0bf3b3156dd27bd891514edf0cce483b4d77bfbcfc91e492086e1b8352f32b5a",
        "train.fr": "40cfe66178d0963676ce185725120107d831993ad79fb45b66d2754b382eb0b3",
        "val.en": "ace268a1d9724ca76f6d8e5c720ffdc08f01bdce45630ed8b269dc7918e1c16e",
        "val.fr": "909b63be5df3eb8c13e1d5967bf3f0adfdb9f6ed5e638c5bffff563ee2ff7f41",
        "test.en": "9a12cb6e8efb3509ebede627e4a9c83ee64935509d561ff70f4b7bd5f93f6096",
        "test.fr": "2bd07dc204f965bf88e90adb6223a8cb850f9bf9840df6af1f4945195936656e",
    },
    **pronunciations.SHA256,
    "cmudict": {
        "train.letters": "1e8134a8131198e3e6ee14052dc3ee4c51facd1f6e5426eeefd3fef4af3d8803",
        "train.phones": "c08a6002a6426f200a0aa53053a5113f2093d336ac9dbb8e126da75d358a001a",
        "val.letters": "5b24a1a4014331bc384c80ab24ec7b12852bb5d7ab378460ba89d34a41a07719",
        "val.phones": "7965d3ecf9c8fe0c97837d05658a84729d1b37e6a363d5fc6ff2d74f6463c4ff",
        "test.letters": "186718cab6ee847df2b9309b95e47d704defa85670db0100826631a1ff3ec97d",
        "test.phones": "cfde657e4df42f7afa25207a1a7ec96581ddc912834b6bd9aba0f257587703aa",
    },
}
ARCHIVES = {  # SHA-256 of the upstream .gz files of multi30k
    "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
    "test.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test.fr": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
}
