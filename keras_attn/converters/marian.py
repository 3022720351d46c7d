"""Models that were trained with Marian."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_attn.converters.marian_file import Options, read_model
from keras_attn.converters.marian_vocabulary import marian_tokenizer
from keras_attn.converters.marian_weights import ADDED, convert
from keras_attn.models import NematusSeq2Seq
from keras_attn.text import Tokenizer

_CELLS = {"gru": "gru", "gru-nematus": "gru", "lstm": "lstm"}
_ORDERS = {"bidirectional": "parallel", "alternating": "alternating", "bi-unidirectional": "upwards"}
_TIES = {(False, False): None, (True, False): "target", (False, True): "source", (True, True): "all"}
# Options that change what a model computes, with the values that can be read; a file without them has the first.
_READ = {
    "right-left": ("false",),
    "ulr": ("false",),
    "lemma-dim-emb": ("0",),
    "enc-cell": tuple(_CELLS),
    "dec-cell": tuple(_CELLS),
    "enc-type": tuple(_ORDERS),
}
# Arguments of `NematusSeq2Seq`, and Marian's options with what a file without them has; the largest size that is read.
_SIZES = {"embedding_size": ("dim-emb", None, 1 << 20), "units": ("dim-rnn", None, 1 << 20)}
_DEPTHS = {
    "encoder_layers": ("enc-depth", "1", 100),
    "encoder_transitions": ("enc-cell-depth", "1", 100),
    "decoder_layers": ("dec-depth", "1", 100),
    "decoder_transitions": ("dec-cell-base-depth", "2", 100),
    "upper_transitions": ("dec-cell-high-depth", "1", 100),
}


def from_marian(
    model: str | os.PathLike, vocabularies: str | os.PathLike | Sequence[str | os.PathLike]
) -> tuple[NematusSeq2Seq, Tokenizer, Tokenizer]:
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
    if isinstance(vocabularies, (str, os.PathLike)):
        vocabularies = [vocabularies] * 2
    if len(vocabularies) != 2:
        raise ValueError(f"Expected a vocabulary for source and target each. Received: {len(vocabularies)} of them")
    path = Path(model)
    options, weights = read_model(path)
    sizes, arguments = describe(options, path)
    converted = convert(weights, sizes, arguments, path)
    files = zip(vocabularies, sizes, strict=True)
    source, target = (marian_tokenizer(vocabulary, size=size) for vocabulary, size in files)
    read = NematusSeq2Seq(
        *(size + ADDED for size in sizes),
        **arguments,
        source_special_ids=source.special_ids,
        target_special_ids=target.special_ids,
    )
    places = {weight.path.removeprefix(f"{read.name}/"): weight for weight in read.weights}
    if places.keys() != converted.keys():
        raise RuntimeError(f"{sorted(places.keys() ^ converted.keys())}, of {str(path)!r}, have no counterpart.")
    for name, array in converted.items():
        places[name].assign(array)
    return read, source, target


def describe(options: Options, path: Path) -> tuple[tuple[int, int], dict[str, Any]]:
    """Returns the sizes of both vocabularies and the arguments of `NematusSeq2Seq` for a model with these options.

    Raises:
        ValueError: for a model that computes what `NematusSeq2Seq` does not, or options that are none.
    """
    for name, values in _READ.items():
        if (value := options.get(name, values[0])) not in values:
            raise ValueError(
                f"Expected a model of Marian with `{name}` of {' or '.join(values)}. Received: {value} in {str(path)!r}"
            )
    types = options.get("input-types", [])
    if types not in ([], ["sequence", "sequence"]):
        raise ValueError(f"Expected a model of text alone. Received: input-types of {types} in {str(path)!r}")

    def flag(*names):
        return any(options.get(name) == "true" for name in names)

    own = [options.get(f"{side}-cell", "gru") for side in ("enc", "dec")]
    cells = sorted({_CELLS[cell] for cell in own})
    if len(cells) > 1:
        raise ValueError(f"Expected the same cells in encoder and decoder. Received: {' and '.join(cells)}")
    if flag("layer-normalization") and "gru-nematus" in own:
        raise ValueError(
            f"Expected `layer-normalization` with the cells gru or lstm. Received: gru-nematus in {str(path)!r}, whose "
            f"norms are others"
        )
    sizes = options.get("dim-vocabs", [])
    if not isinstance(sizes, list) or len(sizes) != 2:
        raise ValueError(f"Expected a model of two vocabularies. Received: dim-vocabs of {sizes} in {str(path)!r}")
    tie = flag("tied-embeddings", "tied-embeddings-all"), flag("tied-embeddings-src", "tied-embeddings-all")
    numbers = {
        argument: _size(name, options.get(name, default), most, path)
        for argument, (name, default, most) in (_SIZES | _DEPTHS).items()
    }
    order = _ORDERS[options.get("enc-type", "bidirectional")]
    one_stack = order == "upwards" and numbers["encoder_layers"] > 1  # on top, so that h has one direction
    return (
        tuple(_size("dim-vocabs", size, 1 << 24, path) for size in sizes),
        {
            **numbers,
            "cell": cells[0],
            "encoder_order": order,
            "attention_units": numbers["units"] * (1 if one_stack else 2),  # as wide as h
            "residual": flag("skip"),
            "layer_normalization": flag("layer-normalization"),
            "tie_embeddings": _TIES[tie],
        },
    )


def _size(name: str, text: Any, most: int, path: Path) -> int:
    if not isinstance(text, str) or not text.isdecimal() or len(text) > 8 or not 0 < int(text) <= most:
        raise ValueError(f"Expected `{name}` to be a size up to {most:,} in {str(path)!r}. Received: {text!r}")
    return int(text)
