"""Parallel text: `load("multi30k")`, `load("my/folder", "de", "en")`, `load("pairs.tsv")`, `load("text", "de", "en")`.

A corpus is one of

- a name: `phrases`, which is part of this package, or one of `recipes/named_corpora.py`;
- a folder of `<split>.<language>` files, aligned line by line, plain, `.gz`, `.xz` or `.bz2`, or of parts of
  these, `<split>.<part>.<language>`; a split may be a table `<split>.tsv`, `.csv` or `.jsonl` instead. The validation
  split may also be called `dev`, `valid` or `validation`. The training split of a large folder stays in its files;
- a table: TSV, CSV or JSON lines; `keras_attn.training.tables` says how its columns are found. Others are ignored;
- a lexicon, `words.dict`, as `keras_attn.pronunciation.read_lexicon` reads it;
- two files, `text.de` and `text.en`, given by what their names share, `text`.

Of a table, or two files, a twentieth of the distinct source lines, at most 1,000, is held out for validation, and as
many for the test, always the same ones, each with its first translation; of a lexicon with all its pronunciations.

A plus sign or a pattern of names joins several corpora: `load("a+b")`, `load("g2p/*")`, with weights `load("a:3+b:1")`,
and with tags before the source lines that name the target language or the corpus.
"""

import fnmatch
import math
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from keras_attn import files
from keras_attn.pronunciation import read_lexicon
from keras_attn.text import PACKED, corpus_paths, iterate_lines, parallel_paths, read_lines, read_parallel
from keras_attn.training.recipes import named_corpora
from keras_attn.training.tables import ENDINGS, Table, ending, read_table

SPLITS = ("train", "val", "test")
_VALIDATION = ("val", "dev", "valid", "validation")  # names of that split
TAGS = ("target", "corpus")
LEXICON = ".dict"
_OF_A_FILE = re.compile(
    rf"({'|'.join(map(re.escape, [*ENDINGS, '.txt', LEXICON]))})({'|'.join(map(re.escape, PACKED))})?$"
)
LARGE = 64_000_000  # bytes of both sides of a training split in a folder, beyond which they stay in their files
PHRASES = Path(__file__).with_name("phrases_en_fr.tsv.bz2")
_PHRASES_SHA256 = "02546519ef2fa49acae4d6073023ab2cbbd6c11c001b010bfa99e603a2d2ecf0"
_EXPANSION = 3  # of compressed text
_DIVIDED = "val and test are held out by source line"
_HELD_OUT = 1000  # at most, for validation, and as many for the test
_UNEVEN = 9, 90  # of pairs that look wrong: one side so many times as long as the other, and so many characters
_SUSPICIOUS = {
    "a blank side": lambda source, target: not (source.strip() and target.strip()),
    "the same text on both sides": lambda source, target: source.strip() == target.strip() != "",
    "sides of very different length": lambda source, target: (
        max(len(source), len(target)) > max(_UNEVEN[1], _UNEVEN[0] * min(len(source), len(target)))
        and min(len(source), len(target)) > 0
    ),
}
Lines = tuple[list[str], list[str]]


class TextFiles:
    """The lines of some files, one file after the other. Each iteration reads them anew.

    Args:
        paths: The files, plain, `.gz`, `.xz` or `.bz2`.
    """

    def __init__(self, paths: Sequence[Path]):
        self.paths = list(paths)

    def __iter__(self) -> Iterator[str]:
        for path in self.paths:
            yield from iterate_lines(path)


@dataclass(frozen=True)
class Corpus:
    """Parallel text: `splits["train"]` is `(source lines, target lines)`, lists or `TextFiles`.

    Of several corpora, `parts` has the name of each and the number of its test lines. `read_as` says how a table was
    understood, and of which parts a split is.
    """

    name: str
    source: str
    target: str
    splits: dict[str, Lines | tuple[TextFiles, TextFiles]]
    tags: tuple[str, ...] = ()
    parts: tuple[tuple[str, int], ...] = ()
    read_as: str = ""

    @property
    def is_streamed(self) -> bool:
        """True if the training split stays in its files."""
        return isinstance(self.splits.get("train", ((),))[0], TextFiles)


