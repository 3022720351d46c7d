"""The weights of a model of Marian, as those of `NematusSeq2Seq`; what cannot be read is named."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_attn.saving.marian_file import Options, Weights

ADDED = 2  # padding and start, behind the vocabularies
_NEVER = -100.0  # the logit of both, which leaves the softmax as it is
_CELLS = {"gru": "gru", "gru-nematus": "gru", "lstm": "lstm"}
_TIES = {(False, False): None, (True, False): "target", (False, True): "source", (True, True): "all"}
# Options that change what a model computes, with the values that can be read. What a file does not have is the first.
_READ = {
    "layer-normalization": ("false",),
    "enc-depth": ("1",),
    "enc-cell-depth": ("1",),
    "dec-depth": ("1",),
    "dec-cell-base-depth": ("2", "1"),
    "right-left": ("false",),
    "ulr": ("false",),
    "lemma-dim-emb": ("0",),
    "enc-cell": tuple(_CELLS),
    "dec-cell": tuple(_CELLS),
}


class Description(NamedTuple):
    """What the options say of a model.

    Attributes:
        sizes: The two vocabularies' sizes.
        embedding_size, units, cell, decoder_transitions, tie: Arguments of `NematusSeq2Seq`.
    """

    sizes: tuple[int, int]
    embedding_size: int
    units: int
    cell: str
    decoder_transitions: int
    tie: str | None


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
    cells = {_CELLS[options.get(f"{side}-cell", "gru")] for side in ("enc", "dec")}
    if len(cells) > 1:
        raise ValueError(f"Expected the same cells in encoder and decoder. Received: {' and '.join(sorted(cells))}")

    def flag(name):
        return options.get(name) == "true"

    sizes = options.get("dim-vocabs", [])
    if not isinstance(sizes, list) or len(sizes) != 2:
        raise ValueError(f"Expected a model of two vocabularies. Received: dim-vocabs of {sizes} in {str(path)!r}")
    shared = flag("tied-embeddings-src") or flag("tied-embeddings-all")
    return Description(
        sizes=tuple(_size("dim-vocabs", size, path) for size in sizes),
        embedding_size=_size("dim-emb", options.get("dim-emb"), path),
        units=_size("dim-rnn", options.get("dim-rnn"), path),
        cell=cells.pop(),
        decoder_transitions=int(options.get("dec-cell-base-depth", 2)),
        tie=_TIES[flag("tied-embeddings") or flag("tied-embeddings-all"), shared],
    )


def _size(name: str, text, path: Path) -> int:
    if not isinstance(text, str) or not text.isdecimal() or not 0 < int(text) < 2**24:
        raise ValueError(f"Expected `{name}` to be a size in {str(path)!r}. Received: {text!r}")
    return int(text)


def convert(weights: Weights, about: Description, path: Path) -> dict[str, np.ndarray]:
    """The weights by the paths of `NematusSeq2Seq`'s; every one of the file has its place, and every shape is checked.

    Raises:
        ValueError: if a weight is missing, superfluous, or of another shape than the options say.
    """
    left = dict(weights)

    def take(name: str, *shape: int) -> np.ndarray:
        array = left.pop(name, None)
        if array is None or array.shape != shape:
            received = "none" if array is None else f"{array.shape}"
            raise ValueError(f"Expected weights {name!r} of shape {shape} in {str(path)!r}. Received: {received}")
        return array

    E, H, M = about.embedding_size, about.units, 2 * about.units
    make_cell = _gru if about.cell == "gru" else _lstm
    parts = {
        "encoder/forward": make_cell(take, "encoder_bi", E, H),
        "encoder/backward": make_cell(take, "encoder_bi_r", E, H),
        "bridge": {"kernel": take("decoder_ff_state_W", M, H), "bias": take("decoder_ff_state_b", 1, H)[0]},
        "decoder/cell": make_cell(take, "decoder_cell1", E, H),
        "decoder/attention": {
            "query_kernel": take("decoder_W_comb_att", H, M),
            "key_kernel": take("decoder_Wc_att", M, M),
            "score_vector": take("decoder_U_att", M, 1)[:, 0],
            "bias": take("decoder_b_att", 1, M)[0],
        },
        "readout": {
            "embedding_kernel": take("decoder_ff_logit_l1_W0", E, E),
            "state_kernel": take("decoder_ff_logit_l1_W1", H, E),
            "context_kernel": take("decoder_ff_logit_l1_W2", M, E),
            "bias": sum(take(f"decoder_ff_logit_l1_b{i}", 1, E)[0] for i in range(3)),
        },
    }
    if about.decoder_transitions == 2:
        parts["decoder/second_cell"] = make_cell(take, "decoder_cell2", M, H, final=True)
    parts |= _vocabulary(take, left, about)
    if left:
        raise ValueError(
            f"Expected the weights of a model as its options describe it in {str(path)!r}. Received, besides them: "
            f"{', '.join(sorted(left)[:8])}"
        )
    return {f"{layer}/{name}": array for layer, own in parts.items() for name, array in own.items()}


def _vocabulary(take: Callable, left: Weights, about: Description) -> dict[str, dict[str, np.ndarray]]:
    """The embeddings, with rows of zeros for padding and start, and the output."""
    (source, target), E = about.sizes, about.embedding_size

    def added(array):
        return np.pad(array, [(0, ADDED), (0, 0)])

    if about.tie in ("source", "all"):
        parts = {"target_embedding": {"embeddings": added(take("Wemb", target, E))}}
    else:
        parts = {
            "source_embedding": {"embeddings": added(take("encoder_Wemb", source, E))},
            "target_embedding": {"embeddings": added(take("decoder_Wemb", target, E))},
        }
    bias = np.zeros(target, "float32")
    if "decoder_ff_logit_l2_b" in left:  # --output-omit-bias leaves it out
        bias = take("decoder_ff_logit_l2_b", 1, target)[0]
    bias = np.pad(bias, (0, ADDED), constant_values=_NEVER)
    if about.tie in ("target", "all"):
        parts["output"] = {"bias": bias}
    elif "decoder_ff_logit_l2_W" in left:  # before Marian 1.9
        parts["output"] = {"kernel": added(take("decoder_ff_logit_l2_W", E, target).T).T, "bias": bias}
    else:
        parts["output"] = {"kernel": added(take("decoder_ff_logit_l2_Wt", target, E)).T, "bias": bias}
    return parts


def _gru(take: Callable, prefix: str, width: int, units: int, final: bool = False) -> dict[str, np.ndarray]:
    """Marian's gates are r, z and h'; Keras' are z, r and h', with biases of W x and of U h.

    In a "final" cell, which reads the context, the reset gate multiplies U h + b, else U h alone (`GRUFastForward`).
    """

    def gates(name, rows):
        reset, update = np.split(take(f"{prefix}_{name}", rows, 2 * units), 2, axis=1)
        return np.concatenate([update, reset, take(f"{prefix}_{name}x", rows, units)], axis=1)  # (rows, 3 H)

    bias = gates("b", 1)[0]
    inner = np.zeros_like(bias)
    if final:
        bias[2 * units :], inner[2 * units :] = inner[2 * units :].copy(), bias[2 * units :].copy()
    return {"kernel": gates("W", width), "recurrent_kernel": gates("U", units), "bias": np.stack([bias, inner])}


def _lstm(take: Callable, prefix: str, width: int, units: int, final: bool = False) -> dict[str, np.ndarray]:
    """Marian's gates are f, i, c and o; Keras' are i, f, c and o."""

    def gates(name, rows):
        forget, given, *rest = np.split(take(f"{prefix}_{name}", rows, 4 * units), 4, axis=1)
        return np.concatenate([given, forget, *rest], axis=1)  # (rows, 4 H)

    return {"kernel": gates("W", width), "recurrent_kernel": gates("U", units), "bias": gates("b", 1)[0]}


def assign(model, converted: dict[str, np.ndarray], path: Path) -> None:
    """Gives a `NematusSeq2Seq` its weights."""
    places = {weight.path.removeprefix(f"{model.name}/"): weight for weight in model.weights}
    if places.keys() != converted.keys():
        raise RuntimeError(f"{sorted(places.keys() ^ converted.keys())}, of {str(path)!r}, have no counterpart.")
    for name, array in converted.items():
        places[name].assign(array)
