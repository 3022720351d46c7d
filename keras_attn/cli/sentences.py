"""Translation of a line sentence by sentence: `keras-attn translate RUN --split-sentences`."""

import argparse
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from keras_attn.requirements import require
from keras_attn.training import read_report
from keras_attn.translation import Translation

# The languages of sentencex 1. It would take any other code for a similar one, or for English.
_LANGUAGES = (
    *("am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu", "hi", "hy", "it", "ja", "kk"),
    *("kn", "ml", "mr", "my", "nl", "pa", "pl", "pt", "ru", "sk", "ta", "te", "uk"),
)
_WITHOUT_SPACES = ("ja", "zh")  # languages that write no space between sentences


def add_sentences(parser: argparse.ArgumentParser) -> None:
    """Adds `--split-sentences`."""
    parser.add_argument(
        "--split-sentences",
        metavar="LANGUAGE",
        nargs="?",
        const="",
        help="translate each sentence of a line alone; the source language (without one: the run's)",
    )


def check_sentences(arguments: argparse.Namespace, options: dict) -> str:
    """Returns the code of the source language; an empty string without `--split-sentences`.

    Args:
        arguments: Parsed arguments.
        options: The options of the search.

    Raises:
        ValueError: If lines have several translations or alignments, or sentencex does not know the language.
        ModuleNotFoundError: If sentencex is not installed.
    """
    if arguments.split_sentences is None:
        return ""
    if options["n_best"] > 1 or options["return_alignments"]:
        raise ValueError(
            "Expected no --n-best, --samples and alignments with --split-sentences, whose lines have one translation, "
            f"without an alignment. Received: n_best={options['n_best']}, alignments: {options['return_alignments']}"
        )
    language = arguments.split_sentences or read_report(arguments.run)["source"]
    if language not in _LANGUAGES:
        codes = ", ".join(_LANGUAGES)
        raise ValueError(f"Expected --split-sentences LANGUAGE to be one of: {codes}. Received: {language!r}")
    require("sentences", "sentencex", purpose="--split-sentences")
    return language


def by_sentence(generate: Callable, source: str, target: str | None) -> Callable[[Sequence[str], Sequence[int]], list]:
    """Returns a function that translates each sentence of a text by `generate`, and joins the translations.

    Args:
        generate: A function of texts and their numbers.
        source: The source language, by whose rules texts are split.
        target: The target language, by which sentences are joined: with a space, if it has one there.
    """
    from sentencex import segment

    space = "" if target in _WITHOUT_SPACES else " "

    def generate_texts(texts: Sequence[str], numbers: Sequence[int]) -> list[Translation]:
        sentences = [[one.strip() for one in segment(source, text) if one.strip()] for text in texts]
        flat = list(itertools.chain(*sentences))
        translations = iter(generate(flat, range(len(flat))))
        return [_joined(list(itertools.islice(translations, len(own))), space) for own in sentences]

    return generate_texts


def _joined(translations: list[Translation], space: str) -> Translation:
    log_probs = [one.token_log_probs for one in translations if one.token_log_probs is not None]
    return Translation(
        text=space.join(one.text for one in translations),
        tokens=tuple(itertools.chain(*(one.tokens for one in translations))),
        token_ids=tuple(itertools.chain(*(one.token_ids for one in translations))),
        score=sum(one.score for one in translations),
        token_log_probs=np.concatenate(log_probs) if log_probs else None,
        source_tokens=tuple(itertools.chain(*(one.source_tokens for one in translations))),
        source_token_ids=tuple(itertools.chain(*(one.source_token_ids for one in translations))),
    )