def load(
    name_or_path: str | os.PathLike,
    source: str | None = None,
    target: str | None = None,
    data: str | os.PathLike | None = None,
    stream: bool | None = False,
    tags: str | None = None,
    seed: int = 0,
) -> Corpus:
    """Returns the splits of a corpus.

    Args:
        name_or_path: A name or a path as above; or several, joined by "+". A part may lack a split, and have
            a weight, as in "a:3+b:1".
        source, target: Languages, as in the file names; a named corpus has a default direction, and those of a table
            are names or numbers of its columns, or only names. Of several corpora, one for all, or one for each, joined
            by "+".
        data: Folder in which named corpora are looked for; default `$KERAS_ATTN_DATA`.
        stream: Whether the training split stays in its files, as `TextFiles`; folders only. None: if it is large.
        tags: Whether source lines get a tag, from the "target" language or the name of the "corpus".
        seed: For what weights leave to be drawn.

    Raises:
        ValueError: For a named corpus, weights or tags with text that is to stay in files, an unknown corpus, language
            or kind of tags, weights that are not positive, files of unequal length or empty, invalid UTF-8, or text
            that is not the named corpus'.
        FileNotFoundError: If there is no such folder, or the download fails.
    """
    name = os.fspath(name_or_path)
    parts, weights = map(list, zip(*_parts_of(name), strict=True))
    if tags not in (None, *TAGS):
        raise ValueError(f"Expected tags from: {', '.join(TAGS)}. Received: {tags!r}")
    in_memory = "tags" if tags else "weights" if len(parts) > 1 and weights[0] is not None else None
    if stream and in_memory:
        raise ValueError(f"Expected --no-stream with {in_memory}, which change the lines. Received: text files")
    others = [part for part in parts if part in names() or not Path(part).is_dir()]
    if stream and others:
        raise ValueError(f"Expected folders of text to stream, for other corpora are small. Received: {others[0]!r}")
    if stream is None:
        stream = not (others or in_memory) and _is_large([Path(part) for part in parts], source, target)
    if len(parts) > 1:
        sides = _one_for_each(source, len(parts), "--source"), _one_for_each(target, len(parts), "--target")
        loaded = [load(*part, data, stream, tags) for part in zip(parts, *sides, strict=True)]
        if tags == "corpus" and len({corpus.tags for corpus in loaded}) < len(loaded):
            received = ", ".join(
                f"{' '.join(corpus.tags)} of {part}" for corpus, part in zip(loaded, parts, strict=True)
            )
            raise ValueError(f"Expected a tag for each corpus. Received: {received}")
        return join(loaded, weights, seed)
    corpus = _load(parts[0], source, target, data, stream)
    return tagged(corpus, tags) if tags else corpus


def describe(corpus: Corpus) -> str:
    """Returns lines for people: how a corpus was read, its sizes, and pairs that look wrong or are in two splits.

    Args:
        corpus: As `load` returns it. Text that stays in its files is not looked at.
    """
    read_as = f" ({corpus.read_as})" if corpus.read_as else ""
    sizes = [f"{split} {len(sides[0]):,}" for split, sides in corpus.splits.items() if isinstance(sides[0], list)]
    streamed = ["train in its files"] if corpus.is_streamed else []
    lines = [f"{corpus.name}{read_as}, {corpus.source} to {corpus.target}, pairs: {', '.join(streamed + sizes)}"]
    if corpus.is_streamed:
        return lines[0]
    for what, is_wrong in _SUSPICIOUS.items():
        pairs = zip(*corpus.splits.get("train", ((), ())), strict=True)
        wrong = [number for number, pair in enumerate(pairs, 1) if is_wrong(*pair)]
        if wrong:
            text = " | ".join(side[wrong[0] - 1][:40] for side in corpus.splits["train"])
            lines.append(f"Note: {len(wrong):,} training pairs have {what}; the first is pair {wrong[0]:,}: {text}")
    for split in ("val", "test"):
        pairs = list(zip(*corpus.splits.get(split, ((), ())), strict=True))
        known = set(pairs).intersection(zip(*corpus.splits.get("train", ((), ())), strict=True))
        if seen := [number for number, pair in enumerate(pairs, 1) if pair in known]:
            text = " | ".join(line[:40] for line in pairs[seen[0] - 1])
            lines.append(
                f"Note: {len(seen):,} of {len(pairs):,} {split} pairs are training pairs; the first is pair "
                f"{seen[0]:,}: {text}"
            )
    return "\n".join(lines)


