"""Models that were trained with Marian."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keras_attn.saving.marian_file import read_model
from keras_attn.saving.marian_options import describe
from keras_attn.saving.marian_weights import ADDED, assign, convert
from keras_attn.text import Tokenizer, marian_tokenizer

if TYPE_CHECKING:
    from keras_attn.models import NematusSeq2Seq


def from_marian(
    model: str | os.PathLike, vocabularies: str | os.PathLike | Sequence[str | os.PathLike]
) -> tuple["NematusSeq2Seq", Tokenizer, Tokenizer]:
    """Reads a model that Marian trained, of its types `s2s`, `nematus` and `amun`, with its vocabularies.

    The arguments of a translator; `keras_attn.Translator.from_marian` makes it of them. Scores are those of
    `marian score`. Marian never writes the unknown word unless it is told to (`--allow-unk`), which is
    `generate(..., banned_tokens=["<unk>"])` here. Its beam search has no length normalisation by default:
    `normalization="none"`; its `--normalize 1` is `normalization="average"`.

    Marian's decoder begins with a vector of zeros instead of a start token, and it pads without an id. Both
    vocabularies get two more entries, padding and start, whose embeddings are zeros, and which are never produced.

    What is read: GRU, `gru-nematus` and LSTM cells; every `--enc-type`, depth and `--skip`; `--layer-normalization`,
    but for that of `gru-nematus`; every `--tied-embeddings...`, `--output-omit-bias`; vocabularies in `.yml`, `.json`
    and SentencePiece's `.spm`. Everything else is refused with its name, such as factors and right-to-left models. A
    tokenizer from `.spm` cannot be exported to TensorFlow Serving.

    Nothing in the files is executed, and sizes are checked before anything is read.

    Args:
        model: The `.npz` that Marian saved.
        vocabularies: The files of source and target; or one file for both.

    Returns:
        The model, the source tokenizer and the target tokenizer.

    Raises:
        FileNotFoundError: if a file does not exist.
        ValueError: if one is damaged, or something else than expected, or the model is of a kind that is not read.
    """
    from keras_attn.models import NematusSeq2Seq  # here, because presets, which are in this package, need none

    if isinstance(vocabularies, (str, os.PathLike)):
        vocabularies = [vocabularies] * 2
    if len(vocabularies) != 2:
        raise ValueError(f"Expected a vocabulary for source and target each. Received: {len(vocabularies)} of them")
    path = Path(model)
    options, weights = read_model(path)
    about = describe(options, path)
    converted = convert(weights, about, path)
    files = zip(vocabularies, about.sizes, strict=True)
    source, target = (marian_tokenizer(vocabulary, size=size) for vocabulary, size in files)
    translates = NematusSeq2Seq(
        *(size + ADDED for size in about.sizes),
        **about.arguments,
        source_special_ids=source.special_ids,
        target_special_ids=target.special_ids,
    )
    assign(translates, converted, path)
    return translates, source, target
