"""The parts of a model of this package that can get weights from elsewhere, each with the names they have there."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_attn.layers import AttentionDecoder, BahdanauAttention, GeneralAttention, LuongAttention, RNNEncoder
from keras_attn.models import RecurrentSeq2Seq
from keras_attn.saving.tfa_stored import Part, words_of

_SEQ2SEQ = (
    "source_embedding", "encoder", "bridge", "target_embedding", "decoder", "readout", "output_projection",
    "output_bias",
)  # fmt: skip
# By the class of ours: our name of each weight, and tensorflow_addons'.
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


def our_parts(target) -> list[Part]:
    """The parts of a model, a layer, or a dict of layers.

    Raises:
        ValueError: for what is none of these, or has no weights yet.
    """
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


def _walk(name: str, layer, words: tuple[str, ...] = ()) -> Iterator[Part]:
    if not isinstance(layer, keras.layers.Layer):
        raise ValueError(f"Expected layers in `target`. Received: {layer!r} as {name!r}")
    if not layer.built:
        raise ValueError(f"Expected a `target` that has its weights: call it once, or build it. Received: {layer!r}")
    if isinstance(layer, AttentionDecoder):
        yield from _decoder(name, layer)
    elif isinstance(layer, RNNEncoder) and layer.backward_cell is not None:
        yield from _walk(f"{name}/cell", layer.cell, ("forward",))
        yield from _walk(f"{name}/backward_cell", layer.backward_cell, ("backward",))
    elif isinstance(layer, (RNNEncoder, keras.layers.RNN)):
        yield from _walk(f"{name}/cell", layer.cell, words)
    elif isinstance(layer, keras.layers.Bidirectional):
        for direction in ("forward", "backward"):
            yield from _walk(f"{name}/{direction}", getattr(layer, f"{direction}_layer"), (direction,))
    elif isinstance(layer, keras.layers.StackedRNNCells):
        for i, cell in enumerate(layer.cells):
            yield from _walk(f"{name}/{i}", cell, words)
    elif isinstance(layer, LuongAttention):
        yield from _walk(name, layer.score, words)
    elif isinstance(layer, keras.Model):
        for part in layer.layers:
            yield from _walk(f"{name}/{part.name}", part, words)
    else:
        yield Part(name, words_of(f"{name} {' '.join(words)}"), _weights(layer))


def _decoder(name: str, decoder: AttentionDecoder) -> Iterator[Part]:
    yield from _walk(f"{name}/cell", decoder.cell)
    if decoder.second_cell is not None:
        yield from _walk(f"{name}/second_cell", decoder.second_cell)
    several = len(decoder.attentions) > 1
    for i, attention in enumerate(decoder.attentions):
        yield from _walk(f"{name}/attention/{i}" if several else f"{name}/attention", attention)
    for own in ("cell_input", "projection"):
        if getattr(decoder, own, None) is not None:
            yield from _walk(f"{name}/{own}", getattr(decoder, own))
    vectors = decoder.attentional
    if isinstance(vectors, list):
        named = [(f"{name}/attentional/{i}", layer) for i, layer in enumerate(vectors)]
    else:
        named = [(f"{name}/attentional", vectors)] if isinstance(vectors, keras.layers.Layer) else []
    for place, layer in named:
        for part in _walk(place, layer):
            yield part._replace(query_width=decoder.query_width * isinstance(layer, keras.layers.Dense))


def _weights(layer) -> dict[str, Any]:
    names = next((names for kind, names in _MECHANISMS.items() if isinstance(layer, kind)), {})
    own = {weight.path.rpartition(f"{layer.name}/")[2]: weight for weight in layer.weights}
    return {names.get(name, name): weight for name, weight in own.items()}