def names() -> tuple[str, ...]:
    """Returns the corpora that have a name."""
    return ("phrases", *named_corpora().SOURCES)


def public_name(name_or_path: str | os.PathLike) -> str:
    """Returns the corpus' name in reports: a folder or file by its own name, without its path on this machine."""
    parts = _parts_of(name_or_path, expand=False)
    return "+".join(
        (part if fnmatch.filter(names(), part) else Path(part).resolve().name) + _suffix(one) for part, one in parts
    )


def tagged(corpus: Corpus, kind: str) -> Corpus:
    """Returns the corpus with a tag before each source line: `<2fr>` (Johnson et al. 2017, section 3).

    Args:
        corpus: One in memory.
        kind: "target" for the target language, "corpus" for the corpus' name, "ice" of "g2p/ice" and "ice.tsv".
    """
    name = corpus.target if kind == "target" else corpus.name.split("/")[-1]
    name = _OF_A_FILE.sub("", name)
    tag = "<2" + re.sub(r"[\s,▁]", "_", name.lower()) + ">"
    splits = {
        split: ([f"{tag} {line}" if line.strip() else line for line in source], target)
        for split, (source, target) in corpus.splits.items()
    }
    return replace(corpus, splits=splits, tags=(tag,))


def join(corpora: Sequence[Corpus], weights: Sequence[float | None], seed: int) -> Corpus:
    """Returns several corpora as one, split by split.

    With weights, an epoch has pairs of each corpus in that ratio. The corpus that is the largest for its weight is in
    it once. Of each other one come as many whole copies as the ratio allows, and the rest is drawn by the seed, the
    same in each epoch, so that no pair is left out and a resumed run has the same. The lines of `val` alternate, so
    that the first of them are of all corpora.

    Args:
        corpora: In memory, or without weights all in files.
        weights: Of the training split.
        seed: For what is drawn.

    Raises:
        ValueError: If they have other languages, and no tags.
    """
    languages = {(corpus.source, corpus.target) for corpus in corpora}
    if len(languages) > 1 and not all(corpus.tags for corpus in corpora):
        received = ", ".join(f"{corpus.name} from {corpus.source} to {corpus.target}" for corpus in corpora)
        raise ValueError(
            f"Expected corpora of one direction, or --tags, or --source and --target. Received: {received}"
        )
    splits = {}
    for split in SPLITS:
        having = [corpus for corpus in corpora if split in corpus.splits]
        sides = [corpus.splits[split] for corpus in having]
        if split == "train" and weights[0] is not None:
            own = [weight for corpus, weight in zip(corpora, weights, strict=True) if split in corpus.splits]
            sides = _drawn(sides, own, seed)
        if having and isinstance(sides[0][0], TextFiles):
            paths = [[path for side in both for path in side.paths] for both in zip(*sides, strict=True)]
            splits[split] = tuple(map(TextFiles, paths))
        elif having:
            joined = [[line for side in both for line in side] for both in zip(*sides, strict=True)]
            shares = [(row + 0.5) / len(source) for source, _ in sides for row in range(len(source))]
            order = sorted(range(len(shares)), key=shares.__getitem__ if split == "val" else None)
            splits[split] = tuple([side[row] for row in order] for side in joined)
    return Corpus(
        "+".join(corpus.name + _suffix(weight) for corpus, weight in zip(corpora, weights, strict=True)),
        *(_joined_languages([getattr(corpus, side) for corpus in corpora]) for side in ("source", "target")),
        splits,
        tuple(dict.fromkeys(tag for corpus in corpora for tag in corpus.tags)),
        tuple((corpus.name, len(corpus.splits.get("test", [()])[0])) for corpus in corpora),
        "; ".join(f"{corpus.name}: {corpus.read_as}" for corpus in corpora if corpus.read_as),
    )


def held_out(sources: Iterable[str], seed: int, test: int, val: int) -> dict[str, str]:
    """The split of each source line that is not trained on: of all, sorted, then shuffled, the first are for test."""
    lines = sorted(set(sources))
    random.Random(seed).shuffle(lines)
    return dict.fromkeys(lines[:test], "test") | dict.fromkeys(lines[test : test + val], "val")


