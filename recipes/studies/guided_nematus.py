"""Nematus guided by links from a file, for the study of alignments: `recipes.studies.alignment` trains it.

As a system, its links are eflomal's; as an aligner (Chen et al. 2020, arXiv:2004.14837), a word's links train the row
after it, which has read the word.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import keras

from keras_attn.evaluation import parse_links
from keras_attn.models import NematusSeq2Seq
from keras_attn.text import read_lines
from keras_attn.training import model_arguments
from recipes import nematus


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(nematus.Config):
    """The settings of `recipes.nematus`, and the links."""

    guided_alignment: float = 0.5
    alignment_links: str = ""  # a file with a line such as 0-0 1-2 for each training pair
    shift_alignment: bool = False  # a word's links train the row after it


CONFIGS: dict[str, Config] = {}


def build(config: Config, source_vocabulary_size: int, target_vocabulary_size: int) -> keras.Model:
    """The model of `recipes.nematus`."""
    arguments = model_arguments(config)
    del arguments["alignment_links"], arguments["shift_alignment"]
    return NematusSeq2Seq(source_vocabulary_size, target_vocabulary_size, **arguments)


def data_options(config: Config, pairs: Sequence[Sequence[str]], tokenizers) -> dict:
    """The links of the training pairs, for `ParallelDataset.from_text`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it has another number of lines, or a line that has anything but links.
    """
    path, links = config.alignment_links, []
    for number, line in enumerate(read_lines(Path(path)), 1):
        try:
            links.append(set(parse_links(line).sure))
        except ValueError as error:
            raise ValueError(f"In line {number:,} of {path!r}: {error}") from None
    if len(links) != len(pairs[0]):
        raise ValueError(
            f"Expected {path!r} to have a line for each of {len(pairs[0]):,} training pairs. Received: {len(links):,} "
            "lines"
        )
    return {
        "links": links,
        "alignment_weight": config.guided_alignment,
        "shift_alignment": config.shift_alignment,
    }
