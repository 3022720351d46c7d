"""Weights of models made with tensorflow_addons.seq2seq, or with Keras 2, for the layers of this package."""

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_attn import files
from keras_attn.backend import read_checkpoint
from keras_attn.layers import AttentionDecoder, BahdanauAttention, GeneralAttention, LuongAttention, RNNEncoder
from keras_attn.models import RecurrentSeq2Seq
from keras_attn.requirements import require

_WRAPPER = "decoder/(rnn_cell|attention_wrapper|wrapper)"
# By our part, its names in `tf.train.Checkpoint(encoder=..., decoder=...)`, as tensorflow_addons, Keras 2 and the NMT
# tutorial call them: regular expressions. `{n}` is the number of a part whose name ends in one, else 0.
_NAMES = {
    "source_embedding": "encoder/embedding",
    "encoder/cell": "encoder/(lstm_layer|lstm|gru_layer|gru|rnn|bidirectional/forward_layer)/cell",
    "encoder/backward_cell": "encoder/bidirectional/backward_layer/cell",
    "target_embedding": "decoder/embedding",
    "decoder/cell": f"decoder/(decoder_rnn_cell|cell)|{_WRAPPER}/_cell",
    "decoder/attention": f"decoder/(attention_)?(mechanism|mechanisms/{{n}})|{_WRAPPER}/_attention_mechanisms/{{n}}",
    "decoder/attentional": f"decoder/attention_layer|{_WRAPPER}/_attention_layers/{{n}}",
    "output_projection": "decoder/(fc|dense|output_layer)",
}
_STACK = "({})/cells/{{n}}"  # of the cells in Keras 2's `StackedRNNCells`
# By the class of ours, tensorflow_addons' name of each weight whose name is another one here.
_MECHANISMS = {
    BahdanauAttention: {
        "key_kernel": "memory_layer/kernel",
        "query_kernel": "query_layer/kernel",
        "score_vector": "attention_v",
        "gain": "attention_g",
        "bias": "attention_b",
        "score_bias": "attention_score_bias",
    },
    GeneralAttention: {
        "kernel": "memory_layer/kernel",
        "scale": "attention_g",
        "score_bias": "attention_score_bias",
    },
}
_SEQ2SEQ = (
    "source_embedding", "encoder", "bridge", "target_embedding", "decoder", "readout", "output_projection",
    "output_bias",
)  # fmt: skip
_SHOWN = 40  # parts or weights of a file in a message


class _Part(NamedTuple):
    """A layer of ours with its weights.

    Attributes:
        name: Such as "decoder/cell/0".
        weights: Its variables, by the names that tensorflow_addons or Keras 2 gives them.
        query_width: H, of the decoder whose attention layer it is, else 0.
    """

    name: str
    weights: dict[str, Any]
    query_width: int = 0