def check_languages(name: str, source: str, target: str, languages: Iterable[str]) -> None:
    """Raises ValueError unless source and target are two of the languages of a corpus."""
    listed = ", ".join(languages)
    for language in (source, target):
        if language not in languages:
            raise ValueError(f"Expected a language of {name} ({listed}). Received: {language!r}")
    if source == target:
        raise ValueError(f"Expected two languages of {name} ({listed}). Received: {source!r} twice")


def pairs_up_to(words: int | None, lines: tuple[list, ...]) -> tuple[list, ...]:
    """Returns the pairs with at most `words` words (split on blanks) on each side; for None all pairs.

    Args:
        words: The limit.
        lines: Those of the source and of the target, and of what else belongs to the pairs, such as their links.

    Raises:
        ValueError: If there is no such pair.
    """
    if words is None:
        return lines
    pairs = [pair for pair in zip(*lines, strict=True) if all(len(line.split()) <= words for line in pair[:2])]
    if not pairs:
        raise ValueError(f"Expected training pairs of at most {words} words a side. There are none.")
    return tuple(map(list, zip(*pairs, strict=True)))


# --- one corpus


def _load(name: str, source: str | None, target: str | None, data: str | os.PathLike | None, stream: bool) -> Corpus:
    if name == "phrases":
        if (source or "en", target or "fr") != ("en", "fr"):
            raise ValueError(f"Expected phrases from en to fr. Received: {source or 'en'} to {target or 'fr'}")
        return Corpus(name, "en", "fr", _phrases())
    if name in names():
        return Corpus(name, *named_corpora().read(name, source, target, data))
    path = Path(name)
    if name and path.is_dir():
        return _folder(path, source, target, stream)
    if path.is_file():
        is_lexicon = ending(path) == LEXICON
        table = _lexicon(path) if is_lexicon else read_table(path, source, target)
        splits = _with_held_out(path, table.sources, table.targets, all_targets=is_lexicon)
        return Corpus(path.name, *_languages(source, target), splits, read_as=f"{_read_as(table)}, {_DIVIDED}")
    if name and any(Path(f"{name}.{source}{suffix}").is_file() for suffix in ("", *PACKED)):
        sides = read_parallel(path.parent, path.name, source, target or "")
        return Corpus(path.name, source, target, _with_held_out(path, *sides), read_as=_DIVIDED)
    known = dict.fromkeys(re.sub("/.*", "/*", name) for name in names())  # those such as "g2p/*" as one
    raise ValueError(
        f"Expected a corpus ({', '.join(known)}), a folder of <split>.<language> files, a table of pairs, or, "
        f"with --source and --target, what the names of two files share. Received: {name!r}"
    )


def _phrases() -> dict[str, Lines]:
    """The embedded corpus, "split, English, French" in each line: train, val, test, and lengths, sentences by length.

    Raises:
        ValueError: If the file is not the one that belongs to this package.
    """
    if (received := files.sha256(PHRASES)) != _PHRASES_SHA256:
        raise ValueError(
            f"Expected {PHRASES} to have the SHA-256 {_PHRASES_SHA256}. Received: {received}. Install the package "
            "again."
        )
    splits: dict[str, Lines] = {}
    for line in read_lines(PHRASES):
        split, *pair = line.split("\t")
        for side, text in zip(splits.setdefault(split, ([], [])), pair, strict=True):
            side.append(text)
    return splits


