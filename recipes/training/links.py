"""The links of guided alignment: from a file, or by IBM Model 1 from the training pairs themselves."""

import re
from collections.abc import Sequence
from pathlib import Path

from keras_attn import Tokenizer
from keras_attn.evaluation import Link, model1_links, parse_links
from keras_attn.text import read_lines
from recipes import corpora
from recipes.config import TrainingConfig


def word_links(
    config: TrainingConfig, pairs: Sequence[Sequence[str]], tokenizers: tuple[Tokenizer, Tokenizer]
) -> list[set[Link]]:
    """The links of the training pairs that `max_words` keeps, between words as the tokenizers separate them.

    Args:
        config: Its `alignment_links` is "ibm1", for IBM Model 1 in both directions, or a file of Pharaoh lines.
        pairs: The lines of source and target of all training pairs.
        tokenizers: Of both sides.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if it has another number of lines, or a line that has anything but links.
    """
    if config.alignment_links == "ibm1":
        kept = corpora.pairs_up_to(config.max_words, pairs)
        sides = ([_words(tokenizer, line) for line in side] for tokenizer, side in zip(tokenizers, kept, strict=True))
        return model1_links(*sides)
    links = _read(config.alignment_links)
    if len(links) != len(pairs[0]):
        raise ValueError(
            f"Expected {config.alignment_links!r} to have a line for each of {len(pairs[0]):,} training pairs. "
            f"Received: {len(links):,} lines"
        )
    return list(corpora.pairs_up_to(config.max_words, (*pairs, links))[2])


def _read(path: str) -> list[set[Link]]:
    links = []
    for number, line in enumerate(read_lines(Path(path)), 1):
        try:
            links.append(set(parse_links(line).sure))
        except ValueError as error:
            raise ValueError(f"In line {number:,} of {path!r}: {error}") from None
    return links


def _words(tokenizer: Tokenizer, line: str) -> str:
    """A line whose words, separated by blanks, are those of `Tokenizer.words`."""
    words = tokenizer.pieces(line) if tokenizer.separator else line.split(" ")
    return " ".join(re.sub(r"\s", "_", word) for word in words if word)