def from_tfa(
    path: str | os.PathLike,
    target: keras.layers.Layer | Mapping[str, Any],
    *,
    mapping: Mapping[str, str | Mapping[str, str]] | None = None,
) -> dict[str, str]:
    """Loads the weights of a model that was made with tensorflow_addons.seq2seq, or of a Keras 2 model.

    A model consists of parts: embeddings, cells, attention mechanisms, attention layers and other dense layers. A part
    of `target` gets that of the file which `mapping` names or, without an entry there, the one that has its name in the
    programs of tensorflow_addons' tutorial: "decoder/rnn_cell/_cell" is the decoder's cell. The rows of an attention
    layer's kernel are swapped: `[state; context]` there, `[context; state]` here. Nothing is loaded unless everything
    of `target` is.

    A file has the weights alone. All else has to be in `target` as it was in the model: `attend="after"` and
    `input_feeding=True` for an `AttentionWrapper`, `activation=None` for the attention layer that it makes itself,
    `reset_after` of a GRU, masks. `docs/migrating-from-tfa.md` has the arguments.

    Args:
        path: A checkpoint that `tf.train.Checkpoint` wrote, a folder of them (the last one is read) or a SavedModel,
            for which TensorFlow has to be installed, whatever the backend; or weights in Keras 2's ".h5".
        target: What gets the weights, built: a `RecurrentSeq2Seq`, such as `LuongSeq2Seq`; an `AttentionDecoder`, an
            `RNNEncoder` or any other layer; or a dict of such layers, whose keys are their names here.
        mapping: From a part of `target`, such as "decoder/cell" or "source_embedding", to one of the file, such as
            "decoder/rnn_cell/_cell"; or to a dict of its weights, such as `{"kernel": "decoder/W/kernel"}`. The error
            that asks for it lists the parts of both.

    Returns:
        The part of the file for each part of `target`. Weights of the file without a place, other than the
        optimizer's variables, are named in a warning.

    Raises:
        ValueError: if a part of `target` has no name in the table and none in `mapping`, or weights of other shapes
            there; for a layer without weights yet; for unknown names in `mapping`; or for a damaged file.
        FileNotFoundError: if there is no such file.
        ModuleNotFoundError: without TensorFlow, for a checkpoint or a SavedModel.
    """
    if not isinstance(mapping, (Mapping, NoneType)):
        raise ValueError(f"Expected `mapping` to be a dict. Received: {mapping!r}")
    path = files.as_path(path, "a checkpoint, a SavedModel or Keras 2's '.h5'")
    parts, stored, mapping = _parts_of(target), _read(path), dict(mapping or {})
    folders = _folders(stored)
    if unknown := [name for name in mapping if name not in {part.name for part in parts}]:
        names = sorted(part.name for part in parts)
        raise ValueError(f"Expected the names in `mapping` among {names}. Received: {unknown[0]!r}")
    pairs = [(part, _source(part, mapping.get(part.name), folders, stored)) for part in parts]
    if missing := [repr(part.name) for part, source in pairs if source is None]:
        has = [
            f"{folder!r} with {_text({role: np.shape(stored[place]) for role, place in own.items()})}"
            for folder, own in folders.items()
        ]
        raise ValueError(
            f"Expected names of the file's parts in `mapping` for {', '.join(missing)}: mapping={{{missing[0]}: ..., "
            f"...}}. Received: {str(path)!r}, which has none or several of their usual names. Its parts are "
            f"{'; '.join(has[:_SHOWN])}"
        )
    for part, source in pairs:
        _check_shapes(part, *source, stored)
    for part, (_, places) in pairs:
        for role, variable in part.weights.items():
            array = stored[places[role]]
            if part.query_width and role == "kernel":  # the rows of an attention layer
                array = np.concatenate([array[part.query_width :], array[: part.query_width]])  # (M + H, O)
            variable.assign(array)
    used = {place for _, (_, places) in pairs for place in places.values()}
    if left := [f"{place} {np.shape(array)}" for place, array in stored.items() if place not in used]:
        warnings.warn(
            f"Expected a place for all that {str(path)!r} contains. Received {len(left)} weights without one: "
            f"{', '.join(left[:_SHOWN])}",
            stacklevel=2,
        )
    return {part.name: name for part, (name, _) in pairs}


def _parts_of(target: Any) -> list[_Part]:
    """The parts of a model, a layer, or a dict of layers."""
    if isinstance(target, Mapping):
        layers = dict(target)
    elif isinstance(target, RecurrentSeq2Seq):
        layers = {name: getattr(target, name) for name in _SEQ2SEQ}
        if target.source_embedding is target.target_embedding:
            del layers["target_embedding"]
    else:
        kinds = {AttentionDecoder: "decoder", RNNEncoder: "encoder"}
        name = next((name for kind, name in kinds.items() if isinstance(target, kind)), getattr(target, "name", ""))
        layers = {name: target}
    parts = [part for name, layer in layers.items() if layer is not None for part in _walk(name, layer)]
    if not any(part.weights for part in parts):
        raise ValueError(f"Expected a `target` with weights. Received: {target!r}")
    return [part for part in parts if part.weights]


