"""Models that were trained with Marian."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from keras_attn import files
from keras_attn.converters.marian_file import Options, Weights, marian_tokenizer, read_model
from keras_attn.models import NematusSeq2Seq
from keras_attn.text import Tokenizer

_CELLS = {"gru": "gru", "gru-nematus": "gru", "lstm": "lstm"}
_ORDERS = {"bidirectional": "parallel", "alternating": "alternating", "bi-unidirectional": "upwards"}
_TIES = {(False, False): None, (True, False): "target", (False, True): "source", (True, True): "all"}
ADDED = 2  # padding and start, behind the vocabularies
_NEVER = -100.0  # the logit of both, which leaves the softmax as it is
# Marian's gates, in the order of Keras: of a GRU it has r, z and h', of an LSTM f, i, c and o.
_GATES = {"gru": (1, 0, 2), "lstm": (1, 0, 2, 3)}
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
    if not isinstance(vocabularies, Sequence) or len(vocabularies) != 2:
        raise ValueError(f"Expected a vocabulary for source and target each. Received: {vocabularies!r}")
    path = files.existing(model, "a model of Marian")
    options, weights = read_model(path)
    sizes, arguments = describe(options, path)
    omit_bias = _flag(options, "output-omit-bias", path)
    converted = convert(weights, sizes, arguments, path, omit_bias=omit_bias)
    sides = zip(vocabularies, sizes, strict=True)
    source, target = (marian_tokenizer(vocabulary, size=size) for vocabulary, size in sides)
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
        return any([_flag(options, name, path) for name in names])

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


def _flag(options: Options, name: str, path: Path) -> bool:
    if (value := options.get(name, "false")) not in ("true", "false"):
        raise ValueError(f"Expected `{name}` to be true or false in {str(path)!r}. Received: {value!r}")
    return value == "true"


def _size(name: str, text: Any, most: int, path: Path) -> int:
    if not isinstance(text, str) or not text.isdecimal() or len(text) > 8 or not 0 < int(text) <= most:
        raise ValueError(f"Expected `{name}` to be a size up to {most:,} in {str(path)!r}. Received: {text!r}")
    return int(text)


def convert(
    weights: Weights, sizes: tuple[int, int], arguments: dict[str, Any], path: Path, *, omit_bias: bool
) -> dict[str, np.ndarray]:
    """The weights by the paths of `NematusSeq2Seq`'s; every one of the file has its place, and every shape is checked.

    Args:
        weights: As `read_model` returns them.
        sizes, arguments: As `describe` returns them.
        path: The file, for messages.
        omit_bias: Whether the output has no bias.

    Raises:
        ValueError: if a weight is missing, superfluous, or of another shape than the options say.
    """
    converter = _Converter(weights, sizes, arguments, path)
    groups = converter.encoder(), converter.bridge(), converter.decoder(), converter.readout()
    parts = dict(itertools.chain(*groups, converter.vocabulary(omit_bias)))
    if converter.left:
        raise ValueError(
            f"Expected the weights of a model as its options describe it in {str(path)!r}. Received, besides them: "
            f"{', '.join(sorted(converter.left)[:8])}"
        )
    return {f"{layer}/{name}": array for layer, own in parts.items() for name, array in own.items()}


class _Converter:
    """Takes the weights of a file one by one; its public methods yield those of each layer, by its path.

    Attributes:
        left: Those that are not taken yet.
    """

    def __init__(self, weights: Weights, sizes: tuple[int, int], arguments: dict[str, Any], path: Path):
        self.left, self._sizes, self._path = dict(weights), sizes, path
        self._about = SimpleNamespace(**arguments)
        self._memory = self._about.attention_units  # M, the width of h

    def _take(self, name: str, *shape: int) -> np.ndarray:
        array = self.left.pop(name, None)
        if array is None or array.shape != shape:
            received = "none" if array is None else f"{array.shape}"
            raise ValueError(f"Expected weights {name!r} of shape {shape} in {str(self._path)!r}. Received: {received}")
        return array

    def encoder(self):
        about, E, H = self._about, self._about.embedding_size, self._about.units
        layers = about.encoder_layers
        wide = 1 if about.encoder_order == "upwards" else layers  # the layers in two directions
        for direction, own in (("forward", "encoder_bi"), ("backward", "encoder_bi_r")):
            for i in range(wide):
                first = own if i == 0 else f"{own}_l{i + 1}_cell1"
                others = own if i == 0 else f"{own}_l{i + 1}"
                names = [first, *(f"{others}_cell{j + 1}" for j in range(1, about.encoder_transitions))]
                place = f"encoder/{direction}" + (f"_{i}" if layers > 1 else "")
                yield from self._deep(place, names, H if i else E)
        for i in range(wide, layers):
            names = [f"encoder_l{i + 1}_cell{j + 1}" for j in range(about.encoder_transitions)]
            yield from self._deep(f"encoder/forward_{i}", names, H if i > wide else 2 * H)

    def bridge(self):
        H, name = self._about.units, "decoder_ff_state"
        kernel, bias = self._take(f"{name}_W", self._memory, H), self._take(f"{name}_b", 1, H)[0]
        if self._about.layer_normalization:
            yield "bridge/dense", {"kernel": kernel}
            yield "bridge/norm", {"gamma": self._take(f"{name}_gamma", 1, H)[0], "beta": bias}
        else:
            yield "bridge", {"kernel": kernel, "bias": bias}

    def decoder(self):
        about, E, H = self._about, self._about.embedding_size, self._about.units
        M = self._memory
        place = "decoder_stack/decoder" if about.decoder_layers > 1 else "decoder"
        yield f"{place}/cell", self._cell("decoder_cell1", E)
        if about.decoder_transitions > 1:
            names = [f"decoder_cell{j + 1}" for j in range(1, about.decoder_transitions)]
            yield from self._deep(f"{place}/second_cell", names, M, final=True)
        for i in range(1, about.decoder_layers):
            names = [f"decoder_l{i + 1}_cell{j + 1}" for j in range(about.upper_transitions)]
            yield from self._deep(f"decoder_stack/upper_{i - 1}", names, H)
        bias = self._take("decoder_b_att", 1, M)[0]
        attention = {
            "query_kernel": self._take("decoder_W_comb_att", H, M),
            "key_kernel": self._take("decoder_Wc_att", M, M),
            "score_vector": self._take("decoder_U_att", M, 1)[:, 0],
        }
        if about.layer_normalization:
            gains = [self._take(f"decoder_att_gamma{i}", 1, M)[0] for i in (1, 2)]
            attention |= {"key_norm/gamma": gains[0], "key_norm/beta": bias, "query_norm/gamma": gains[1]}
        else:
            attention["bias"] = bias
        yield f"{place}/attention", attention

    def readout(self):
        E, H, name = self._about.embedding_size, self._about.units, "decoder_ff_logit_l1"
        readout = {"bias": np.zeros(E, "float32")}
        for i, (part, width) in enumerate((("embedding", E), ("state", H), ("context", self._memory))):
            readout[f"{part}_kernel"] = self._take(f"{name}_W{i}", width, E)
            readout["bias"] = readout["bias"] + self._take(f"{name}_b{i}", 1, E)[0]
            if self._about.layer_normalization:
                readout[f"{part}_norm/gamma"] = self._take(f"{name}_gamma{i}", 1, E)[0]
        yield "readout", readout

    def vocabulary(self, omit_bias: bool):
        """The embeddings, with rows of zeros for padding and start, and the output."""
        (source, target), E, tie = self._sizes, self._about.embedding_size, self._about.tie_embeddings

        def added(array):
            return np.pad(array, [(0, ADDED), (0, 0)])

        if tie in ("source", "all"):
            yield "target_embedding", {"embeddings": added(self._take("Wemb", target, E))}
        else:
            yield "source_embedding", {"embeddings": added(self._take("encoder_Wemb", source, E))}
            yield "target_embedding", {"embeddings": added(self._take("decoder_Wemb", target, E))}
        bias = np.zeros(target, "float32") if omit_bias else self._take("decoder_ff_logit_l2_b", 1, target)[0]
        output = {"bias": np.pad(bias, (0, ADDED), constant_values=_NEVER)}
        if tie not in ("target", "all"):
            if "decoder_ff_logit_l2_W" in self.left:  # of older versions
                rows = self._take("decoder_ff_logit_l2_W", E, target).T
            else:
                rows = self._take("decoder_ff_logit_l2_Wt", target, E)
            output["kernel"] = added(rows).T
        yield "output", output

    def _deep(self, place: str, names: list[str], width: int, final: bool = False):
        """The transitions of a step, of which the first alone has inputs."""
        for i, name in enumerate(names):
            inner = f"{place}/{place.rpartition('/')[2]}_{i}" if len(names) > 1 else place
            yield inner, self._cell(name, 0 if i else width, final)

    def _cell(self, name: str, width: int, final: bool = False) -> dict[str, np.ndarray]:
        """The weights of a cell; one without inputs has none for them.

        In a "final" GRU, which stands behind the attention, the reset gate multiplies U h + b, else U h alone
        (`GRUFastForward`); Keras' has both biases.
        """
        H, kind = self._about.units, self._about.cell
        order = _GATES[kind]

        def gates(part, rows):
            if kind == "lstm":
                array = self._take(f"{name}_{part}", rows, 4 * H)
            else:
                both = self._take(f"{name}_{part}", rows, 2 * H), self._take(f"{name}_{part}x", rows, H)
                array = np.concatenate(both, axis=1)
            return sort(array)

        def sort(array):
            blocks = np.split(array, len(order), axis=-1)
            return np.concatenate([blocks[i] for i in order], axis=-1)

        bias = gates("b", 1)[0]
        kernel = gates("W", width) if width else np.zeros((0, bias.size), "float32")
        weights = {"kernel": kernel, "recurrent_kernel": gates("U", H), "bias": bias}
        if kind == "gru":
            candidate = np.arange(3 * H) >= 2 * H
            inner = np.where(candidate & final, bias, 0)
            weights["bias"] = np.stack([bias - inner, inner])
        if self._about.layer_normalization:
            if width:
                weights["inputs_gain"] = sort(self._take(f"{name}_gamma1", 1, bias.size))[0]
            weights["state_gain"] = sort(self._take(f"{name}_gamma2", 1, bias.size))[0]
        return weights
