"""Corpora by name or by folder: `load("multi30k")`, `load("my/folder", "de", "en")`.

A corpus is a folder of `<split>.<language>` files, aligned line by line, plain, `.gz`, `.xz` or `.bz2`; or of parts of
these, `<split>.<part>.<language>`. The training split of large folders stays in its files. The corpus `phrases` is
part of the package. The other named corpora are looked for in `data` (`data/NAME` or `NAME` below it), else in Keras'
cache, where they are downloaded and split once (`recipes.corpora.sources`); in every case the SHA-256 of their files
must be the one in that module. To train on a changed copy of a named corpus, give its folder instead of its name.
A plus sign joins several corpora: `load("tatoeba-en-fr+news-en-fr")`; see `recipes.corpora.joining`.
"""

import gzip
import hashlib
import os
import re
import shutil
import textwrap
import zipfile
import zlib
from pathlib import Path

from keras_attn import downloads, files
from keras_attn.text import read_parallel
from keras_attn.training import phrases
from recipes.corpora.joining import NAMES, TAGS, Corpus, join, languages_of, parts_of, tagged
from recipes.corpora.sources import SHA256, SOURCES, SPLITS
from recipes.corpora.streaming import is_large, training_files

# What `build` raises for files that are something else, such as a portal's page: no JSON, no zip file, no lines.
_NOT_THE_CORPUS = (
    *(ValueError, LookupError, TypeError, AttributeError, EOFError, OSError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


def load(
    name_or_dir: str | os.PathLike,
    source: str | None = None,
    target: str | None = None,
    data: str | os.PathLike | None = None,
    stream: bool | None = False,
    tags: str | None = None,
    seed: int = 0,
) -> Corpus:
    """The splits of a named corpus, or of a folder of `<split>.<language>` files.

    Args:
        name_or_dir: one of `NAMES`, or a folder; or several, joined by "+", see `recipes.corpora.joining.join`. A part
            may lack a split, and have a weight, as in "a:3+b:1".
        source, target: languages, as in the file names; a named corpus has a default direction. Of several corpora,
            one for all, or one for each, joined by "+".
        data: folder in which named corpora are looked for; default `$KERAS_ATTN_DATA`.
        stream: whether the training split stays in its files, as `TextFiles`; folders only. None: if it is large.
        tags: whether source lines get a tag, from the "target" language or the name of the "corpus".
        seed: for what weights leave to be drawn.

    Raises:
        ValueError: for a named corpus, weights or tags with text that is to stay in files, an unknown corpus, language
            or kind of tags, weights that are not positive, files of unequal length or empty, invalid UTF-8, or text
            that is not the named corpus'.
        FileNotFoundError: if there is no such folder, or the download fails.
    """
    name = os.fspath(name_or_dir)
    parts, weights = map(list, zip(*parts_of(name), strict=True))
    if tags not in (None, *TAGS):
        raise ValueError(f"Expected tags from: {', '.join(TAGS)}. Received: {tags!r}")
    in_memory = "tags" if tags else "weights" if len(parts) > 1 and weights[0] is not None else None
    if stream and in_memory:
        raise ValueError(f"Expected --no-stream with {in_memory}, which change the lines. Received: text files")
    named = [part for part in parts if part in NAMES or not Path(part).is_dir()]
    if stream and named:
        raise ValueError(f"Expected folders of text to stream, for named corpora are small. Received: {named[0]!r}")
    if stream is None:
        stream = not (named or in_memory) and is_large([Path(part) for part in parts], source, target)
    if len(parts) > 1:
        sides = languages_of(source, len(parts), "--source"), languages_of(target, len(parts), "--target")
        return join([load(*part, data, stream, tags) for part in zip(parts, *sides, strict=True)], weights, seed)
    corpus = _load(parts[0], source, target, data, stream)
    return tagged(corpus, tags) if tags else corpus


def _load(name: str, source: str | None, target: str | None, data: str | os.PathLike | None, stream: bool) -> Corpus:
    if name == "phrases":
        _check_languages(name, source or "en", target or "fr", ["en", "fr"])
        if (source or "en", target or "fr") != ("en", "fr"):
            raise ValueError(f"Expected phrases from en to fr. Received: {source or 'en'} to {target or 'fr'}")
        return Corpus(name, "en", "fr", phrases.splits())
    if name in SOURCES:
        return _named(name, source, target, data)
    if not name or not Path(name).is_dir():
        names = ", ".join(NAMES)
        raise ValueError(f"Expected a corpus ({names}) or a folder of <split>.<language> files. Received: {name!r}")
    return _folder(Path(name), source, target, stream)


def pairs_up_to(words: int | None, lines: tuple[list, ...]) -> tuple[list, ...]:
    """The pairs with at most `words` words (split on blanks) on each side; for None all pairs.

    Args:
        words: The limit.
        lines: Those of the source and of the target, and of what else belongs to the pairs, such as their links.

    Raises:
        ValueError: if there is no such pair.
    """
    if words is None:
        return lines
    pairs = [pair for pair in zip(*lines, strict=True) if all(len(line.split()) <= words for line in pair[:2])]
    if not pairs:
        raise ValueError(f"Expected training pairs of at most {words} words a side. There are none.")
    return tuple(map(list, zip(*pairs, strict=True)))


def _named(name: str, source: str | None, target: str | None, data: str | os.PathLike | None) -> Corpus:
    languages, direction, _, derived = SOURCES[name]
    source, target = source or direction[0], target or direction[1]
    if source == target and (source, target) != direction:  # only one was given, and it is the other's default
        raise ValueError(f"Expected both a source and a target language for {name}. Received: {source} twice")
    _check_languages(name, source, target, [*languages, *derived])
    read = [derived[side][0] if side in derived else side for side in (source, target)]
    folder = find(name, data)
    is_cached = folder is None
    folder = download(name) if is_cached else folder
    try:
        splits = {split: read_parallel(folder, split, *read) for split in SPLITS}
        for split, sides in splits.items():
            for language, lines in zip(read, sides, strict=True):
                _verify(name, f"{split}.{language}", lines, folder)
    except (ValueError, FileNotFoundError) as error:
        if is_cached:
            shutil.rmtree(folder, ignore_errors=True)
            remedy = "The folder was deleted; run again to download it anew."
        else:
            remedy = "Give the folder instead of the name to train on it as it is."
        raise type(error)(f"{error}{'' if str(error).endswith('.') else '.'} {remedy}") from None
    for number, side in enumerate((source, target)):
        if side in derived:
            for sides in splits.values():
                sides[number][:] = map(derived[side][1], sides[number])
    return Corpus(name, source, target, splits)


def find(name: str, data: str | os.PathLike | None) -> Path | None:
    """The folder of a named corpus below `data`, else `$KERAS_ATTN_DATA`; None if it is not there."""
    data = data or os.environ.get("KERAS_ATTN_DATA")
    if not data:
        return None
    if not Path(data).is_dir():
        raise FileNotFoundError(f"Expected the data folder to exist. Received: {os.fspath(data)!r}")
    return next((folder for folder in (Path(data, "data", name), Path(data, name)) if folder.is_dir()), None)


def _folder(folder: Path, source: str | None, target: str | None, stream: bool) -> Corpus:
    found: dict[str, set[str]] = {}
    for path in sorted(folder.iterdir()):
        split, *rest = re.sub(r"\.(gz|xz|bz2)$", "", path.name).split(".")
        if rest and path.is_file():
            found.setdefault(split, set()).add(rest[-1])
    known = [split for split in SPLITS if split in found]
    if not known:
        raise ValueError(
            f"Expected train.<language>, val.<language>, test.<language> (or .gz) in {folder}. Received: "
            f"{', '.join(path.name for path in sorted(folder.iterdir())[:9]) or 'an empty folder'}"
        )
    languages = sorted(found[known[0]])
    if not source or not target:
        given = " ".join(f"--{side} {one}" for side, one in (("source", source), ("target", target)) if one)
        raise ValueError(
            f"Expected --source and --target, two languages of {folder} ({', '.join(languages)}). Received: "
            f"{given or 'neither'}"
        )
    _check_languages(os.fspath(folder), source, target, languages)
    splits = {
        split: training_files(folder, source, target)
        if stream and split == "train"
        else read_parallel(folder, split, source, target)
        for split in known
    }
    return Corpus(folder.resolve().name, source, target, splits)


def _check_languages(name: str, source: str, target: str, languages: list[str]) -> None:
    for language in (source, target):
        if language not in languages:
            raise ValueError(f"Expected a language of {name} ({', '.join(languages)}). Received: {language!r}")
    if source == target:
        raise ValueError(f"Expected two languages of {name} ({', '.join(languages)}). Received: {source!r} twice")


# --- the cache


def download(name: str) -> Path:
    """Downloads and splits a named corpus into Keras' cache, once. Returns its folder.

    Raises:
        FileNotFoundError: if a file cannot be downloaded.
        ValueError: if the result is not the corpus that `recipes.corpora.sources` describes; it is deleted.
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


def _built(name: str, folder: Path) -> dict[str, list[str]]:
    """The lines of each file of a corpus; what is downloaded for it goes into `folder`."""
    try:
        texts = SOURCES[name].build(lambda origin, sha256=None: _fetch(name, origin, sha256, folder))
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


def _fetch(name: str, origin: str, sha256: str | None, folder: Path) -> Path:
    """Downloads one file into `folder`, named by its whole path, since two sources may have a `train.en`."""
    file = re.sub(r"[^\w.]+", "-", origin.split("://")[-1])[-120:].lstrip("-.")
    try:
        return downloads.download(origin, folder / file, sha256=sha256)
    except OSError as error:
        raise FileNotFoundError(_advice(name, str(error))) from None


def _advice(name: str, what: str) -> str:
    files = ", ".join(f"{file}.gz" for file in SHA256[name])
    return (
        f"Expected to download the corpus {name}. {what} To use a copy of your own, put {files} (or the same without "
        f".gz) into a folder DATA/{name} and give --data DATA."
    )


def _bytes(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode("utf-8")


def _digest(lines: list[str]) -> str:
    return hashlib.sha256(_bytes(lines)).hexdigest()


def _verify(name: str, file: str, lines: list[str], folder: Path) -> None:
    received, expected = _digest(lines), SHA256[name][file]
    if received != expected:
        raise ValueError(f"Expected {file} of {name} in {folder} to have the SHA-256 {expected}. Received: {received}.")