def _walk(name: str, layer: Any) -> Iterator[_Part]:
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(f"Expected layers in `target`. Received: {layer!r} as {name!r}")
    if not layer.built:
        raise ValueError(f"Expected a `target` that has its weights: call it once, or build it. Received: {layer!r}")
    if isinstance(layer, AttentionDecoder):
        yield from _decoder(name, layer)
    elif isinstance(layer, RNNEncoder) and layer.backward_cell is not None:
        yield from _walk(f"{name}/cell", layer.cell)
        yield from _walk(f"{name}/backward_cell", layer.backward_cell)
    elif isinstance(layer, (RNNEncoder, keras.layers.RNN)):
        yield from _walk(f"{name}/cell", layer.cell)
    elif isinstance(layer, keras.layers.Bidirectional):
        for direction in ("forward", "backward"):
            yield from _walk(f"{name}/{direction}", getattr(layer, f"{direction}_layer"))
    elif isinstance(layer, keras.layers.StackedRNNCells):
        for i, cell in enumerate(layer.cells):
            yield from _walk(f"{name}/{i}", cell)
    elif isinstance(layer, LuongAttention):
        yield from _walk(name, layer.score)
    elif isinstance(layer, keras.Model):
        for part in layer.layers:
            yield from _walk(f"{name}/{part.name}", part)
    else:
        names = next((names for kind, names in _MECHANISMS.items() if isinstance(layer, kind)), {})
        own = {weight.path.rpartition(f"{layer.name}/")[2]: weight for weight in layer.weights}
        yield _Part(name, {names.get(role, role): weight for role, weight in own.items()})


def _decoder(name: str, decoder: AttentionDecoder) -> Iterator[_Part]:
    for own in ("cell", "second_cell", "cell_input", "projection"):
        if getattr(decoder, own, None) is not None:
            yield from _walk(f"{name}/{own}", getattr(decoder, own))
    vectors = decoder.attentional if isinstance(decoder.attentional, list) else [decoder.attentional]
    for own, layers in (("attention", decoder.attentions), ("attentional", vectors)):
        for i, layer in enumerate(layers):
            if isinstance(layer, keras.layers.Layer):
                width = decoder.query_width if own == "attentional" and isinstance(layer, keras.layers.Dense) else 0
                for part in _walk(f"{name}/{own}/{i}" if len(layers) > 1 else f"{name}/{own}", layer):
                    yield part._replace(query_width=width)


def _source(
    part: _Part, given: str | Mapping[str, str] | None, folders: dict[str, dict[str, str]], stored: dict[str, Any]
) -> tuple[str, dict[str, str]] | None:
    """The part of the file that the mapping or else the table names, and its weights; None for no name or several."""
    if isinstance(given, Mapping):
        if missing := [place for place in given.values() if place not in stored]:
            raise ValueError(f"Expected weights of the file in `mapping`: {sorted(stored)}. Received: {missing[0]!r}")
        return ", ".join(given.values()), dict(given)
    if given is None:
        known, number = re.fullmatch(r"(.*?)(?:/(\d+))?", part.name).groups()
        pattern = _NAMES.get(known, "")
        if number is not None and known.endswith("cell"):
            pattern = _STACK.format(pattern)
        pattern = pattern.replace("{n}", number or "0")
        found = [folder for folder in folders if re.fullmatch(pattern, folder)]
        return (found[0], folders[found[0]]) if len(found) == 1 else None
    if not isinstance(given, str) or given not in folders:
        raise ValueError(f"Expected a part of the file in `mapping`: one of {sorted(folders)}. Received: {given!r}")
    return given, folders[given]