def _folder(folder: Path, source: str | None, target: str | None, stream: bool) -> Corpus:
    found: dict[str, set[str]] = {}
    tables: dict[str, dict[str, Path]] = {}  # of each split, by their names without ".gz"
    for path in sorted(folder.iterdir()):
        name = re.sub(r"\.(gz|xz|bz2)$", "", path.name)
        split, *rest = name.split(".")
        if rest and path.is_file():
            if f".{rest[-1]}" in ENDINGS:
                tables.setdefault(split, {}).setdefault(name, path)
            else:
                found.setdefault(split, set()).add(rest[-1])
    validation = [name for name in _VALIDATION if name in found or name in tables] or ["val"]
    if len(validation) > 1:
        raise ValueError(f"Expected one validation split in {folder}. Received: {', '.join(validation)}")
    names = {"train": "train", "val": validation[0], "test": "test"}
    known = [split for split in SPLITS if names[split] in found or names[split] in tables]
    if not known:
        raise ValueError(
            f"Expected train.<language>, val.<language>, test.<language> (or .gz) in {folder}. Received: "
            f"{', '.join(path.name for path in sorted(folder.iterdir())[:9]) or 'an empty folder'}"
        )
    for name in (names[split] for split in known if names[split] in tables):
        # With both languages, another file such as train.log is no text.
        languages = [one for one in sorted(found.get(name, ())) if not (source and target) or one in (source, target)]
        if languages:
            received = ", ".join([*(f"{name}.{language}" for language in languages), *tables[name]])
            raise ValueError(f"Expected text files or a table of {name} in {folder}. Received: {received}")
    in_text = [split for split in known if names[split] not in tables]
    if in_text:
        languages = sorted(found[names[in_text[0]]])
        if not source or not target:
            given = " ".join(f"--{side} {one}" for side, one in (("source", source), ("target", target)) if one)
            raise ValueError(
                f"Expected --source and --target, two languages of {folder} ({', '.join(languages)}). Received: "
                f"{given or 'neither'}"
            )
        check_languages(os.fspath(folder), source, target, languages)
    paths = {split: parallel_paths(folder, names[split], source, target) for split in in_text}
    read = {split: _read_parts(tables[names[split]], source, target) for split in known if split not in in_text}
    splits = {}
    for split in known:
        if split in read:
            splits[split] = read[split].sources, read[split].targets
        elif stream and split == "train":
            splits[split] = tuple(map(TextFiles, zip(*paths[split], strict=True)))
        else:
            splits[split] = read_parallel(folder, names[split], source, target)
    read_as = [f"{split} of {_some(path.name for path, _ in pairs)}" for split, pairs in paths.items() if pairs[1:]]
    read_as += [f"{split} without {_some(aside)}" for split in paths if (aside := _aside(paths[split], names[split]))]
    if read:
        first = next(iter(read))
        read_as.append((f"{first} of " if in_text else "") + _read_as(read[first]))
    languages = (source, target) if in_text else _languages(source, target)
    return Corpus(folder.resolve().name, *languages, splits, read_as="; ".join(read_as))


def _aside(pairs: Sequence[tuple[Path, Path]], split: str) -> list[str]:
    """The parts of the source side beside a whole file, which alone is read."""
    (path, _), *_ = pairs
    name = path.name.removeprefix(f"{split}.")  # of a whole file the language
    language = next((name.removesuffix(suffix) for suffix in PACKED if name.endswith(suffix)), name)
    beside = (path.parent.glob(f"{split}.*.{language}{suffix}") for suffix in ("", *PACKED))
    return sorted(part.name for found in beside for part in found)


def _some(names: Iterable[str]) -> str:
    """Returns names, of many only the first."""
    names = list(names)
    return ", ".join(names if len(names) < 5 else [*names[:2], f"... ({len(names)} files)"])


def _lexicon(path: Path) -> Table:
    pairs = [(word, text) for word, texts in read_lexicon(path).items() for text in texts]
    return Table([word for word, _ in pairs], [text for _, text in pairs], ("word", "phones"))


def _read_parts(parts: Mapping[str, Path], source: str | None, target: str | None) -> Table:
    """Returns the table of a split: one file, or the parts of one, such as train.1.tsv and train.2.tsv.

    Raises:
        ValueError: for a table beside others that may be parts of it, and parts of other columns.
    """
    if len(parts) > 1 and any(name.count(".") == 1 for name in parts):
        raise ValueError(f"Expected one table of a split, or its parts alone. Received: {', '.join(parts)}")
    read = [read_table(path, source, target) for path in parts.values()]
    if len({table.columns for table in read}) > 1:
        received = ", ".join(f"{_columns_of(table)} in {name}" for name, table in zip(parts, read, strict=True))
        raise ValueError(f"Expected parts of the same columns. Received: {received}")
    sources, targets = ([line for table in read for line in table[side]] for side in (0, 1))
    return Table(sources, targets, read[0].columns)


def _columns_of(table: Table) -> str:
    return "columns {} and {}".format(*table.columns)


def _read_as(table: Table) -> str:
    """The columns, and the first pair, which shows a header that was taken for one."""
    return f"{_columns_of(table)}, the first pair: {table.sources[0][:40]} | {table.targets[0][:40]}"


def _languages(source: str | None, target: str | None) -> tuple[str, str]:
    """The names of both sides of a table; those of columns that are numbers say nothing."""
    is_number = source is not None and source.isdecimal()
    return ("source", "target") if is_number else (source or "source", target or "target")


