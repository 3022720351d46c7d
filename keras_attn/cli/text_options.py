"""Options of texts that are more than plain sentences: markup, placeholders, several sentences, whole documents."""

import argparse
from typing import Any

from keras_attn.training import read_report


def add_texts(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    from keras_attn.markup import PLACEHOLDERS

    option = parser.add_argument_group("markup and longer texts").add_argument
    option("--markup", choices=("html",), help="keep the tags of HTML, placed by the alignment")
    option(
        "--placeholders",
        metavar="REGEX",
        nargs="?",
        const=PLACEHOLDERS,
        help="keep what the expression finds (without one: {name}, %%s and their like)",
    )
    option(
        "--split-sentences",
        metavar="LANGUAGE",
        nargs="?",
        const="",
        help="translate each sentence alone; the source language (without one: the run's)",
    )
    option("--document", action="store_true", help="the whole input is one text, not a text a line")


def text_arguments(arguments: argparse.Namespace, samples: int | None, has_alignments: bool) -> dict[str, Any]:
    """Returns those keyword arguments of `Translator.generate` that the options choose; none where none is chosen.

    Args:
        arguments: Parsed arguments.
        samples: The number of samples, if translations are drawn.
        has_alignments: Whether alignments are written.

    Raises:
        ValueError: If these do not fit together, or the source language is unknown or has no rules for its sentences.
        ModuleNotFoundError: If sentences are to be split and sentencex is not installed.
    """
    from keras_attn.markup import check_sentence_splitter

    language = arguments.split_sentences
    if language == "":
        language = read_report(arguments.run)["source"]
        if not language:
            raise ValueError("Expected --split-sentences LANGUAGE, for the run's report names none. Received: none")
    if language:
        check_sentence_splitter(language)  # before the model is read
    chosen = {"markup": arguments.markup, "placeholders": arguments.placeholders, "split_sentences": language}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    flags = ", ".join(["--" + name.replace("_", "-") for name in chosen] + ["--document"] * arguments.document)
    if flags and samples:
        raise ValueError(f"Expected no --samples with {flags}. Received: {samples}")
    if flags and has_alignments:
        raise ValueError(f"Expected no alignments with {flags}. Received: --pharaoh, --html, --png or their field")
    if arguments.document and not chosen:
        raise ValueError("Expected --markup or --split-sentences with --document. Received: neither")
    return chosen