def _folders(stored: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The places of a file's weights by their parts and their names there; the layers of a mechanism belong to it."""
    folders: dict[str, dict[str, str]] = {}
    for place in stored:
        *path, role = place.split("/")
        inner = path[-1:] if path[-1:] in (["memory_layer"], ["query_layer"]) else []
        role = "attention_g" if role == "scale_weight" else role  # the name of Luong's factor as an attribute
        folders.setdefault("/".join(path[: len(path) - len(inner)]), {})["/".join([*inner, role])] = place
    return folders


def _check_shapes(part: _Part, name: str, places: dict[str, str], stored: dict[str, Any]) -> None:
    ours = {role: tuple(weight.shape) for role, weight in part.weights.items()}
    theirs = _shapes(places, stored)
    if ours == theirs:
        return
    advice = ""
    if ours.keys() == theirs.keys() and {"recurrent_kernel", "bias"} <= ours.keys():
        if len(ours["bias"]) != len(theirs["bias"]):
            advice = f" (that of `GRUCell(..., reset_after={len(theirs['bias']) == 2})`)"
    elif "memory_layer/kernel" in ours and ("attention_g" in ours) != ("attention_g" in theirs):
        option = "normalize" if "query_layer/kernel" in theirs else "use_scale"
        advice = f" (made with {option}={'attention_g' in theirs})"
    raise ValueError(
        f"Expected weights for {part.name!r} of {_text(ours)}. Received: {name!r} with {_text(theirs)}{advice}"
    )


def _shapes(places: dict[str, str], stored: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {role: np.shape(stored[place]) for role, place in places.items()}


def _text(shapes: dict[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{role} {shape}" for role, shape in sorted(shapes.items()))


def _read(path: Path) -> dict[str, Any]:
    """The arrays of a checkpoint, a SavedModel or an ".h5" file of weights, by their places."""
    if path.suffix in (".h5", ".hdf5"):
        return _read_h5(path)
    if path.suffix == ".keras":
        raise ValueError(
            f"Expected a checkpoint, a SavedModel or Keras 2's '.h5'. Received: {str(path)!r}. Where it can be loaded, "
            f"`model.save_weights('weights.h5')` of Keras 2 writes one."
        )
    require("tensorflow", "tensorflow", purpose="reading its checkpoints")
    return read_checkpoint(path)


def _read_h5(path: Path) -> dict[str, np.ndarray]:
    """The weights that Keras 2 wrote, by the layers' names and their own."""
    import h5py

    files.existing(path, "a file of weights")
    try:
        with h5py.File(path, "r") as file:
            root = file.get("model_weights", file)
            found, left = {}, path.stat().st_size
            for layer in _names(root, "layer_names"):
                for weight in _names(root[layer], "weight_names"):
                    array = root[layer][weight]
                    left -= array.nbytes
                    if left < 0 or array.external or array.is_virtual or array.file != file:
                        raise KeyError(f"{layer}/{weight} is not in the file as it is: compressed, or a link")
                    name, value = weight.partition(":")[0], np.asarray(array)
                    # A layer within another one is written twice, if it is an attribute of the model, too.
                    if name in found and not np.array_equal(found[name], value):
                        name = f"{layer}/{name}"
                    found[name] = value
            return found
    except (OSError, KeyError, AttributeError) as error:
        raise ValueError(
            f"Expected weights as Keras 2 wrote them to '.h5'. Received: {str(path)!r}: {error}"
        ) from error


def _names(group: Any, attribute: str) -> list[str]:
    """A list among the attributes of a group, which Keras divided where it was long."""
    if attribute in group.attrs:
        parts = [group.attrs[attribute]]
    else:
        numbered = [name for name in group.attrs if re.fullmatch(rf"{attribute}\d+", name)]
        if not numbered:
            raise KeyError(f"{group.name} has no {attribute}")
        parts = [group.attrs[f"{attribute}{i}"] for i in range(len(numbered))]
    return [name.decode() if isinstance(name, bytes) else str(name) for part in parts for name in part]