def _with_held_out(
    path: Path, sources: list[str], targets: list[str], *, all_targets: bool = False
) -> dict[str, Lines]:
    """The splits of pairs that have none.

    Raises:
        ValueError: If there are not enough for three splits.
    """
    pairs = [pair for pair in zip(sources, targets, strict=True) if all(map(str.strip, pair))]
    distinct = {source for source, _ in pairs}
    count = min(_HELD_OUT, max(1, len(distinct) // 20))
    if len(distinct) <= 2 * count:
        raise ValueError(
            f"Expected pairs with 3 different source lines or more, some of which are held out, in {path}. Received: "
            f"{len(distinct)}"
        )
    held = held_out(distinct, 0, count, count)
    splits: dict[str, Lines] = {split: ([], []) for split in SPLITS}
    seen = set()
    for source, target in pairs:
        split = held.get(source, "train")
        if split == "train" or all_targets or source not in seen:
            seen.add(source)
            splits[split][0].append(source)
            splits[split][1].append(target)
    return splits


def _is_large(folders: Sequence[Path], source: str | None, target: str | None) -> bool:
    """Returns True if the training split of some folders together has more than `LARGE` bytes."""
    size = 0
    for folder in folders:
        for language in (source, target):
            try:
                paths = corpus_paths(folder, "train", language or "")
            except FileNotFoundError:  # of a part without that split, or of a wrong language, which `load` refuses
                continue
            packed = [_EXPANSION if path.suffix in PACKED else 1 for path in paths]
            size += sum(path.stat().st_size * times for path, times in zip(paths, packed, strict=True))
    return size > LARGE


# --- several corpora


def _parts_of(name_or_path: str | os.PathLike, expand: bool = True) -> list[tuple[str, float | None]]:
    """The corpora that are joined by "+", each with its weight, None without one.

    Args:
        name_or_path: As for `load`.
        expand: Whether a pattern such as "g2p/*" becomes the named corpora that it matches.

    Raises:
        ValueError: If a weight is no positive number, or some corpora have one and others have none.
    """
    name = os.fspath(name_or_path)
    parts = [(name, None)] if Path(name).exists() else [_weighted(part) for part in name.split("+")]
    if expand:
        parts = [(one, weight) for part, weight in parts for one in fnmatch.filter(names(), part) or [part]]
    if len({weight is None for _, weight in parts}) > 1:
        raise ValueError(f"Expected a weight for each corpus, such as a:3+b:1, or for none. Received: {name!r}")
    return parts


def _weighted(part: str) -> tuple[str, float | None]:
    name, colon, text = part.rpartition(":")
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    is_weight, is_known = 0 < weight < math.inf, name in names() or (bool(name) and Path(name).exists())
    if not colon or Path(part).exists() or not (is_weight or is_known):
        return part, None
    if not is_weight:
        raise ValueError(f"Expected the weight of {name!r} to be a positive number. Received: {text!r}")
    return name, weight


def _suffix(weight: float | None) -> str:
    return "" if weight is None else f":{weight:g}"


def _one_for_each(text: str | None, count: int, option: str) -> list[str | None]:
    """The language of each of `count` corpora: one for all, or as many joined by "+".

    Raises:
        ValueError: If there are as many as neither.
    """
    languages = [text] if text is None else text.split("+")
    if len(languages) not in (1, count):
        raise ValueError(f"Expected {option} with one language, or one for each of {count} corpora. Received: {text!r}")
    return languages * (count if len(languages) == 1 else 1)


def _joined_languages(languages: Sequence[str]) -> str:
    return languages[0] if len(set(languages)) == 1 else "+".join(languages)


def _drawn(sides: Sequence[Lines], weights: Sequence[float], seed: int) -> list[Lines]:
    sizes = [len(source) for source, _ in sides]
    unit = max(size / weight for size, weight in zip(sizes, weights, strict=True))
    drawn = []
    for number, (side, size, weight) in enumerate(zip(sides, sizes, weights, strict=True)):
        copies, rest = divmod(round(unit * weight), size)
        random = np.random.default_rng((seed, number))
        rows = [*range(size)] * copies + sorted(random.permutation(size)[:rest].tolist())
        drawn.append(tuple([lines[row] for row in rows] for lines in side))
    return drawn
