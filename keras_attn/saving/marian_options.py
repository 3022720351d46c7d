"""What the options of a model of Marian say; a model of a kind that cannot be read is named."""

from pathlib import Path
from typing import Any, NamedTuple

from keras_attn.saving.marian_file import Options

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


class Description(NamedTuple):
    """A model as its options describe it.

    Attributes:
        sizes: The two vocabularies' sizes.
        arguments: Those of `NematusSeq2Seq`.
    """

    sizes: tuple[int, int]
    arguments: dict[str, Any]


def describe(options: Options, path: Path) -> Description:
    """Reads the options.

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
    return Description(
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
