"""Several corpora as one: `a+b`, with weights `a:3+b:1`, and with tags that say which line is whose."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from recipes.corpora.sources import SOURCES, SPLITS
from recipes.corpora.streaming import TextFiles

NAMES = ("phrases", *SOURCES)
TAGS = ("target", "corpus")
Lines = tuple[list[str], list[str]]


@dataclass(frozen=True)
class Corpus:
    """Parallel text: `splits["train"]` is `(source lines, target lines)`, lists or `TextFiles`.

    Of several corpora, `parts` has the name of each and its lines in each split.
    """

    name: str
    source: str
    target: str
    splits: dict[str, Lines | tuple[TextFiles, TextFiles]]
    tags: tuple[str, ...] = ()
    parts: tuple[tuple[str, dict[str, int]], ...] = ()

    @property
    def is_streamed(self) -> bool:
        """Whether the training split stays in its files."""
        return isinstance(self.splits.get("train", ((),))[0], TextFiles)


def parts_of(name_or_dir: str | os.PathLike) -> list[tuple[str, float | None]]:
    """The corpora that are joined by "+", each with its weight, None without one.

    Raises:
        ValueError: if a weight is no positive number, or some corpora have one and others have none.
    """
    name = os.fspath(name_or_dir)
    parts = [(name, None)] if Path(name).is_dir() else [_weighted(part) for part in name.split("+")]
    if len({weight is None for _, weight in parts}) > 1:
        raise ValueError(f"Expected a weight for each corpus, such as a:3+b:1, or for none. Received: {name!r}")
    return parts


def public_name(name_or_dir: str | os.PathLike, weights: bool = True) -> str:
    """The corpus' name in reports: a folder by its own name, without its path on this machine.

    Args:
        name_or_dir: As for `recipes.corpora.load`.
        weights: whether the name has the weights, as a report has.
    """
    names = [
        (Path(part).resolve().name if Path(part).is_dir() else part) + _suffix(weight if weights else None)
        for part, weight in parts_of(name_or_dir)
    ]
    return "+".join(names)


def tagged(corpus: Corpus, kind: str) -> Corpus:
    """The corpus with a tag before each source line: `<2fr>` (Johnson et al. 2017, section 3).

    Args:
        corpus: One in memory.
        kind: "target" for the target language, "corpus" for the corpus' name, of "g2p/ice" its part.
    """
    name = corpus.target if kind == "target" else corpus.name.split("/")[-1]
    tag = "<2" + re.sub(r"[\s,▁]", "_", name.lower()) + ">"
    splits = {
        split: ([f"{tag} {line}" if line.strip() else line for line in source], target)
        for split, (source, target) in corpus.splits.items()
    }
    return replace(corpus, splits=splits, tags=(tag,))


def join(corpora: Sequence[Corpus], weights: Sequence[float | None], seed: int) -> Corpus:
    """Several corpora as one, split by split.

    With weights, an epoch has pairs of each corpus in that ratio. The corpus that is the largest for its weight is in
    it once. Of each other one come as many whole copies as the ratio allows, and the rest is drawn by the seed, the
    same in each epoch, so that no pair is left out and a resumed run has the same. The lines of `val` alternate, so
    that the first of them are of all corpora.

    Args:
        corpora: In memory, or without weights all in files.
        weights: Of the training split.
        seed: For what is drawn.

    Raises:
        ValueError: if they have other languages, and no tags.
    """
    languages = {(corpus.source, corpus.target) for corpus in corpora}
    if len(languages) > 1 and not all(corpus.tags for corpus in corpora):
        received = ", ".join(f"{corpus.name} from {corpus.source} to {corpus.target}" for corpus in corpora)
        raise ValueError(
            f"Expected corpora of one direction, or --tags, or --source and --target. Received: {received}"
        )
    splits = {}
    for split in SPLITS:
        having = [
            (corpus.splits[split], weight)
            for corpus, weight in zip(corpora, weights, strict=True)
            if split in corpus.splits
        ]
        if not having:
            continue
        sides = [side for side, _ in having]
        if isinstance(sides[0][0], TextFiles):
            paths = [[path for side in both for path in side.paths] for both in zip(*sides, strict=True)]
            splits[split] = tuple(map(TextFiles, paths))
            continue
        if split == "train" and weights[0] is not None:
            sides = _drawn(sides, [weight for _, weight in having], seed)
        joined = tuple([line for side in both for line in side] for both in zip(*sides, strict=True))
        if split == "val":
            order = _alternating([len(source) for source, _ in sides])
            joined = tuple([side[place] for place in order] for side in joined)
        splits[split] = joined
    sizes = [
        (corpus.name, {split: len(side[0]) for split, side in corpus.splits.items() if isinstance(side[0], list)})
        for corpus in corpora
    ]
    return Corpus(
        "+".join(corpus.name + _suffix(weight) for corpus, weight in zip(corpora, weights, strict=True)),
        *(_languages([getattr(corpus, side) for corpus in corpora]) for side in ("source", "target")),
        splits,
        tuple(dict.fromkeys(tag for corpus in corpora for tag in corpus.tags)),
        tuple(sizes),
    )


def languages_of(text: str | None, count: int, option: str) -> list[str | None]:
    """The language of each of `count` corpora: one for all, or as many joined by "+".

    Raises:
        ValueError: if there are as many as neither.
    """
    languages = [text] if text is None else text.split("+")
    if len(languages) not in (1, count):
        raise ValueError(f"Expected {option} with one language, or one for each of {count} corpora. Received: {text!r}")
    return languages * (count if len(languages) == 1 else 1)


def _weighted(part: str) -> tuple[str, float | None]:
    name, colon, text = part.rpartition(":")
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    is_weight, is_known = 0 < weight < math.inf, name in NAMES or Path(name).is_dir()
    if not colon or Path(part).is_dir() or not (is_weight or is_known):
        return part, None
    if not is_weight:
        raise ValueError(f"Expected the weight of {name!r} to be a positive number. Received: {text!r}")
    return name, weight


def _suffix(weight: float | None) -> str:
    return "" if weight is None else f":{weight:g}"


def _languages(languages: Sequence[str]) -> str:
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


def _alternating(sizes: Sequence[int]) -> list[int]:
    """The order of the rows of parts, one after the other, in which each part is spread evenly."""
    shares = [(row + 0.5) / size for size in sizes for row in range(size)]
    return sorted(range(len(shares)), key=shares.__getitem__)
