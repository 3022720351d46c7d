"""What the named corpora are, where they come from, and whether a model trained on them may be shipped."""

import re
from collections.abc import Mapping
from typing import NamedTuple


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
        Origin(
            "cmudict",
            "The CMU Pronouncing Dictionary",
            "bsd-2-clause",
            "https://github.com/cmusphinx/cmudict",
            "Copyright (C) 1993-2015 Carnegie Mellon University.",
        ),
        Origin(
            "g2p",
            "Words and pronunciations of Wiktionary, collected with WikiPron for the SIGMORPHON shared task of 2021",
            "cc-by-sa-3.0",
            "https://github.com/sigmorphon/2021-task1",
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
